"""The web server of the page: the port is bound before anything slow is built."""

import errno
import ipaddress
import os
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from automix.core.errors import AutomixError
from automix.core.validation import check_range, check_whole
from automix.training.signals import Stopped, catch_signals
from automix.views.explorer.explorer import Explorer

NO_TELEMETRY = {  # Gradio and its dependencies fetch and send nothing
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_SHARE": "False",
    "DO_NOT_TRACK": "1",
}


def check_gradio() -> None:
    """Raise an error if Gradio is not installed; importing it takes seconds and happens later."""
    if find_spec("gradio") is None:
        raise AutomixError("explore needs gradio; pip install 'automix[explore]'")


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address of this machine; port 0 takes a free one."""
    check_whole("port", port, 0)
    check_range("port", port, 0, 65535)
    not_ours = AutomixError(f"host must be an address of this machine, got {host}")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except UnicodeError:  # a name that no machine can have
        raise not_ours from None
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise not_ours from None
        reason = os.strerror(error.errno)
        raise AutomixError(f"port must be free, or 0 for any free one, got {port} ({reason})") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(explorer: Explorer, listener: socket.socket, host: str) -> None:
    """Serve the page until Ctrl-C.

    Args:
        explorer: What the page shows.
        listener: A listening socket; see `bind`.
        host: The address that the socket was bound to.

    Raises:
        Stopped: The user has stopped the server.
    """
    import uvicorn

    port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="automix-explore-") as folder, catch_signals() as stop:
        app = build_app(explorer, Path(folder), host, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))
        address = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"{explorer.name}: http://{address}:{port} until Ctrl-C\n")
        sys.stdout.flush()
        if not stop.poll():
            server.run(sockets=[listener])
        raise Stopped("the page is closed", stop.signal)


def build_app(explorer: Explorer, folder: Path, host: str, port: int) -> Any:
    """Build the ASGI application; uploads go to `folder`."""
    os.environ.update(NO_TELEMETRY)  # read when Gradio is imported
    os.environ["GRADIO_TEMP_DIR"] = str(folder)  # read when a page is built
    import gradio as gr
    from fastapi import FastAPI

    from automix.views.explorer.gate import MAX_UPLOAD, Gate
    from automix.views.explorer.page import build_page, style

    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        build_page(explorer, folder),
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        max_file_size=MAX_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        theme=gr.themes.Default(primary_hue="indigo", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=style(),
    )
    return Gate(app, folder, local_only=is_loopback(host))
