"""The server of the page: bound before anything is built, quiet, and gone with one line."""

import errno
import ipaddress
import os
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from automix.core.validation import check_whole
from automix.training.signals import Stopped, listening
from automix.views.explorer.pair import Explorer

LARGEST = 10 * 2**20  # bytes of an upload
SILENT = {  # for Gradio and what it brings: nothing is fetched, counted or sent
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_SHARE": "False",
    "DO_NOT_TRACK": "1",
}


def check_gradio() -> None:
    """Complain in one line where Gradio is missing; it is imported (for seconds) only when all else is right."""
    if find_spec("gradio") is None:
        raise ValueError("explore needs gradio: pip install 'automix[explore]'")


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens, or a ValueError of one line; port 0 takes a free one."""
    check_whole("port", port, 0)
    if port > 65535:
        raise ValueError(f"port={port}: accepted are 0, for a free one, to 65535")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise ValueError(f"host={host}: accepted is an address of this machine") from None
        reason = os.strerror(error.errno)
        raise ValueError(f"port={port} cannot be had ({reason}): accepted is another, or 0 for a free one") from None
    except UnicodeError:  # no name of any machine
        raise ValueError(f"host={host}: accepted is an address of this machine") from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(explorer: Explorer, listener: socket.socket, host: str) -> None:
    """Show the page until somebody stops it; leaves by Stopped."""
    import uvicorn

    port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="automix-explore-") as folder, listening() as stop:
        app = build_app(explorer, Path(folder), host, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))
        address = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"{explorer.name}: http://{address}:{port} until Ctrl-C\n")
        sys.stdout.flush()
        if not stop.asked:
            server.run(sockets=[listener])
        raise Stopped("the page is closed", stop.signal)


def build_app(explorer: Explorer, folder: Path, host: str, port: int) -> Any:
    """The ASGI application; uploads go to `folder`."""
    os.environ.update(SILENT)  # read when Gradio is imported
    os.environ["GRADIO_TEMP_DIR"] = str(folder)  # read when a page is built
    import gradio as gr
    from fastapi import FastAPI

    from automix.views.explorer.gate import Gate
    from automix.views.explorer.page import build_page, style

    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        build_page(explorer, folder),
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        max_file_size=LARGEST,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        theme=gr.themes.Default(primary_hue="indigo", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=style(),
    )
    return Gate(app, folder, only_here=is_loopback(host))
