"""A trained classifier in a form that runs without automix: ONNX, TorchScript, torch.export, or the plain weights.

    difference = export(model, card, Path("cats.onnx"), "onnx")

What is exported takes `images`, float32 (N, 3, S, S) in [0, 1] with any N and S the card's image_size, and gives
`logits` (N, classes): the card's normalization is inside, whoever runs it only resizes and crops. The card and the
names of the classes (both as JSON) are in the file too, as `automix` and `classes`: in the metadata of ONNX, among the
extra files of the others. Every export is loaded again and compared with the model before it gets its name.
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
from automix.core.errors import one_line
from automix.core.files import write_atomically
from automix.runs.classifier import CARD, Card, WithNormalization, load_classifier, save_classifier

SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt", "torch-export": ".pt2", "safetensors": ".safetensors"}
TOLERANCE = 1e-4  # of the largest logit

Run = Callable[[Tensor], Tensor]


def export(model: nn.Module, card: Card, path: Path, format: str) -> float:
    """Write `model` to `path` in `format` (a name in SUFFIXES; a path without a suffix gets the format's).

    Returns the largest absolute difference between the logits of the export and those of the model, on the CPU in
    float32, for one and for three images of random pixels. Above 1e-4 of the largest logit nothing is written.
    """
    path = export_path(path, format)
    if format == "onnx":
        _check_onnx_is_installed()
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder; accepted is an existing one")
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
            raise  # a full disk is not the export's fault
        except Exception as error:  # exporters raise whatever they like, over many lines
            raise ValueError(f"{card.model} cannot be exported as {format} ({_short(error)})") from error
        if not difference <= TOLERANCE * scale:  # NaN is refused too
            raise ValueError(
                f"{format}: logits differ by {difference:.2g} from the model's, which reach {scale:.2g}: "
                f"accepted is {TOLERANCE:g} of that; nothing was written"
            )

    write_atomically(path, write_and_check)
    return difference


def export_path(path: Path, format: str) -> Path:
    """Where `export` writes: `path`, with the format's suffix where it has none."""
    if format not in SUFFIXES:
        raise ValueError(f"format {format!r} is unknown: accepted are {', '.join(SUFFIXES)}")
    return path if path.suffix else path.with_suffix(SUFFIXES[format])


def _compare(run: Run, classifier: nn.Module, card: Card) -> tuple[float, float]:
    """The largest difference, and the largest of the model's logits."""
    difference, scale = 0.0, 0.0
    for count in (1, 3):
        images = _pixels(count, card)
        with torch.inference_mode():
            expected, found = classifier(images), run(images)
        for whose, logits in (("model", expected), ("export", found)):
            if logits.shape != (count, len(card.classes)):
                raise ValueError(
                    f"logits of the {whose} have shape {tuple(logits.shape)} for {count} images: "
                    f"accepted is {(count, len(card.classes))}"
                )
        difference = max(difference, (found - expected).abs().max().item(), key=_nan_is_largest)
        scale = max(scale, expected.abs().max().item())
    return difference, scale


def _nan_is_largest(value: float) -> float:
    return value if value == value else float("inf")


def _pixels(count: int, card: Card) -> Tensor:
    shape = (count, 3, card.image_size, card.image_size)
    return torch.rand(shape, generator=step_generator(0, count, stream="export"))


def _extra(card: Card) -> dict[str, str]:
    return {CARD: card.to_json(), "classes": json.dumps(card.classes, ensure_ascii=False)}


# --- the formats: write the file, return what runs it ----------------------------------------------------------------


def _onnx(classifier: WithNormalization, card: Card, path: Path) -> Run:
    with warnings.catch_warnings():
        # From inside the exporter, about torch's own use of its own classes.
        warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
        program: Any = torch.onnx.export(
            classifier,
            (_pixels(2, card),),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
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
        # What the tracer suspects (another batch size, other pixels) is what _compare looks at.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(classifier, _pixels(2, card), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files=_extra(card))
        return torch.jit.load(str(path))


def _torch_export(classifier: WithNormalization, card: Card, path: Path) -> Run:
    batch = {"images": {0: torch.export.Dim("batch")}}
    program = torch.export.export(classifier, (_pixels(2, card),), dynamic_shapes=batch)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files=_extra(card))
    path.write_bytes(content.getvalue())
    return torch.export.load(str(path)).module()


def _safetensors(classifier: WithNormalization, card: Card, path: Path) -> Run:
    save_classifier(path, classifier.model, card)
    model, loaded = load_classifier(path)
    return WithNormalization(model, loaded)


def _check_onnx_is_installed() -> None:
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            import_module(name)
    except ImportError as error:
        raise ValueError(f"format 'onnx' needs {error.name}: pip install 'automix[export]'") from None


def _short(error: Exception) -> str:
    line = one_line(error)
    return line if len(line) <= 200 else f"{line[:197]}..."
