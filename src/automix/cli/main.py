"""The command line `automix COMMAND ...`: choose the command, run it, and turn exceptions into one line.

A command is a function in a module of this folder; cyclopts reads its flags from the signature and its help from the
docstring. Modules are imported when their command is used, and import torch inside the function, so that
`automix --help` and the like answer at once.
"""

import difflib
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from automix._version import __version__
from automix.cli._output import print_error
from automix.core.errors import AutomixError

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

COMMANDS = {
    "quickstart": "Train plainly and with AutoMix, side by side, in a few minutes.",
    "train": "Train a classifier on a dataset or a folder of images.",
    "evaluate": "Measure calibration, corruptions, attacks, localization, ... of a trained run.",
    "predict": "Classify images with a trained run.",
    "export": "Export a trained run as ONNX, TorchScript, torch.export or plain weights.",
    "mix": "Draw mixed samples over lam, from a run or from images.",
    "report": "Write one HTML page on a run or several: curves, masks, evaluations.",
    "explore": "Open a local page: mix two images, move lam, compare the methods.",
    "bench": "Run the paper's tables and figures as grids of runs.",
    "detect": "Fine-tune a detector on a trained classifier, and measure it.",
    "methods": "List the mixing methods.",
    "models": "List the networks.",
    "recipes": "List the training recipes, or show one.",
    "datasets": "List the datasets.",
}

WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line of this process and leave by SystemExit.

    Args:
        arguments: The words after ``automix``; those of the process if not given.
    """
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may have bytes that are no text
    code = run(sys.argv[1:] if arguments is None else arguments)
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Once in some fifty runs gloo's threads abort the interpreter's ordinary exit, after all work is done.
        os._exit(code)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Exceptions end in one line on stderr. ``--debug`` anywhere in the line shows their traceback before it.

    Args:
        arguments: The words after ``automix``, for instance ``["train", "shapes", "--epochs", "2"]``.

    Returns:
        The exit code: 0, 2 for a user's mistake, 1 for any other failure, 128 + signal if stopped.
    """
    words = [word for word in arguments if word != "--debug"]
    debug = len(words) < len(arguments)
    try:
        execute(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130
    except (BrokenPipeError, SystemExit):  # `automix models | head`; rich turns the first into the second
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        message, code = _describe(error)
        print_error(message)
        return code
    return 0 if words else 2


def execute(arguments: Sequence[str]) -> None:
    """Run one command line and let its exceptions through.

    Args:
        arguments: The words after ``automix``.

    Raises:
        AutomixError: For an unknown command or flag, or a value that is not accepted.
    """
    from cyclopts import CycloptsError

    try:
        _app(arguments)(arguments)
    except CycloptsError as error:
        raise AutomixError(_usage_error(error)) from None


def _app(words: Sequence[str]) -> "App":
    """Make the application; the module of a command is imported when the command is used."""
    from cyclopts import App, Parameter
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import SIMPLE_HEAD

    app = App(
        name="automix",
        help="Learned and hand-crafted mixup for image classification. `automix COMMAND --help` explains a command.",
        help_epilogue="--debug shows the traceback of an error.",
        help_format="plaintext",
        help_formatter=DefaultFormatter(panel_spec=PanelSpec(box=SIMPLE_HEAD)),
        version=f"automix {__version__}",
        default_parameter=Parameter(negative_iterable=()),
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for place, (name, about) in enumerate(COMMANDS.items()):
        own = list(words[:1]) == [name]  # its help is the function's docstring, which `about` would replace
        app.command(f"automix.cli.{name}:{name}", name=name, help=None if own else about, sort_key=place)
    return app


def _usage_error(error: "CycloptsError") -> str:
    """What cyclopts says about a command line; two of its messages in other words."""
    from cyclopts import UnknownCommandError, UnusedCliTokensError

    words = error.unused_tokens or [""]
    if isinstance(error, UnknownCommandError):  # its own message would import all commands
        names = [name for name in error.app or () if not name.startswith("-")]
        close = difflib.get_close_matches(words[0], names, n=1) if len(words[0]) < 100 else []
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"command must be one of {', '.join(names)}; got {words[0]!r}{hint}"
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument {words[0]!r}; automix {' '.join(error.command_chain or ())} --help shows the usage"
    return str(error)


def _describe(error: Exception) -> tuple[BaseException | str, int]:
    """The message for an exception that ended a command, and the exit code."""
    if (code := getattr(error, "exit_code", None)) is not None:  # an AutomixError, or a run that was stopped
        return error, int(code)
    if isinstance(error, OSError):  # a path that cannot be; a full disk
        return error, 2 if error.errno in WRONG_PATH else 1
    if _is_out_of_memory(error):
        return f"not enough memory ({error}); try smaller images, batches or networks", 1
    return f"{type(error).__name__}: {error}; run again with --debug for the traceback", 1


def _is_out_of_memory(error: Exception) -> bool:
    """On a CPU, torch raises a RuntimeError like any other."""
    words = ("DefaultCPUAllocator", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, without the line of source that Python would show."""
    print_error(f"warning: {message}")
