"""`automix export RUN --format FORMAT`: a trained classifier for use without automix."""

import sys
from pathlib import Path

from automix.cli._arguments import new_parser, parse
from automix.deploy.export import SUFFIXES, export, export_path
from automix.runs.classifier import load_classifier

ABOUT = """Export a trained classifier and check the export against it.

The export takes float32 images (N, 3, S, S) in [0, 1] and gives logits; the normalization is inside.
"""


def run(arguments: list[str]) -> None:
    parser = new_parser("export", "RUN --format FORMAT [flags]", ABOUT)
    parser.add_argument("run", type=str, help="a run folder, or a classifier's safetensors file")
    parser.add_argument("--format", choices=tuple(SUFFIXES), default="onnx", help="what to write")
    parser.add_argument("--out", type=str, default=None, help="the file; RUN/classifier with the format's suffix")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="the run's last epoch or its best")
    given = parse(parser, arguments)
    source = Path(given.run)
    model, card = load_classifier(source, given.which)
    folder = source if source.is_dir() else source.parent
    path = export_path(Path(given.out) if given.out else folder / "classifier", given.format)
    difference = export(model, card, path, given.format)
    sys.stdout.write(f"{path}: logits differ from the model's by {difference:.1e} at most\n")
