"""timm's weights: in the local caches, or downloaded from the Hugging Face hub or an address of timm's.

The hub's client waits for minutes and prints every attempt if there is no network. Whether its endpoint answers is
therefore tried first, for a few seconds, and its messages are switched off.
"""

import contextlib
import logging
import os
import ssl
import threading
import warnings
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from automix.core.errors import AutomixError, one_line

SECONDS = 4.0  # for an endpoint to answer, including the look-up of its name

_FILES = ("model.safetensors", "pytorch_model.bin")
_CHATTY = ("huggingface_hub", "timm", "httpx", "urllib3", "filelock")
_TRUE = ("1", "true", "yes", "on")


def find_cached(known: Any) -> Path | None:
    """Find weights in the hub's or torch's local cache.

    Args:
        known: timm's ``PretrainedCfg`` of the network.

    Returns:
        The file; None if it is in neither.
    """
    if known.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        repository, revision = _split(known.hf_hub_id)
        for name in _file_names(known):
            found = try_to_load_from_cache(repository, name, revision=revision)
            if isinstance(found, str) and Path(found).is_file():
                return Path(found)
    if known.url:
        from torch.hub import get_dir

        path = Path(get_dir()) / "checkpoints" / Path(urlparse(known.url).path).name
        return path if path.is_file() else None
    return None


def cached_repositories() -> list[str]:
    """List the repositories of timm in the hub's local cache.

    Returns:
        Their names without the owner, such as ``resnet18.a1_in1k``.
    """
    from huggingface_hub import constants

    folders = sorted(Path(constants.HF_HUB_CACHE).glob("models--timm--*"))
    return [
        folder.name.removeprefix("models--timm--")
        for folder in folders
        if any(next(folder.glob(f"snapshots/*/{name}"), None) for name in _FILES)
    ]


def why_unreachable(known: Any) -> str | None:
    """Try for a few seconds whether the weights of a network could be downloaded.

    Args:
        known: timm's ``PretrainedCfg`` of the network.

    Returns:
        Why not; None if the server answers.
    """
    if is_offline():
        return "HF_HUB_OFFLINE is set"
    return probe(_endpoint() if known.hf_hub_id else known.url)


def download(known: Any) -> Path:
    """Download weights into the local cache.

    Args:
        known: timm's ``PretrainedCfg`` of the network.

    Returns:
        The file.
    """
    try:
        with _silent():
            return _download_from_hub(known) if known.hf_hub_id else _download_from_url(known.url)
    except Exception as error:  # clients of several libraries raise whatever they like
        reason = one_line(error)[:200]
        where = known.hf_hub_id or known.url
        raise AutomixError(f"{where}: the download failed ({reason}); give --weights FILE") from None


def is_offline() -> bool:
    """Tell whether downloads from the hub are switched off by HF_HUB_OFFLINE.

    Returns:
        True if they are.
    """
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE) or os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE


def probe(address: str, seconds: float = SECONDS) -> str | None:
    """Try whether a server answers. Proxies of the environment are used.

    Args:
        address: An address of the server.
        seconds: How long to wait.

    Returns:
        Why it does not answer; None if it does.
    """
    host = urlparse(address).hostname or address
    answer = [f"{host} does not answer"]

    def ask() -> None:
        answer[0] = _ask(address, host, seconds)

    # in a thread, because looking up a name has no time limit of its own
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds + 1)
    return answer[0] or None


def _ask(address: str, host: str, seconds: float) -> str:
    try:
        with urlopen(Request(address, method="HEAD"), timeout=seconds):
            return ""
    except HTTPError as error:
        return f"{host} answers {error.code}" if error.code >= 500 else ""
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            return ""  # it answers; the client has certificates of its own
        return f"{host} cannot be reached: {one_line(str(error.reason))[:100]}"
    except (OSError, HTTPException, ValueError) as error:
        return f"{host} cannot be reached: {one_line(error)[:100]}"


def _download_from_hub(known: Any) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    repository, revision = _split(known.hf_hub_id)
    *first, last = _file_names(known)
    for name in first:
        with contextlib.suppress(EntryNotFoundError):
            return Path(hf_hub_download(repository, name, revision=revision, endpoint=_endpoint()))
    return Path(hf_hub_download(repository, last, revision=revision, endpoint=_endpoint()))


def _download_from_url(url: str) -> Path:
    from timm.models._hub import download_cached_file

    return Path(download_cached_file(url, check_hash=True))


def _file_names(known: Any) -> tuple[str, ...]:
    name = known.hf_hub_filename
    if not name:
        return _FILES
    safe = name.replace("pytorch_model.bin", "model.safetensors")
    return (safe, name) if safe != name else (name,)


def _split(hub_id: str) -> tuple[str, str | None]:
    repository, _, revision = hub_id.partition("@")
    return repository, revision or None


def _endpoint() -> str:
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
