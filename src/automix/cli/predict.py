"""`automix predict RUN IMAGE...`: the most probable classes of images."""

from automix.cli._arguments import new_parser, parse
from automix.cli._errors import complain
from automix.cli._tables import print_table
from automix.deploy.predict import predict


def run(arguments: list[str]) -> None:
    parser = new_parser("predict", "RUN IMAGE... [flags]", "Classify images, or all images in folders.")
    parser.add_argument("run", type=str, help="a run folder, or a classifier's safetensors file")
    parser.add_argument("images", type=str, nargs="+", metavar="IMAGE", help="images or folders of images")
    parser.add_argument("--top", type=int, default=3, help="so many classes for each image")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="the run's last epoch or its best")
    given = parse(parser, arguments)
    predictions = list(predict(given.run, given.images, top=given.top, which=given.which))
    rows = [(str(p.path), _answers(p.classes, p.probabilities)) for p in predictions if p.error is None]
    print_table(("image", "classes"), rows)
    for bad in (p for p in predictions if p.error is not None):
        complain(f"{bad.path}: {bad.error}")
    if not rows:
        raise ValueError("none of the images could be read")


def _answers(classes: tuple[str, ...], probabilities: tuple[float, ...]) -> str:
    return "  ".join(f"{name} {share:.1%}" for name, share in zip(classes, probabilities, strict=True))
