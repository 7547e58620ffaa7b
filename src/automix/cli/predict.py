"""`automix predict RUN IMAGE...`: the most probable classes of images."""

from pathlib import Path

from automix.cli._flags import Integer, Which
from automix.cli._output import print_error, print_table
from automix.core.errors import AutomixError


def predict(run: Path, /, *images: Path, top: Integer = 3, which: Which = "last") -> None:
    """Classify images, or all images in folders.

    Args:
        run: A run folder, or a classifier's safetensors file.
        images: Images, or folders of images.
        top: Number of classes to show for each image.
        which: The weights of the run's last epoch or of its best.
    """
    from automix.deploy.prediction import predict as classify

    if not images:
        raise AutomixError("IMAGE is missing; automix predict RUN IMAGE...")
    predictions = list(classify(run, list(images), top=top, which=which))
    rows = [(str(p.path), _answers(p.classes, p.probabilities)) for p in predictions if p.error is None]
    print_table(("image", "classes"), rows)
    for bad in (p for p in predictions if p.error is not None):
        print_error(f"{bad.path}: {bad.error}")
    if failed := len(predictions) - len(rows):
        raise AutomixError(f"{failed} of {len(predictions)} images could not be read")


def _answers(classes: tuple[str, ...], probabilities: tuple[float, ...]) -> str:
    return "  ".join(f"{name} {share:.1%}" for name, share in zip(classes, probabilities, strict=True))
