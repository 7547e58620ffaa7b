"""SAMix's block and mask loss (preset "samix"), against a slow version and by hand."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch
from torch import Tensor, nn

from automix import AutoMix, AutoMixSettings, MixBlock
from automix.core.tensor_files import read_tensors, write_tensors
from automix.methods.automix.block_file import load_mix_block, save_mix_block
from automix.methods.automix.mask_loss import lambda_loss
from automix.methods.automix.mix_block import scale_by_lam
from automix.methods.automix.mixing import mix_images
from automix.methods.automix.pairs import Pairs


def samix_block(channels: int = 6) -> MixBlock:
    options = AutoMixSettings.from_preset("samix").block_options()
    return MixBlock(channels, **{**options, "init": "torch"}).double()


def curve(lam: float, k: float) -> float:
    return (4 / 3 * lam**3 - 2 * lam**2 + (k + 1) * lam) / (k + 1 / 3)


@pytest.mark.parametrize("k", [0.0, 0.25, 1.0, 1e6])
def test_the_curve_of_lam_by_hand(k: float) -> None:
    ones = torch.ones(5, 1, 1, 1, dtype=torch.float64)
    lam = torch.tensor([0.0, 0.1, 0.5, 0.8, 1.0], dtype=torch.float64)
    first, second = scale_by_lam(ones, ones, lam, k)
    expected = torch.tensor([curve(value, k) for value in lam.tolist()], dtype=torch.float64)
    torch.testing.assert_close(first.flatten(), 1 + expected)
    torch.testing.assert_close(second.flatten(), 2 - expected)
    assert expected[[0, 2, 4]].tolist() == pytest.approx([0.0, 0.5, 1.0])
    if k == 0.25:
        assert curve(0.8, 0.25) == pytest.approx((0.682666667 - 1.28 + 1.0) / 0.583333333)
    if k > 1:
        assert expected.tolist() == pytest.approx(lam.tolist(), abs=1e-5)


def slow_mask(block: MixBlock, z_i: Tensor, z_j: Tensor, lam: float, size: tuple[int, int]) -> Tensor:
    """One pair, position by position; BatchNorm in eval mode."""
    g = curve(lam, 0.25)
    z_i, z_j = z_i * (1 + g), z_j * (2 - g)
    assert isinstance(block.w_z, nn.Sequential)
    first, norm, _, last = block.w_z
    assert isinstance(norm, nn.BatchNorm2d)
    mean, var = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    height, width = z_i.shape[-2:]
    places = [(row, column) for row in range(height) for column in range(width)]

    def convolve(convolution: nn.Module, vector: Tensor) -> Tensor:
        assert isinstance(convolution, nn.Conv2d)
        assert convolution.bias is not None
        return convolution.weight.flatten(1) @ vector + convolution.bias

    def value(place: tuple[int, int]) -> Tensor:
        hidden = convolve(first, z_j[:, place[0], place[1]])
        hidden = (hidden - mean) / (var + norm.eps).sqrt() * norm.weight + norm.bias
        return convolve(last, hidden.clamp(min=0))

    pairs = {(row, column): torch.cat([z_i[:, row, column], z_j[:, row, column]]) for row, column in places}
    logit = torch.zeros(1, 1, height, width, dtype=z_i.dtype)
    for here in places:
        query = convolve(block.w_q, pairs[here])
        scores = torch.stack([query @ convolve(block.w_k, pairs[there]) for there in places]) / math.sqrt(len(query))
        weights = scores.exp() / scores.exp().sum()
        logit[0, 0, here[0], here[1]] = sum(w * value(there) for w, there in zip(weights, places, strict=True))
    return 1 - torch.sigmoid(F.interpolate(logit, size=size, mode="bilinear", align_corners=False))


def test_the_block_against_a_slow_version() -> None:
    block = samix_block()
    z_i, z_j = torch.randn(3, 6, 2, 3, dtype=torch.float64), torch.randn(3, 6, 2, 3, dtype=torch.float64)
    lam = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    block(z_i, z_j, lam, (4, 6))  # moves the statistics of its BatchNorm
    block.eval()
    masks = block(z_i, z_j, lam, (4, 6))
    assert masks.shape == (3, 1, 4, 6)
    with torch.no_grad():
        for number in range(3):
            expected = slow_mask(block, z_i[number], z_j[number], lam[number].item(), (4, 6))
            torch.testing.assert_close(masks[number : number + 1], expected)


def test_the_shapes_are_those_of_the_paper() -> None:
    block = MixBlock(8, **AutoMixSettings.from_preset("samix").block_options())
    shapes = {name: tuple(parameter.shape) for name, parameter in block.named_parameters()}
    assert shapes["w_q.weight"] == shapes["w_k.weight"] == (4, 16, 1, 1)  # 2C -> C/2, without a channel for lam
    assert shapes["w_z.0.weight"] == (4, 8, 1, 1)
    assert shapes["w_z.3.weight"] == (1, 4, 1, 1)
    assert "w_p.weight" not in shapes
    assert torch.equal(block.w_z[1].weight, torch.ones(4))  # type: ignore[index]  # BatchNorm keeps its own start
    assert 0.005 < block.w_q.weight.std().item() < 0.02


def test_the_mask_loss_by_hand() -> None:
    x, y = batch()
    task = AutoMix(HandWritten(), layer="body", preset="samix")
    task.update(0.25)
    mixed = task.mix(x, y, lam=0.9)
    masks = mixed.mask.detach().flatten(1)
    gap = ((0.9 - masks.mean(dim=1)).abs() - 0.1).clamp(min=0).mean()
    variance = ((masks - masks.mean(dim=1, keepdim=True)) ** 2).mean()
    expected = 0.1 * 0.75 * (gap - 2 * variance)
    torch.testing.assert_close(lambda_loss(mixed, task.settings, task.progress).detach(), expected)
    assert gap > 0


def test_the_reward_raises_the_variance() -> None:
    """One step down the mask loss alone, with a tolerance that the means of the masks are within."""
    task = AutoMix(HandWritten(), layer="body", preset="samix", init="torch", epsilon=1.0).double()
    task.mix_block.eval()
    x, y = batch()
    z = 3 * torch.randn(6, 12, 4, 4, dtype=torch.float64)  # maps of an untrained network hardly vary
    pairs = Pairs(torch.tensor(0.5), torch.arange(6).roll(1))

    def variance() -> tuple[Tensor, Tensor]:
        mixed = mix_images(task.mix_block, x.double(), y, z, pairs, margin=0.0)
        spread = mixed.mask.detach().var(dim=(1, 2, 3), correction=0).mean()
        return spread, lambda_loss(mixed, task.settings, task.progress)

    before, loss = variance()
    torch.testing.assert_close(loss.detach(), -0.1 * 2 * before)
    loss.backward()
    with torch.no_grad():
        for parameter in task.mix_block.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)
    assert variance()[0] > before


def test_looking_leaves_the_statistics_of_the_block() -> None:
    x, y = batch()
    task = AutoMix(HandWritten(), layer="body", preset="samix")
    before = {name: value.clone() for name, value in task.state_dict().items()}
    task.mix(x, y)
    task.mix(x)
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())
    assert task.mix_block.training
    task(x, y)
    assert not torch.equal(task.mix_block.w_z[1].running_mean, before["mix_block.w_z.1.running_mean"])  # type: ignore[index]


def test_a_block_file_and_one_from_before(tmp_path: Path) -> None:
    block = samix_block().float().eval()
    save_mix_block(tmp_path / "block.safetensors", block)
    loaded = load_mix_block(tmp_path / "block.safetensors").eval()
    z = torch.randn(2, 6, 4, 4)
    torch.testing.assert_close(*(one(z, z.roll(1, 0), torch.tensor(0.4), (8, 8)) for one in (block, loaded)))
    save_mix_block(tmp_path / "now.safetensors", MixBlock(6))
    weights, metadata = read_tensors(tmp_path / "now.safetensors")
    options = json.loads(metadata["mix_block"])
    for name in ("pair_attention", "hidden_value", "lam_curve"):
        del options[name]
    write_tensors(tmp_path / "before.safetensors", weights, {"mix_block": json.dumps(options)})
    assert load_mix_block(tmp_path / "before.safetensors").lam_curve is None


def test_settings() -> None:
    samix, paper = AutoMixSettings.from_preset("samix"), AutoMixSettings.from_preset("paper")
    changed = {name for name, value in samix.to_dict().items() if paper.to_dict().get(name) != value}
    parts = {"pair_attention", "hidden_value", "lam_curve", "variance_reward"}
    assert changed - {"reduction"} == {*parts, "upsampling", "lam_embedding"}
    assert not parts & set(paper.to_dict())  # so that earlier runs can be resumed
    assert AutoMixSettings.from_preset("tuned", **samix.to_dict()) == samix
    with pytest.raises(ValueError, match=r"^variance_reward has no effect with exact_mean=True"):
        AutoMixSettings.from_preset("tuned", variance_reward=1.0)
    with pytest.raises(ValueError, match=r"^upsampling must be bilinear or nearest with exact_mean=True"):
        AutoMix(HandWritten(), layer="body", upsampling="bilinear-logits")
    with pytest.raises(ValueError, match="lam_curve"):
        AutoMix(HandWritten(), layer="body", preset="samix", lam_curve=-1.0)
    tuned = AutoMix(HandWritten(), layer="body", pair_attention=True, hidden_value=True, lam_curve=1.0)
    mixed = tuned.mix(*batch(), lam=0.4)
    torch.testing.assert_close(mixed.mask.mean(dim=(1, 2, 3)), torch.full((6,), 0.4), atol=2e-2, rtol=0)
