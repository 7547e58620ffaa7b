"""`automix detect train|eval`: Faster R-CNN on a trained classifier, fine-tuned on boxes and measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from automix.cli._flags import Switch, flags_of
from automix.cli._output import print_table
from automix.core.errors import AutomixError
from automix.studies.detection.config import DetectConfig
from automix.studies.detection.recipe import DetectRecipe, find_detect_recipe

if TYPE_CHECKING:
    Flags = dict[str, Any]
else:
    Flags = flags_of(
        DetectConfig, DetectRecipe, find_detect_recipe(DetectConfig.recipe), leave_out=("data", "settings")
    )

detect = App(
    name="detect",
    help="""Fine-tune a detector on a trained classifier, and measure it.

For example:
  automix detect train shapes --backbone runs/x        drawn scenes, on a CPU
  automix detect train voc --backbone runs/imagenet --recipe voc
  automix detect train coco --backbone resnet50 --recipe coco --kind fpn
  automix detect train --resume --out runs/y           continue a stopped run
  automix detect eval runs/y                           mAP, AP50 and AP75 again
""",
)


@detect.command
def train(
    data: str | None = None,
    *,
    resume: Switch = False,
    overwrite: Switch = False,
    flags: Annotated[Flags | None, Parameter(name="*")] = None,
) -> None:
    """Fine-tune a detector on a trained classifier.

    Args:
        data: shapes, voc, coco, or a folder in the layout of the latter two.
        resume: Continue from the checkpoint in the run folder, if there is one.
        overwrite: Start over in the folder of an earlier run.
        flags: All other settings.
    """
    from automix.studies.detection.progress import choose_report
    from automix.studies.detection.train import train_detector

    config = make_config(data, flags or {}, resume=resume)
    train_detector(config, resume=resume, overwrite=overwrite, report=choose_report())


def make_config(data: str | None, flags: dict[str, Any], *, resume: bool = False) -> DetectConfig:
    """Put the settings of a run together: flags override a resumed run's own, which override the recipe.

    Args:
        data: The dataset, if given.
        flags: The other flags that were given, by the name of the setting.
        resume: Whether the run is resumed; with ``out`` and without `data` its own configuration is read.

    Returns:
        The configuration.
    """
    resumed = resume and "out" in flags and data is None
    settings = DetectConfig.load(Path(flags["out"])).flat() if resumed else {"data": data}
    return DetectConfig.from_flat({**settings, **flags})


@detect.command(name="eval")
def evaluate(folder: Path, /, *, data: str | None = None, data_root: str | None = None, device: str = "auto") -> None:
    """Measure mAP, AP50 and AP75 of a fine-tuned detector.

    Args:
        folder: A run of `automix detect train`.
        data: Other data with the same classes; the run's own if not given.
        data_root: The folder of VOCdevkit and coco.
        device: cpu, cuda, cuda:1, mps; auto for the first accelerator there is.
    """
    from automix.studies.detection.detector_file import load_detector
    from automix.studies.detection.evaluate import evaluate_detector
    from automix.studies.detection.open import open_detection_data
    from automix.studies.detection.progress import choose_report
    from automix.studies.detection.train import write_results
    from automix.training.hardware import choose_device

    detector, card = load_detector(folder)
    config = DetectConfig.load(folder)
    data = data or config.data
    test = open_detection_data(data, Path(data_root) if data_root else config.root)[1]
    if test.classes != card.classes:
        raise AutomixError(f"data must have the {len(card.classes)} classes of {folder} "
                           f"({', '.join(card.classes[:3])}, ...); {data} has {len(test.classes)}")  # fmt: skip
    evaluation = evaluate_detector(detector.to(choose_device(device)), test, track=choose_report().track)
    about = {"data": data, "steps": config.settings.steps, "test_images": len(test)}
    write_results(folder, config, evaluation, about)
    print_table(("measure", "%"), [(name, f"{value:.2f}") for name, value in evaluation])
