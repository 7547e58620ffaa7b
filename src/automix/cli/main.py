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

FIRST_COMMANDS = {
    "train": "Train a classifier on a dataset or a folder of images.",
    "predict": "Classify images with a trained run.",
    "evaluate": "Measure calibration, corruptions, attacks, localization, ... of a trained run.",
    "report": "Write one HTML page on a run or several: accuracy, errors, masks, curves.",
    "explore": "Open a local page: mix two images, move lam, compare the methods.",
}
"""The commands that a newcomer needs."""

COMMANDS = {
    **FIRST_COMMANDS,
    "quickstart": "Train plainly and with AutoMix, side by side, in a few minutes.",
    "tune": "Choose method, learning rate and alpha for a dataset on held-out training images.",
    "export": "Export a trained run as ONNX, TorchScript, torch.export, plain weights or a folder of timm's.",
    "push": "Upload a trained run to the Hugging Face hub.",
    "mix": "Draw mixed samples over lam, from a run or from images.",
    "bench": "Run the paper's tables and figures as grids of runs.",
    "detect": "Fine-tune a detector on a trained classifier, and measure it.",
    "methods": "List the mixing methods, or the options of one.",
    "models": "List the networks, or those with a word in their name.",
    "recipes": "List the training recipes, or show one.",
    "datasets": "List the datasets.",
}

FIRST_STEPS = """\
automix trains image classifiers with mixup methods, learned (AutoMix) and hand-crafted.

  automix train photos/               fine-tune on photos/<class>/*.jpg
  automix predict RUN photo.jpg       classify photographs with the run folder that train names
  automix evaluate RUN                accuracy, calibration, errors; --on all for more
  automix report RUN                  all of it as one HTML page
  automix explore RUN                 mix two images and move lam, in the browser

No photographs at hand? automix quickstart trains on drawn images.
automix --help lists all commands, automix COMMAND --help explains one.
"""
"""What `automix` alone prints."""

HELP_ALL = "--help-all"

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
        if words:
            execute(words)
        else:
            sys.stdout.write(FIRST_STEPS)
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

    arguments = _join_resume(arguments)
    try:
        _app(arguments)(["--help" if word == HELP_ALL else word for word in arguments])
    except CycloptsError as error:
        raise AutomixError(_usage_error(error)) from None


def _join_resume(words: Sequence[str]) -> list[str]:
    """Write ``--resume auto`` as one word: cyclopts has no flag with and without a value."""
    joined: list[str] = []
    for word in words:
        if word == "auto" and joined[-1:] == ["--resume"]:
            joined[-1] = "--resume=auto"
        else:
            joined.append(word)
    return joined


def _app(words: Sequence[str]) -> "App":
    """Make the application; the module of a command is imported when the command is used."""
    from cyclopts import App, Group, Parameter

    first, further = Group.create_ordered("First steps"), Group.create_ordered("All other commands")
    app = App(
        name="automix",
        help="Learned and hand-crafted mixup for image classification. `automix COMMAND --help` explains a command.",
        help_epilogue=_epilogue(words),
        help_format="plaintext",
        help_formatter=_formatter(show_all=HELP_ALL in words),
        version=f"automix {__version__}",
        default_parameter=Parameter(negative_iterable=()),
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    flags = Group.create_ordered("Flags")
    for flag in ("--help", "--version"):
        app[flag].group = flags
    for place, (name, about) in enumerate(COMMANDS.items()):
        own = list(words[:1]) == [name]  # its help is the function's docstring, which `about` would replace
        group = first if name in FIRST_COMMANDS else further
        app.command(f"automix.cli.{name}:{name}", name=name, help=None if own else about, sort_key=place, group=group)
    return app


def _epilogue(words: Sequence[str]) -> str:
    debug = "--debug shows the traceback of an error."
    short = list(words[:1]) == ["train"] and HELP_ALL not in words
    return f"automix train {HELP_ALL} shows all settings.\n{debug}" if short else debug


def _formatter(*, show_all: bool) -> Any:
    """Print the help in panels, further settings of `automix train` only if they are asked for."""
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import SIMPLE_HEAD

    from automix.cli._flags import MORE_OF_RECIPE, MORE_OF_RUN

    class Formatter(DefaultFormatter):
        def __call__(self, console: Any, options: Any, panel: Any) -> None:
            if show_all or panel.title not in (MORE_OF_RUN, MORE_OF_RECIPE):
                super().__call__(console, options, panel)

    return Formatter(panel_spec=PanelSpec(box=SIMPLE_HEAD))


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
