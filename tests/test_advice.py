"""Warnings of settings that are likely wrong, and the lines that begin a run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from automix.networks.create import has_small_form
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training.advice import setting_warnings
from automix.training.defaults import complete_settings
from automix.training.display import loss_to_follow
from automix.training.run import Run


def run_with(
    images: int, *, recipe: str = "finetune", method: str = "vanilla", model: str = "resnet18", **changes: Any
) -> Run:
    """What `setting_warnings` looks at in a run."""
    settings = replace(find_recipe(recipe), **changes)
    config = TrainConfig(data="photos", recipe=recipe, method=method, model=model, settings=settings)
    steps = settings.epochs * (images // settings.batch_size)
    task = SimpleNamespace(learns_to_mix=method == "automix")
    data = SimpleNamespace(train_count=images)
    return cast(Run, SimpleNamespace(config=config, data=data, task=task, total_steps=steps))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 64, "lr": 0.04, "images": 100}, ["leaves 36 of 100 images", "--batch-size 16"]),
        ({"lr": 0.5}, ["lr 0.5 is far from the recipe's 0.02"]),
        ({"lr": 0.0001}, ["lr 0.0001 is far", "--lr 0.02"]),
        ({"recipe": "quick", "batch_size": 4}, ["batches of 100", "batches of 4 try --lr 0.02"]),
        ({"recipe": "quick", "batch_size": 50, "pretrained": True}, ["too high for pretrained", "--recipe finetune"]),
        ({"model": "vit_tiny_patch16_224"}, ["transformer", "--optimizer adamw"]),
        ({"method": "cutmix", "epochs": 5}, ["5 epochs", "--method vanilla"]),
        ({"recipe": "quick", "batch_size": 50, "method": "automix", "epochs": 10}, ["100 steps are too few"]),
    ],
)
def test_settings_that_are_likely_wrong_are_named(settings: dict[str, Any], words: list[str]) -> None:
    (warning,) = setting_warnings(run_with(settings.pop("images", 500), **settings))
    for word in words:
        assert word in warning


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 4, "lr": 0.01},  # by the square root
        {"batch_size": 160, "lr": 0.2},  # in proportion
        {"method": "automix"},
        {"method": "regmixup", "epochs": 5},
        {"recipe": "quick", "pretrained": True, "lr": 0.01},
        {"recipe": "quick", "method": "automix"},
    ],
)
def test_sensible_settings_are_not(settings: dict[str, Any]) -> None:
    assert setting_warnings(run_with(5000, **settings)) == []


@pytest.mark.parametrize("name", ["quick", "cifar", "tiny", "pytorch100", "rsb-a2", "fine-grained", "finetune"])
def test_no_recipe_warns_of_itself(name: str) -> None:
    assert setting_warnings(run_with(100_000, recipe=name)) == []


def test_fewer_small_images_than_a_batch_have_smaller_batches(photos: Path) -> None:
    """36 images of 24 px, and the default recipe has batches of 100."""
    chosen = complete_settings({"data": str(photos)})
    assert (chosen["batch_size"], chosen["epochs"]) == (16, 750)
    assert chosen["lr"] == pytest.approx(0.04)  # 0.1 sqrt(16 / 100)
    assert complete_settings({"data": str(photos), "batch_size": 12}) == {"data": str(photos), "batch_size": 12}


@pytest.mark.parametrize(
    ("metrics", "method", "expected"),
    [
        ({"loss": 6.0, "loss_mixed": 2.0, "loss_mixup": 1.5, "loss_generation": 2.5}, "automix", ("mixed loss", 2.0)),
        ({"loss": 0.5, "loss_clean": 0.5}, "automix", ("clean loss", 0.5)),
        ({"loss": 0.5, "loss_mixed": 0.5}, "vanilla", ("loss", 0.5)),
        ({"loss": 3.0, "loss_clean": 1.0, "loss_consistency": 2.0}, "augmix", ("clean loss", 1.0)),
    ],
)
def test_the_loss_that_is_shown_is_the_students(
    metrics: dict[str, float], method: str, expected: tuple[str, float]
) -> None:
    assert loss_to_follow(metrics, method) == expected


@pytest.mark.parametrize(
    ("name", "size", "small"),
    [("resnet18", 64, True), ("resnet18", 96, False), ("wrn_28_8", 32, False), ("efficientnet_b0", 48, True),
     ("vgg11", 32, False)],
)  # fmt: skip
def test_networks_with_a_form_for_small_images(name: str, size: int, small: bool) -> None:
    assert has_small_form(name, size) == small
