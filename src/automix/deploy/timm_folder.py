"""A folder that timm and the Hugging Face hub understand: config.json, model.safetensors, README.md and a picture.

timm.create_model("local-dir:FOLDER", pretrained=True)                          # timm
AutoModelForImageClassification.from_pretrained("FOLDER")                       # transformers
model, card = automix.load_classifier("FOLDER")                                 # automix
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from automix.core.draws import step_generator
from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.deploy.model_card import model_card
from automix.networks.create import timm_options
from automix.runs.classifier import Card, save_classifier
from automix.runs.folder import EXPORTED, RunFolder, Which, load_classifier

PICTURE = "samples.png"


def export_timm(run: Path, out: Path, which: Which = "last") -> Path:
    """Write a classifier as a folder of timm's, and check that timm gives the same logits to the bit.

    Args:
        run: A run folder, or a classifier's safetensors file.
        out: The folder to write; files of an earlier export in it are replaced.
        which: In a run folder, the weights of the last epoch or of the best one on the test set.

    Returns:
        The folder.

    Raises:
        AutomixError: timm cannot build the network; nothing is written.
    """
    model, card = load_classifier(run, which)
    if out.exists() and not out.is_dir():
        raise AutomixError(f"{out}: is a file; give --out a folder")
    if RunFolder(out).is_run:
        raise AutomixError(f"{out}: holds a run; give --out another folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_text(folder / "config.json", json.dumps(timm_config(model, card), indent=2, ensure_ascii=False) + "\n")
        save_classifier(folder / EXPORTED, model, card)
        _check(folder, model, card)
        picture = _picture(RunFolder(run)) if run.is_dir() else None
        if picture is not None:
            shutil.copyfile(picture, folder / PICTURE)
        write_text(folder / "README.md", model_card(card, run if run.is_dir() else None, PICTURE if picture else None))
        out.mkdir(parents=True, exist_ok=True)
        for file in sorted(folder.iterdir()):
            shutil.copyfile(file, out / file.name)
    return out


def timm_config(model: nn.Module, card: Card) -> dict[str, Any]:
    """Describe a classifier as timm's config.json does.

    Args:
        model: The network.
        card: Its classes, image size and normalization.

    Returns:
        Values that JSON has, by name.
    """
    import timm

    architecture = card.model.partition(".")[0]
    if not timm.is_model(architecture):
        raise AutomixError(f"{card.model} must be a network of timm's for this format; use --format safetensors")
    described = {
        "input_size": [3, card.image_size, card.image_size],
        "interpolation": "bicubic",
        "crop_pct": card.crop,
        "crop_mode": "center",
        "mean": list(card.mean),
        "std": list(card.std),
        "num_classes": len(card.classes),
    }
    known = getattr(model, "pretrained_cfg", {})
    described |= {name: known[name] for name in ("pool_size", "first_conv", "classifier") if known.get(name)}
    options = timm_options(card.model, (card.train_size, card.train_size), dict(card.model_options))
    return {
        "architecture": architecture,
        "num_classes": len(card.classes),
        "num_features": getattr(model, "num_features", None),
        "label_names": list(card.classes),
        **({"model_args": options} if options else {}),
        "pretrained_cfg": described,
        "automix": {"train_size": card.train_size, **card.facts},
    }


def _check(folder: Path, model: nn.Module, card: Card) -> None:
    """Let timm open the folder, and compare logits."""
    import timm

    shape = (2, 3, card.image_size, card.image_size)
    images = torch.randn(shape, generator=step_generator(0, 0, stream="export"))
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            opened = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
            same = torch.equal(opened(images), model(images))
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        raise AutomixError(
            f"timm cannot build {card.model} for images of {card.train_size} px as automix does "
            f"({one_line(error)[:120]}); use --format safetensors"
        ) from None
    if not same:
        raise AutomixError(
            f"timm builds another {card.model} for images of {card.train_size} px (automix adapts networks to small "
            "images); use --format safetensors"
        )


def _picture(run: RunFolder) -> Path | None:
    """The picture of mixed samples after the last epoch, if there is one."""
    return next(reversed(run.epoch_pictures().values()), None)
