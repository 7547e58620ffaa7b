"""Edges of AutoMix: the values of its presets, what cannot be combined, and how a Mix Block starts."""

import dataclasses
import inspect
import math
from typing import Any

import pytest
import torch
from torch import nn

from automix.core.errors import AutomixError
from automix.methods.automix.exact_mean import bias_for_mean, shifts_for_means
from automix.methods.automix.masks import flatten_within, partition
from automix.methods.automix.mix_block import MixBlock, scale_by_lam
from automix.methods.automix.settings import PRESETS, AutoMixSettings
from automix.networks.teacher import follow, make_teacher, momentum_at

TUNED = {
    "alpha": 2.0, "images": 2, "momentum": 0.999, "momentum_hold": 0.0, "momentum_warmup": True,
    "teacher_batch_norm": "eval", "aux_loss": "mixup-ramp", "mix_share": 1.0, "rest": "clean", "mix_until": 0.7,
    "mix_fade": None, "lam_margin": 0.08, "block_margin": 0.08, "distinct_pairs": False, "per_sample": False,
    "objects": None, "objects_rule": "absolute", "objects_weight": 1.0, "block_lr": 0.3, "block_lr_floor": None,
    "block_share": 0.25, "gamma": 0.1, "epsilon": 0.1, "variance_reward": 0.0, "class_vectors": True,
    "normalize": True, "local": True, "smooth": True, "exact_mean": True, "upsampling": "bilinear",
    "lam_embedding": True, "attention": True, "reduction": 2, "init": "torch", "pair_attention": False,
    "hidden_value": False, "lam_curve": None, "mixed_head": False,
}  # fmt: skip
PAPER = {
    "momentum_warmup": False, "aux_loss": "clean", "mix_until": 1.0, "lam_margin": 0.0, "block_margin": 0.0,
    "block_lr": 1.0, "block_share": 1.0, "class_vectors": False, "normalize": False, "local": False, "smooth": False,
    "exact_mean": False, "upsampling": "nearest", "reduction": 1, "init": "reference", "mixed_head": True,
}  # fmt: skip
SAMIX = {"upsampling": "bilinear-logits", "lam_embedding": False, "reduction": 2, "pair_attention": True,
         "hidden_value": True, "lam_curve": 0.25, "variance_reward": 2.0}  # fmt: skip
CHANGED: dict[str, dict[str, Any]] = {
    "tuned": {},
    "fast": {"aux_loss": "joined", "block_share": 0.15},
    "finetune": {"aux_loss": "none", "mix_share": 0.5, "mix_until": 1.0},
    "paper": PAPER,
    "reference": PAPER | {"momentum_hold": 0.1, "teacher_batch_norm": "train", "lam_margin": 0.08, "reduction": 2},
    "samix": PAPER | SAMIX,
}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_values_of_a_preset(preset: str) -> None:
    """A preset is what recorded runs were trained with: another value is another preset."""
    assert dataclasses.asdict(AutoMixSettings.from_preset(preset)) == TUNED | CHANGED[preset]
    assert AutoMixSettings.from_preset() == AutoMixSettings()


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        *((preset, {}) for preset in PRESETS),
        ("tuned", {"images": (2, 3), "mix_share": 0.5, "rest": "mixup-ramp"}),
        ("tuned", {"objects": "teacher", "objects_rule": "relative", "objects_weight": 0.5}),
        ("paper", {"gamma": 0.2, "epsilon": 0.05, "mix_fade": 0.5}),
        ("tuned", {"attention": False}),
    ],
)
def test_recorded_settings_are_read_back(preset: str, options: dict[str, Any]) -> None:
    settings = AutoMixSettings.from_preset(preset, **options)
    assert AutoMixSettings.from_preset("tuned", **settings.to_dict()) == settings


def test_what_is_recorded() -> None:
    """Only what has an effect, and nothing that earlier versions did not know, so that their runs can be resumed."""
    recorded = AutoMixSettings().to_dict()
    later = ["mix_fade", "variance_reward", "pair_attention", "hidden_value", "lam_curve", "momentum_hold"]
    later += ["momentum_warmup", "teacher_batch_norm", "block_lr_floor", "block_margin", "distinct_pairs"]
    idle = ["gamma", "epsilon", "objects", "objects_rule", "objects_weight", "rest", "mixed_head", "images"]
    assert recorded == {name: value for name, value in TUNED.items() if name not in (*later, *idle)}
    paper = AutoMixSettings.from_preset("paper").to_dict()
    assert {"gamma", "epsilon", "mixed_head", "momentum_warmup", "block_margin"} <= paper.keys()
    assert "rest" in AutoMixSettings.from_preset("finetune").to_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "best"}, r"preset must be one of tuned, fast, finetune, paper, reference, samix; got 'best'"),
        ({"alpah": 1.0}, r"unknown option of automix 'alpah'; did you mean 'alpha'\?"),
        ({"mixed_head": True}, r"mixed_head must be False with aux_loss='mixup-ramp'"),
        ({"preset": "fast", "mix_share": 0.5}, r"mix_share must be 1 with aux_loss='joined', got 0.5"),
        ({"rest": "clean"}, r"rest has no effect with mix_share=1"),
        ({"gamma": 0.1}, r"gamma has no effect with exact_mean=True"),
        ({"variance_reward": 1.0}, r"variance_reward has no effect with exact_mean=True"),
        ({"images": ()}, r"images must be a number from 2 to 4, or several; got none"),
        ({"images": 3, "attention": False}, r"images must be 2 with attention=False, got 3"),
        ({"images": 3, "objects": "teacher"}, r"objects must be None with images=3"),
        ({"objects_weight": 0.5}, r"objects_weight has no effect without objects='teacher'"),
        ({"objects": "teacher", "momentum": None}, r"objects must be None with momentum=None"),
        *(({"alpha": 0}, "alpha must be > 0"), ({"images": 1}, "images"), ({"images": 5}, "images")),
        *(({"momentum": 1}, "momentum"), ({"momentum": -0.1}, "momentum"), ({"momentum_hold": 1}, "momentum_hold")),
        *(({"momentum_hold": -0.1}, "momentum_hold"), ({"mix_share": 0}, "mix_share"), ({"mix_share": 2}, "mix_share")),
        *(({"mix_until": 1.1}, "mix_until"), ({"mix_until": -0.1}, "mix_until"), ({"lam_margin": 0.6}, "lam_margin")),
        *(({"lam_margin": -0.1}, "lam_margin"), ({"block_margin": 0.6}, "block_margin"), ({"block_lr": -1}, "block")),
        *(({"block_margin": -0.1}, "block_margin"), ({"block_lr_floor": -1}, "block_lr_floor")),
        *(({"block_share": 0}, "block_share"), ({"block_share": 1.1}, "block_share"), ({"reduction": 0}, "reduction")),
        *(({"lam_curve": -1}, "lam_curve"), ({"preset": "paper", "gamma": -1}, "gamma")),
        *(({"preset": "paper", "epsilon": 1.1}, "epsilon"), ({"preset": "paper", "variance_reward": -1}, "variance")),
    ],
)  # fmt: skip
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AutomixError, match=f"^{message}"):
        AutoMixSettings.from_preset(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0, "mix_until": 0, "lam_margin": 0, "block_margin": 0.5, "block_lr": 0, "block_lr_floor": 0},
        {"images": [2, 4], "mix_share": 1, "mix_until": 1, "lam_margin": 0.5, "block_share": 1, "reduction": 1},
        {"preset": "paper", "gamma": 0, "epsilon": 0, "variance_reward": 0, "lam_curve": 0},
        {"preset": "paper", "epsilon": 1, "momentum_hold": 0, "aux_loss": "mixup"},
    ],
)
def test_values_at_the_ends_are_accepted(options: dict[str, Any]) -> None:
    settings = AutoMixSettings.from_preset(**options)
    assert settings.mixed_head is (settings.aux_loss == "clean")
    assert settings.images in (2, (2, 4))


# --- the Mix Block ----------------------------------------------------------------------------------------------------


def test_defaults_of_the_block_are_those_of_the_preset_tuned() -> None:
    defaults = {name: p.default for name, p in inspect.signature(MixBlock.__init__).parameters.items()}
    assert defaults.pop("num_classes") is None
    assert {name: defaults[name] for name in list(defaults)[2:]} == {name: TUNED[name] for name in list(defaults)[2:]}


def test_how_the_weights_start() -> None:
    block = MixBlock(256, 400, reduction=1)
    assert block.w_p.weight.std().item() == pytest.approx(257**-0.5, rel=0.02)
    assert block.w_l.weight.std().item() == pytest.approx(0.1 * 256**-0.5, rel=0.15)
    assert block.w_l.bias is None
    assert block.w_c.shape == (400, 256)
    assert block.w_c.std().item() == pytest.approx(0.1 * 256**-0.5, rel=0.02)
    reference = MixBlock(256, reduction=1, normalize=False, init="reference")
    assert reference.w_p.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert isinstance(reference.w_z, nn.Conv2d)
    assert reference.w_z.bias is not None
    assert reference.w_p.bias is not None
    assert not reference.w_z.bias.any()
    assert not reference.w_p.bias.any()
    plain = MixBlock(256, reduction=1, normalize=False)
    assert plain.w_p.weight.std().item() == pytest.approx((3 * 257) ** -0.5, rel=0.02)  # torch's own
    assert not hasattr(MixBlock(4, local=False), "w_l")
    assert not hasattr(MixBlock(4), "w_c")
    assert not list(MixBlock(4, attention=False).parameters())


def test_the_sizes_of_a_block() -> None:
    assert MixBlock(7, reduction=2).w_p.weight.shape == (3, 8, 1, 1)
    assert MixBlock(7, reduction=7, lam_embedding=False).w_p.weight.shape == (1, 7, 1, 1)
    pair = MixBlock(6, pair_attention=True, hidden_value=True)
    assert pair.w_q.weight.shape == pair.w_k.weight.shape == (3, 14, 1, 1)
    assert not torch.equal(pair.w_q.weight, pair.w_k.weight)
    assert isinstance(pair.w_z, nn.Sequential)
    assert [type(layer) for layer in pair.w_z] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Conv2d]
    assert pair.value_weight is pair.w_z[-1].weight
    for reduction in (0, 8):
        with pytest.raises(AutomixError, match=rf"^reduction must be in \[1, 7\], .*; got {reduction}"):
            MixBlock(7, reduction=reduction)
    with pytest.raises(AutomixError, match=r"^num_classes must be an integer >= 1, got 0"):
        MixBlock(4, 0)
    with pytest.raises(AutomixError, match=r"^lam_curve must be >= 0, got -1"):
        MixBlock(4, lam_curve=-1)
    with pytest.raises(AutomixError, match=r"^upsampling must be bilinear or nearest with exact_mean=True"):
        MixBlock(4, upsampling="bilinear-logits")
    MixBlock(4, upsampling="bilinear-logits", exact_mean=False)
    MixBlock(4, exact_mean=False)


def test_masks_at_the_margin_are_flat() -> None:
    mask = torch.rand(4, 1, 2, 2)
    lam = torch.tensor([0.125, 0.875, 0.25, 0.75])
    flat = flatten_within(0.125, mask, lam)
    assert flat[0].unique().tolist() == [0.125]
    assert flat[1].unique().tolist() == [0.875]
    assert torch.equal(flat[2:], mask[2:])
    assert torch.equal(flatten_within(0.0, mask, torch.tensor(0.5)), mask)


@pytest.mark.parametrize("k", [0.0, 0.25, 1.0])
def test_the_curve_of_lam_by_hand(k: float) -> None:
    z = torch.ones(5, 1, 1, 1, dtype=torch.float64)
    lam = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    quarter = (4 / 3 / 64 - 2 / 16 + (k + 1) / 4) / (k + 1 / 3)
    g = torch.tensor([0.0, quarter, 0.5, 1 - quarter, 1.0], dtype=torch.float64)
    z_i, z_j = scale_by_lam(z, 2 * z, lam, k)
    torch.testing.assert_close(z_i.flatten(), 1 + g)
    torch.testing.assert_close(z_j.flatten(), 2 * (2 - g))


@pytest.mark.parametrize(("mean", "reached"), [(0.0, 0.01), (0.3, 0.3), (1.0, 0.99)])
def test_means_are_reached_or_nearly(mean: float, reached: float) -> None:
    logit = torch.randn(3, 20, dtype=torch.float64) * 4
    b = bias_for_mean(logit, torch.tensor(mean))
    assert b.shape == (3, 1)
    torch.testing.assert_close(torch.sigmoid(logit + b).mean(dim=1), torch.full((3,), reached, dtype=torch.float64))


def test_masks_of_many_images() -> None:
    logit, weights = torch.randn(2, 3, 4, 4, dtype=torch.float64), torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    b = shifts_for_means(logit.flatten(2), weights)
    assert b[:, 0].tolist() == [0, 0]
    means = (logit + b[..., None, None]).softmax(dim=1).mean(dim=(2, 3))
    expected = torch.tensor([[0.2, 0.3, 0.5], [0.98, 0.01, 0.01]], dtype=torch.float64)
    torch.testing.assert_close(means, expected, rtol=1e-5, atol=1e-6)
    for upsampling in ("nearest", "bilinear", "bilinear-logits"):
        masks = partition(logit, weights, (8, 12), upsampling, exact_mean=False)
        assert masks.shape == (2, 3, 8, 12)
        torch.testing.assert_close(masks.sum(dim=1), torch.ones(2, 8, 12, dtype=torch.float64))
    small = partition(logit, weights, (4, 4), "nearest", exact_mean=False)
    torch.testing.assert_close(small, logit.softmax(dim=1))
    logits_first = partition(logit, weights, (8, 8), "bilinear-logits", exact_mean=False)
    enlarged = nn.functional.interpolate(logit, size=(8, 8), mode="bilinear", align_corners=False)
    torch.testing.assert_close(logits_first, enlarged.softmax(dim=1))


# --- the teacher ------------------------------------------------------------------------------------------------------


def test_defaults_of_the_momentum() -> None:
    late = 10**9
    assert momentum_at(late, 0.0) == pytest.approx(0.999)
    assert momentum_at(0, 0.0) == pytest.approx(0.1)
    assert momentum_at(late, 0.2, 0.5) == pytest.approx(1 - 0.5 * (1 + math.cos(0.2 * math.pi)) / 2)
    assert momentum_at(late, 0.2, 0.5, hold=0.4) == pytest.approx(0.5)
    assert momentum_at(3, 0.0, 0.9) == pytest.approx(4 / 13)


def test_a_teacher_with_statistics_of_its_own() -> None:
    linear = nn.Linear(3, 2)
    student = nn.Sequential(linear, nn.BatchNorm1d(2))
    teacher = make_teacher(student)
    assert not teacher.training
    student(torch.randn(8, 3) + 3)
    with torch.no_grad():
        linear.weight += 1
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    follow(teacher, student, 0.75, buffers=False)
    after = teacher.state_dict()
    torch.testing.assert_close(after["0.weight"], before["0.weight"] + 0.25)
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("1.running"))
    assert after["1.num_batches_tracked"] == 0
    follow(teacher, student, 0.75)
    assert after["1.num_batches_tracked"] == 1
    expected = 0.75 * before["1.running_mean"] + 0.25 * student.state_dict()["1.running_mean"]
    torch.testing.assert_close(after["1.running_mean"], expected)
