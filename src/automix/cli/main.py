"""The command line: `automix COMMAND ...`. A command is a file in commands/ with `run(arguments)`.

Errors are for people: one line, what is wrong and what is accepted, exit code 2; no traceback.
"""

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from automix._version import __version__
from automix.cli._errors import complain
from automix.core.validation import unknown_name

COMMANDS = {
    "train": "train a classifier on a dataset or a folder of images",
    "evaluate": "calibration, corruptions, attacks, localization, ... of a trained run",
    "predict": "classify images with a trained run",
    "export": "a trained run as ONNX, TorchScript, torch.export or plain weights",
    "mix": "a picture of mixed samples over lam, from a run or from images",
    "report": "one page to look at: curves, masks, evaluations, of a run or several",
    "explore": "a local page: mix two images, move lam, compare the methods",
    "bench": "the paper's tables and figures as grids of runs",
    "detect": "fine-tune a detector on a trained classifier, and measure it",
    "methods": "list the mixing methods",
    "models": "list the networks",
    "recipes": "list the training recipes, or show one",
    "datasets": "list the datasets",
}

USAGE = "usage: automix COMMAND ...\n\n" + "".join(f"  {name:10}{about}\n" for name, about in COMMANDS.items())

WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; leaves by SystemExit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _warn
    code = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Once in some fifty runs gloo's threads abort the interpreter's ordinary exit, after all work is done.
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of the command."""
    from automix.training.signals import Stopped

    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n`automix COMMAND --help` says more.\n")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        sys.stdout.write(f"automix {__version__}\n")
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown_name("command", arguments[0], list(COMMANDS))
        import_module(f"automix.cli.{arguments[0]}").run(arguments[1:])
    except Stopped as stopped:
        return _fail(str(stopped), stopped.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # `automix models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        return _fail(str(error), 2)
    except OSError as error:  # a name that cannot be; a full disk
        return _fail(str(error), 2 if error.errno in WRONG_PATH else 1)
    except ArithmeticError as error:  # a loss that is not finite
        return _fail(str(error), 1)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(f"not enough memory ({error}): accepted are smaller images, batches or networks", 1)
    return 0


def _is_out_of_memory(error: Exception) -> bool:
    """On a CPU, torch raises a RuntimeError like any other."""
    words = ("DefaultCPUAllocator", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _warn(message: Warning | str, *others: Any, **further: Any) -> None:
    """One line, without the line of source that Python would show."""
    sys.stderr.write(f"automix: warning: {' '.join(str(message).split())}\n")


def _fail(message: str, code: int) -> int:
    complain(message)
    return code
