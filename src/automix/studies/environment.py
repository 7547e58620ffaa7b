"""Where results were measured: the command, the code and the machine."""

import os
import platform
import subprocess
from pathlib import Path

from automix._version import __version__


def environment_facts(command: str) -> dict[str, str]:
    """Describe the command, the code and the machine.

    Args:
        command: The command line.

    Returns:
        Texts by name.
    """
    import torch

    machine = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    code = f"automix {__version__}{_commit()}, torch {torch.__version__}"
    return {"command": command, "code": code, "machine": machine}


def _commit() -> str:
    """Name the commit, if the package is in a git checkout."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:
        return ""
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""
