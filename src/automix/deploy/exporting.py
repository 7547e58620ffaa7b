"""A trained classifier in a form that runs without automix: ONNX, TorchScript, torch.export, or the plain weights.

    difference = export(model, card, Path("cats.onnx"), "onnx")

An exported classifier takes images, float32 ``(N, 3, S, S)`` in [0, 1], and returns logits ``(N, classes)``. N is any
number, S the card's image_size. ONNX names them `images` and `logits`. The normalization is part of it; resizing and
cropping are not. The file also holds the card as `automix` and the names of the classes as `classes`, both JSON: ONNX
in its metadata, the others as extra files. Every export is loaded again and compared with the model before it is moved
to its path.
"""

import copy
import io
import json
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import step_generator
from automix.core.errors import AutomixError, one_line
from automix.core.files import write_atomically
from automix.core.validation import check_choice
from automix.runs.classifier import CARD, Card, WithNormalization, read_classifier, save_classifier

SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt", "torch-export": ".pt2", "safetensors": ".safetensors"}
TOLERANCE = 1e-4  # of the largest logit

Run = Callable[[Tensor], Tensor]


def export(model: nn.Module, card: Card, path: Path, format: str) -> float:
    """Write a classifier to a file and check the file against the model.

    The check runs both on the CPU in float32, on one and on three images of random pixels. Where logits differ by more
    than 1e-4 of the largest logit, nothing is written. The model itself is not changed.

    Args:
        model: The classifier; it takes normalized images.
        card: Its classes, image size and normalization.
        path: The file. Without a suffix it gets that of the format.
        format: ``"onnx"``, ``"torchscript"``, ``"torch-export"`` or ``"safetensors"``.

    Returns:
        The largest absolute difference between the logits of the export and of the model.

    Raises:
        AutomixError: The model cannot be exported in this format, or the export computes something else.
    """
    path = export_path(path, format)
    if format == "onnx":
        _check_onnx_is_installed()
    if not path.parent.is_dir():
        raise AutomixError(f"{path.parent}: no such folder; create it first")
    # A copy: the caller's model stays on its device and in its mode.
    classifier = WithNormalization(copy.deepcopy(model).cpu().float(), card).eval().requires_grad_(False)
    write = {"onnx": _onnx, "torchscript": _torchscript, "torch-export": _torch_export, "safetensors": _safetensors}
    difference = 0.0

    def write_and_check(temporary: Path) -> None:
        nonlocal difference
        try:
            run = write[format](classifier, card, temporary)
            difference, scale = _compare(run, classifier, card)
        except OSError:
            raise  # a full disk, not a problem of the export
        except Exception as error:  # exporters raise many types, with messages of many lines
            raise AutomixError(f"{card.model} cannot be exported as {format} ({_short(error)})") from error
        if not difference <= TOLERANCE * scale:  # NaN is refused too
            raise AutomixError(
                f"{format}: the logits differ from the model's by {difference:.2g}, more than {TOLERANCE:g} of the "
                f"largest, {scale:.2g}; nothing was written"
            )

    write_atomically(path, write_and_check)
    return difference


def export_path(path: Path, format: str) -> Path:
    """Return the path that `export` writes to.

    Args:
        path: The path that the user gave.
        format: One of the formats of `export`.

    Returns:
        `path`, with the suffix of the format if it has none.
    """
    check_choice("format", format, SUFFIXES)
    return path if path.suffix else path.with_suffix(SUFFIXES[format])


def _compare(run: Run, classifier: nn.Module, card: Card) -> tuple[float, float]:
    """The largest difference between the logits, and the largest of the model's."""
    difference, scale = 0.0, 0.0
    for count in (1, 3):
        images = _pixels(count, card)
        with torch.inference_mode():
            expected, exported = classifier(images), run(images)
        for whose, logits in (("model", expected), ("export", exported)):
            if logits.shape != (count, len(card.classes)):
                raise AutomixError(
                    f"logits of the {whose} must have shape {(count, len(card.classes))}, got {tuple(logits.shape)}"
                )
        difference = max(difference, (exported - expected).abs().max().item(), key=_nan_is_largest)
        scale = max(scale, expected.abs().max().item())
    return difference, scale


def _nan_is_largest(value: float) -> float:
    return value if value == value else float("inf")


def _pixels(count: int, card: Card) -> Tensor:
    shape = (count, 3, card.image_size, card.image_size)
    return torch.rand(shape, generator=step_generator(0, count, stream="export"))


def _any_batch_size() -> Any:
    """The dynamic shapes of the arguments, by position: their names do not matter."""
    return ({0: torch.export.Dim("batch")},)


def _extra(card: Card) -> dict[str, str]:
    return {CARD: card.to_json(), "classes": json.dumps(card.classes, ensure_ascii=False)}


# --- the formats: each writes the file and returns a function that runs it -------------------------------------------


def _onnx(classifier: WithNormalization, card: Card, path: Path) -> Run:
    with warnings.catch_warnings():
        # Raised inside torch's exporter about torch's own classes.
        warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
        program: Any = torch.onnx.export(
            classifier,
            (_pixels(2, card),),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=_any_batch_size(),
        )
    program.model.metadata_props.update(_extra(card))
    path.write_bytes(program.model_proto.SerializeToString())

    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])


def _torchscript(classifier: WithNormalization, card: Card, path: Path) -> Run:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        # The tracer warns that other batch sizes and pixels may give other results; _compare checks that.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(classifier, _pixels(2, card), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files=_extra(card))
        return torch.jit.load(str(path))


def _torch_export(classifier: WithNormalization, card: Card, path: Path) -> Run:
    program = torch.export.export(classifier, (_pixels(2, card),), dynamic_shapes=_any_batch_size())
    content = io.BytesIO()
    torch.export.save(program, content, extra_files=_extra(card))
    path.write_bytes(content.getvalue())
    return torch.export.load(str(path)).module()


def _safetensors(classifier: WithNormalization, card: Card, path: Path) -> Run:
    save_classifier(path, classifier.model, card)
    model, loaded = read_classifier(path)
    return WithNormalization(model, loaded)


def _check_onnx_is_installed() -> None:
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            import_module(name)
    except ImportError as error:
        raise AutomixError(f"format 'onnx' needs {error.name}; pip install 'automix[export]'") from None


def _short(error: Exception) -> str:
    line = one_line(error)
    return line if len(line) <= 200 else f"{line[:197]}..."
