"""Restrict the server to the page and what the page needs.

Gradio alone also serves files, fetches URLs for the caller and takes recordings, and a payload may name a file or a URL
that Gradio then copies. Here every other route is not found, payloads may name only uploaded files, and the browser may
load nothing from elsewhere. A server for this machine only also checks the Host header, against DNS rebinding: a
foreign web page whose host name resolves to this machine. It checks the Origin header too, against requests that other
pages send.
"""

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

ROUTES = re.compile(
    r"/|/(config|theme\.css|manifest\.json|favicon\.ico)/?|/(assets|static)/.+"
    r"|/gradio_api/(queue/join|queue/data|upload|upload_progress|heartbeat/\w+)/?"
)
ODD_PARTS = re.compile(r"\.\.|//|\\|\0")  # of paths that lead elsewhere
JOIN_ROUTE = "/gradio_api/queue/join"
UPLOAD_ROUTE = "/gradio_api/upload"
MAX_BODY = 100_000  # bytes of an event: numbers, names, and the path of an upload
MAX_UPLOAD = 10 * 2**20  # bytes of an image
MAX_FORM = MAX_UPLOAD + 10_000  # bytes of the form in which it comes
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; form-action 'self'; "
        b"frame-ancestors 'none'; base-uri 'self'; object-src 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class Gate:
    """ASGI middleware in front of the app.

    Args:
        app: The ASGI app.
        uploads: The folder whose files payloads may name.
        local_only: Answer only requests whose Host header names this machine.
    """

    def __init__(self, app: App, uploads: Path, local_only: bool) -> None:
        self.app = app
        self.uploads = uploads.resolve()
        self.local_only = local_only

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http" or not ROUTES.fullmatch(scope["path"]) or ODD_PARTS.search(scope["path"]):
            await _refuse(scope, send, 404, "not found")
            return
        if self.local_only and not _is_local(scope):
            await _refuse(scope, send, 403, "this server answers requests of its own page to localhost only")
            return
        if scope["path"].rstrip("/") == UPLOAD_ROUTE:
            body = await _read(receive, MAX_FORM)
            if body is None:
                await _refuse(scope, send, 413, f"an upload must have at most {MAX_UPLOAD // 2**20} MB")
                return
            receive = _replay(body, receive)
        if scope["path"].rstrip("/") == JOIN_ROUTE:
            body = await _read(receive, MAX_BODY)
            if body is None or not self.names_uploads_only(body):
                await _refuse(scope, send, 403, "the request is too long or names a file that was not uploaded")
                return
            receive = _replay(body, receive)
        await self.app(scope, receive, _with_headers(send))

    def names_uploads_only(self, body: bytes) -> bool:
        """Whether every file in a JSON payload lies in the folder of uploads."""
        try:
            return all(self._is_upload(path) for path in _paths(json.loads(body)))
        except (ValueError, RecursionError):
            return False

    def _is_upload(self, path: object) -> bool:
        return isinstance(path, str) and Path(path).is_absolute() and self.uploads in Path(path).resolve().parents


def _paths(value: Any) -> list[object]:
    """All values under the key `path`, at any depth."""
    if isinstance(value, dict):
        here = [value["path"]] if "path" in value else []
        return here + [path for item in value.values() for path in _paths(item)]
    return [path for item in value for path in _paths(item)] if isinstance(value, list) else []


def _is_local(scope: Message) -> bool:
    """Whether a request was sent to this machine by name and, if a web page sent it, by the page of this server."""
    hosts, origins = _headers(scope, b"host"), _headers(scope, b"origin")
    names = [re.sub(r":\d*$", "", host).strip("[]") for host in hosts]
    if len(names) != 1 or names[0] not in LOCAL_NAMES:
        return False
    return all(origin == f"http://{hosts[0]}" for origin in origins)


def _headers(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The body of a request, or None if it is too long."""
    body = bytearray()
    while len(body) <= limit:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body) if len(body) <= limit else None
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns the body that was read already."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await send(message)

    return add


async def _refuse(scope: Message, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})
