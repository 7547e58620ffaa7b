"""Mix Blocks that come with the package, and the form of a block without its class vectors."""

from pathlib import Path

import pytest
import torch
from conftest import HandWritten, batch
from torch import nn

from automix import AutoMix, MixBlock, TrainConfig, create_model
from automix.methods.automix.block_file import BlockCard, load_mix_block, read_card, save_mix_block, without_classes
from automix.methods.automix.zoo import FOLDER, list_zoo
from automix.runs import find_recipe
from automix.training.build import build_task
from automix.training.prepare import check_environment

NAME = "tf_efficientnet_lite0-birds"
BLOCK = f"zoo:{NAME}"
CARD = BlockCard("resnet18", "ImageNet", 3, "shapes", 32, (0.5,) * 3, (0.2,) * 3, 10, 0.3, 12.5, 5.0, 6.0)


def lite0(num_classes: int = 3) -> nn.Module:
    return create_model("tf_efficientnet_lite0", num_classes=num_classes, image_size=32)


def test_without_classes_keeps_what_all_class_vectors_share() -> None:
    block = MixBlock(4, num_classes=3)
    common = torch.randn(4)
    with torch.no_grad():
        block.w_c.copy_(common + torch.tensor([1.0, 0.0, -1.0])[:, None])  # the mean over the classes is `common`
    alike = MixBlock(4, num_classes=3)
    alike.load_state_dict(block.state_dict() | {"w_c": common.expand(3, 4)})
    z_i, z_j = torch.randn(2, 5, 4, 3, 3)
    lam, labels = torch.tensor(0.3), (torch.tensor([0, 1, 2, 0, 1]), torch.tensor([2, 2, 1, 0, 0]))
    state = torch.get_rng_state()
    free = without_classes(block)
    assert torch.equal(torch.get_rng_state(), state)
    assert free.num_classes is None
    torch.testing.assert_close(free(z_i, z_j, lam, (6, 6)), alike(z_i, z_j, lam, (6, 6), labels=labels))
    assert not torch.allclose(free(z_i, z_j, lam, (6, 6)), block(z_i, z_j, lam, (6, 6), labels=labels), atol=1e-3)
    with pytest.raises(ValueError, match="local=False"):
        without_classes(MixBlock(4, num_classes=3, local=False))


def test_a_block_for_other_classes_fits_without_its_class_vectors(tmp_path: Path) -> None:
    block = AutoMix(HandWritten(num_classes=5), layer="body").mix_block
    save_mix_block(tmp_path / "block.safetensors", block)
    for given in (block, tmp_path / "block.safetensors"):
        with pytest.raises(ValueError, match=r"7 classes.*class_vectors=False"):
            AutoMix(HandWritten(num_classes=7), layer="body", mix_block=given)
        task = AutoMix(HandWritten(num_classes=7), layer="body", mix_block=given, class_vectors=False)
        assert task.mix_block.num_classes is None
        assert torch.equal(task.mix_block.value_weight, block.value_weight)
    with pytest.raises(ValueError, match="class_vectors must not be given"):
        AutoMix(HandWritten(), layer="body", mix_block=block, class_vectors=True)


def test_a_card_goes_through_the_file(tmp_path: Path) -> None:
    save_mix_block(tmp_path / "with.safetensors", MixBlock(4), CARD)
    save_mix_block(tmp_path / "without.safetensors", MixBlock(4))
    assert read_card(tmp_path / "with.safetensors") == CARD
    assert read_card(tmp_path / "without.safetensors") is None


def test_blocks_of_the_zoo_are_small_know_no_classes_and_fit_their_layer() -> None:
    assert NAME in list_zoo()
    for name, card in list_zoo().items():
        file = FOLDER / f"{name}.safetensors"
        assert file.stat().st_size < 500_000
        block = load_mix_block(file)
        assert block.num_classes is None
        with torch.device("meta"):
            model = create_model(card.backbone, num_classes=2, image_size=card.image_size)
        assert model.feature_info[card.layer]["num_chs"] == block.channels  # type: ignore[index]  # 0 is the stem


def test_a_frozen_block_of_the_zoo_makes_masks_and_is_not_trained() -> None:
    task = AutoMix(lite0(), preset="finetune", mix_block=BLOCK, block_lr=0.0)
    shipped = load_mix_block(FOLDER / f"{NAME}.safetensors").state_dict()
    x, y = batch(4, 32, 32, num_classes=3)
    out = task(x, y)
    out.loss.backward()
    assert "loss_generation" not in out.metrics
    assert all(parameter.grad is None for parameter in task.mix_block.parameters())
    assert {name: tensor.tolist() for name, tensor in task.mix_block.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in shipped.items()
    }
    assert "loss_generation" in AutoMix(lite0(), preset="finetune", mix_block=BLOCK)(x, y).metrics


def test_what_the_zoo_has_not_or_does_not_fit_is_refused_in_one_line() -> None:
    narrow = create_model("resnet18", num_classes=3, image_size=32, channels=(8, 8, 8, 8))
    for model, layer, name, words in (
        (lite0(), 3, "zoo:lite0", ("lite0", NAME)),
        (narrow, 3, BLOCK, ("layer 3 of tf_efficientnet_lite0", "layer 3 of resnet18", NAME)),
        (lite0(), 2, BLOCK, ("layer 2 of tf_efficientnet_lite0",)),
        (HandWritten(), "body", BLOCK, ("layer body of HandWritten",)),
    ):
        with pytest.raises(ValueError, match="Available") as error:
            AutoMix(model, layer=layer, mix_block=name)
        assert "\n" not in str(error.value)
        assert all(word in str(error.value) for word in words)


def test_a_run_with_a_block_of_the_zoo_needs_its_network_with_weights(tmp_path: Path) -> None:
    def config(model: str = "tf_efficientnet_lite0", **values: object) -> TrainConfig:
        return TrainConfig(data="shapes", model=model, method_options={"mix_block": BLOCK}, **values)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="--pretrained"):
        check_environment(config())
    with pytest.raises(ValueError, match="layer 3 of resnet18"):
        check_environment(config("resnet18"))
    with pytest.raises(ValueError, match="layer 2 of tf_efficientnet_lite0"):
        check_environment(config(layer=2))
    with pytest.raises(ValueError, match=r"no such file.*" + NAME):
        check_environment(TrainConfig(data="shapes", method_options={"mix_block": "zo:x"}))
    resumed = config(out=str(tmp_path), settings=find_recipe("quick"))
    kept = MixBlock(112)
    save_mix_block(tmp_path / "mix_block.safetensors", kept)  # the zoo's may be another one by then
    task = build_task(resumed, lite0(), resumed=True)
    assert isinstance(task, AutoMix)
    assert torch.equal(task.mix_block.value_weight, kept.value_weight)
