"""`automix detect train|eval`: Faster R-CNN on a trained classifier, fine-tuned on boxes and measured."""

import argparse
from pathlib import Path

from automix.cli._arguments import add_fields, new_parser, parse
from automix.cli._tables import print_table
from automix.studies.detection.config import DetectConfig
from automix.studies.detection.recipe import DetectRecipe, find_detect_recipe

ABOUT = """Fine-tune a detector on a trained classifier.

  automix detect train shapes --backbone runs/shapes-automix-resnet18-0    drawn scenes, on a CPU
  automix detect train voc --backbone runs/imagenet --recipe voc           the paper's R50-C4 on VOC 07+12
  automix detect train coco --backbone resnet50 --recipe coco --kind fpn   timm's pretrained weights, a pyramid
  automix detect train --resume --out runs/x                               go on where a run stopped
  automix detect eval runs/x                                               mAP, AP50 and AP75 again
"""


def run(arguments: list[str]) -> None:
    actions = {"train": _train, "eval": _evaluate}
    if not arguments or arguments[0] not in actions:
        if arguments and arguments[0] in ("-h", "--help"):
            arguments = ["train", "--help"]
        else:
            given = repr(arguments[0]) if arguments else "nothing"
            raise ValueError(f"automix detect with {given}: accepted are train DATA ... and eval FOLDER")
    actions[arguments[0]](arguments[1:])


def _train(arguments: list[str]) -> None:
    from automix.studies.detection.progress import choose_report
    from automix.studies.detection.train import train_detector

    config, resume, overwrite = read_arguments(arguments)
    train_detector(config, resume=resume, overwrite=overwrite, report=choose_report())


def read_arguments(arguments: list[str]) -> tuple[DetectConfig, bool, bool]:
    """The configuration, and whether to resume or to overwrite. Flags hold before a resumed run's file and the recipe.

    `--resume --out DIR` and no data means that folder's own configuration.
    """
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--data", *arguments]
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--recipe", "--out", "--data"):
        first.add_argument(flag)
    first.add_argument("--resume", action="store_true")
    try:
        early = first.parse_known_args(arguments)[0]
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    resumed = early.resume and early.out and not early.data
    start = DetectConfig.load(Path(early.out)) if resumed else None
    recipe = early.recipe or (start.recipe if start else DetectConfig.recipe)

    parser = new_parser("detect train", "DATA --backbone RUN [flags]", ABOUT)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the run folder, if any")
    parser.add_argument("--overwrite", action="store_true", help="begin anew in the folder of an earlier run")
    add_fields(parser.add_argument_group("what to train"), DetectConfig, start or DetectConfig, leave_out=("settings",))
    settings = start.settings if start else find_detect_recipe(recipe)
    add_fields(parser.add_argument_group(f"how to train (recipe {recipe})"), DetectRecipe, settings)
    values = parse(parser, arguments).as_dict()
    resume, overwrite = values.pop("resume"), values.pop("overwrite")
    return DetectConfig.from_flat(values), resume, overwrite


def _evaluate(arguments: list[str]) -> None:
    from automix.studies.detection.detector_file import load_detector
    from automix.studies.detection.evaluate import evaluate_detector
    from automix.studies.detection.open import open_detection_data
    from automix.studies.detection.progress import choose_report
    from automix.studies.detection.train import write_results
    from automix.training.hardware import choose_device

    parser = new_parser("detect eval", "FOLDER [flags]", "mAP, AP50 and AP75 of a fine-tuned detector.")
    parser.add_argument("folder", type=str, help="a run of `automix detect train`")
    parser.add_argument(
        "--data", type=str, default=None, help="other data with the same classes; the run's if not given"
    )
    parser.add_argument("--data-root", type=str, default=None, help="where VOCdevkit and coco lie")
    parser.add_argument(
        "--device", type=str, default="auto", help="cpu, cuda, cuda:1, mps; auto: an accelerator if any"
    )
    given = parse(parser, arguments)
    folder = Path(given.folder)
    detector, card = load_detector(folder)
    config = DetectConfig.load(folder)
    data = given.data or config.data
    test = open_detection_data(data, Path(given.data_root) if given.data_root else config.root)[1]
    if test.classes != card.classes:
        raise ValueError(f"{folder} knows {len(card.classes)} classes ({', '.join(card.classes[:3])}, ...), {data} has "
                         f"{len(test.classes)}: accepted is data with the classes it was trained on")  # fmt: skip
    evaluation = evaluate_detector(detector.to(choose_device(given.device)), test, track=choose_report().track)
    about = {"data": data, "steps": config.settings.steps, "test_images": len(test)}
    write_results(folder, config, evaluation, about)
    print_table(("measure", "%"), [(name, f"{value:.2f}") for name, value in evaluation])
