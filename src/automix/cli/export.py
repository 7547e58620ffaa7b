"""`automix export RUN --format FORMAT`: a trained classifier for use without automix."""

import sys
from pathlib import Path
from typing import Literal

from automix.cli._flags import Which

Format = Literal["onnx", "torchscript", "torch-export", "safetensors", "timm"]


def export(run: Path, /, *, format: Format = "onnx", out: Path | None = None, which: Which = "last") -> None:
    """Export a trained classifier and check the export against it.

    The export takes float32 images (N, 3, S, S) in [0, 1] and gives logits; the
    normalization is inside. The format timm is a folder that timm, transformers
    and the Hugging Face hub read: weights, configuration and a model card. Its
    network takes normalized images, as timm's networks do.

    Args:
        run: A run folder, or a classifier's safetensors file.
        format: What to write.
        out: The file; RUN/classifier with the format's suffix if not given. For timm the folder; RUN/timm.
        which: The weights of the run's last epoch or of its best.
    """
    from automix.deploy.exporting import export as export_classifier
    from automix.deploy.exporting import export_path
    from automix.deploy.timm_folder import export_timm
    from automix.runs.folder import RunFolder, load_classifier

    if format == "timm":
        folder = export_timm(run, out or (run if run.is_dir() else run.parent) / "timm", which)
        sys.stdout.write(f"{folder}: timm gives the model's logits to the bit\n")
        return
    model, card = load_classifier(run, which)
    path = export_path(out or RunFolder(run if run.is_dir() else run.parent).export_stem, format)
    difference = export_classifier(model, card, path, format)
    sys.stdout.write(f"{path}: logits differ from the model's by {difference:.1e} at most\n")
