"""One menu over all methods that are functions: what every mix must keep, whichever it is."""

import inspect
import itertools
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.stats
import timm.data
import torch
import torchvision.transforms.v2
from conftest import batch
from method_data import traits
from torch import Tensor

import automix
from automix import Mixed
from automix.core.draws import draw_other_class, step_generator
from automix.core.transform import MixTransform
from automix.methods import find_method

COPYING = ("attentivemix", "cutmix", "fmix", "gridmix", "saliencymix", "transmix", "vanilla")  # pixels as they are
FUNCTIONS: dict[str, Callable[..., Mixed]] = {
    name: getattr(import_module(f"automix.methods.{name}"), name)
    for name in automix.methods()
    if name not in ("adautomix", "automix")  # tasks alone
}
MIXING = [name for name in FUNCTIONS if traits(name).mixes]
TAKING_OBJECTS = [name for name in FUNCTIONS if "objects" in inspect.signature(FUNCTIONS[name]).parameters]
every_method = pytest.mark.parametrize("name", FUNCTIONS)
every_mixing = pytest.mark.parametrize("name", MIXING)


def run(name: str, x: Tensor, y: Tensor, step: int = 0, **options: Any) -> Mixed:
    return FUNCTIONS[name](x, y, generator=step_generator(0, step), **{**traits(name).further(x), **options})


def check_law(name: str, mixed: Mixed, x: Tensor, index: Tensor) -> None:
    """Pixels are the blend by the mask, the label's lam is the mask's mean, soft labels sum to 1."""
    mask = mixed.mask
    assert mask.shape in ((len(x), 1, *x.shape[-2:]), x.shape)  # PatchUp's has a channel for each of x
    assert bool(((mask >= 0) & (mask <= 1)).all())
    if traits(name).blends:
        torch.testing.assert_close(mixed.x, mask * x + (1 - mask) * x[index])
    if traits(name).blends:
        assert mixed.index is not None
        assert torch.equal(mixed.index, index if traits(name).mixes else torch.arange(len(x)))
    else:
        assert mixed.index is None
    torch.testing.assert_close(mixed.target.lam.expand(len(x)), mask.mean(dim=(1, 2, 3)).to(mixed.target.lam))
    torch.testing.assert_close(mixed.target.soft(5).sum(dim=1), torch.ones(len(x)))


@every_method
@pytest.mark.parametrize("size", [(6, 16, 16), (5, 13, 22), (1, 8, 8)], ids=["even", "odd", "single"])
def test_labels_follow_the_mask_really_applied(name: str, size: tuple[int, int, int]) -> None:
    x, y = batch(*size)
    index = torch.randperm(len(x))
    options: list[dict[str, Any]] = [{}, {"per_sample": True}] if traits(name).mixes else [{}]
    for more in options:
        for step in range(20):
            check_law(name, run(name, x, y, step, index=index, **more), x, index)


@every_mixing
def test_lam_one_gives_the_first_image_back(name: str) -> None:
    x, y = batch()
    mixed = run(name, x, y, lam=1.0)
    assert torch.equal(mixed.x, x)
    assert torch.equal(mixed.target.soft(5), torch.nn.functional.one_hot(y, 5).float())


@every_method
def test_a_generator_reproduces_and_nothing_else_is_touched(name: str) -> None:
    x, y = batch()
    kept_x, kept_y = x.clone(), y.clone()
    state = torch.get_rng_state()
    first, second, other = run(name, x, y), run(name, x, y), run(name, x, y, step=1)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.target.lam, second.target.lam)
    assert name == "vanilla" or not torch.equal(first.x, other.x)
    assert torch.equal(x, kept_x)
    assert torch.equal(y, kept_y)
    assert torch.equal(state, torch.get_rng_state())


@every_mixing
def test_given_lam_and_index_are_used(name: str) -> None:
    x, y = batch()
    index = torch.tensor([1, 2, 3, 4, 5, 0])
    mixed = run(name, x, y, lam=0.75, index=index)
    assert not traits(name).pairs or torch.equal(mixed.target.y_b, y[index])
    lam = torch.tensor([1.0, 0.9, 0.5, 0.2, 0.1, 0.0])
    per_sample = run(name, x, y, lam=lam, index=index)
    assert per_sample.target.lam.shape == (6,)
    assert torch.equal(per_sample.x[0], x[0])


@every_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_device_layout_and_type_follow_x(name: str, dtype: torch.dtype) -> None:
    x, y = batch()
    x = x.to(dtype).contiguous(memory_format=torch.channels_last)
    mixed = run(name, x, y)
    assert mixed.x.dtype == dtype
    assert mixed.x.is_contiguous(memory_format=torch.channels_last)


@every_method
def test_soft_and_multi_label_rows(name: str) -> None:
    x, _ = batch()
    rows = torch.softmax(torch.randn(6, 4), dim=1)
    mixed = run(name, x, rows)
    torch.testing.assert_close(mixed.target.soft().sum(dim=1), torch.ones(6))
    multi = torch.randint(2, (6, 4))
    lam = mixed.target.lam.reshape(-1, 1)
    again = run(name, x, multi)
    torch.testing.assert_close(again.target.soft(), lam * again.target.y_a + (1 - lam) * again.target.y_b)


@every_method
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_class_indices_of_any_integer_type(name: str, dtype: torch.dtype) -> None:
    x, y = batch()
    logits = torch.randn(6, 5)
    narrow = y.to(dtype)
    mixed, expected = run(name, x, narrow), run(name, x, y)
    assert torch.equal(mixed.x, expected.x)
    assert torch.equal(mixed.target.soft(5), expected.target.soft(5))
    assert torch.equal(mixed.target.loss(logits), expected.target.loss(logits))
    assert torch.equal(mixed.target.accuracy(logits), expected.target.accuracy(logits))
    assert narrow.dtype == dtype
    assert torch.equal(narrow, y.to(dtype))


@every_mixing
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(3, 16, 16)}, r"x must be .*\(3, 16, 16\)"),
        ({"x": torch.zeros(6, 3, 16, 16, dtype=torch.int16)}, "x must be .*floating.*int16"),
        ({"x": torch.zeros(0, 3, 16, 16), "y": torch.zeros(0, dtype=torch.int64)}, "x must be images"),
        ({"y": torch.zeros(5, dtype=torch.int64)}, r"y must be .*\(6,\).*\(5,\)"),
        ({"y": torch.zeros(6)}, "y must be .*integer.*float32"),
        ({"y": torch.zeros(6, 2, 2)}, "y must be"),
        ({"y": torch.ones(6, 1)}, r"rows of y must have 2 columns or more, got shape \(6, 1\).*regression"),
        ({"alpha": 0.0}, "alpha.*> 0"),
        ({"alpha": float("nan")}, "alpha.*> 0"),
        ({"lam": 1.5}, r"lam .*\[0, 1\].*1.5"),
        ({"lam": torch.tensor([0.5] * 5 + [-0.1])}, r"lam .*\[0, 1\].*-0.1"),
        ({"lam": torch.rand(5)}, r"lam .*\(6,\).*\(5,\)"),
        ({"index": torch.arange(5)}, r"index .*\(6,\).*\(5,\)"),
        ({"index": torch.zeros(6)}, "index .*int64.*float32"),
        ({"index": torch.arange(1, 7)}, r"index .*\[0, 5\].*6"),
    ],
)
def test_wrong_input_is_refused_in_one_line(name: str, change: dict[str, Any], message: str) -> None:
    x, y = batch()
    if "alpha" in change:  # a method of two methods has two
        alphas = [option for option in inspect.signature(FUNCTIONS[name]).parameters if option.endswith("alpha")]
        change = dict.fromkeys(alphas, change["alpha"])
    with pytest.raises(ValueError, match=message) as error:
        FUNCTIONS[name](**{"x": x, "y": y, **traits(name).further(x), **change})
    assert "\n" not in str(error.value)


@every_method
def test_uint8_pixels_are_copied_or_refused(name: str) -> None:
    x, y = batch()
    x = (x.sigmoid() * 255).round().to(torch.uint8)
    further = {**traits(name).further(x.float()), "index": torch.tensor([1, 2, 3, 4, 5, 0])}
    if name not in COPYING:
        for step in range(4):  # of mixup_or_cutmix, both
            with pytest.raises(ValueError, match=r"x must be .* of a floating type, got .*uint8") as error:
                FUNCTIONS[name](x, y, generator=step_generator(0, step), **further)
            assert "\n" not in str(error.value)
        return
    mixed = FUNCTIONS[name](x, y, generator=step_generator(0, 0), **further)
    expected = FUNCTIONS[name](x.float(), y, generator=step_generator(0, 0), **further)
    assert mixed.x.dtype == torch.uint8
    assert torch.equal(mixed.x.float(), expected.x)
    assert torch.equal(mixed.target.soft(5), expected.target.soft(5))


# --- what lies on the pixels


@every_method
def test_what_lies_on_the_pixels_is_mixed_as_the_images_are(name: str) -> None:
    """The images themselves, applied as maps, must come out as they were mixed."""
    x, y = batch(5, 13, 22)
    for step in range(3):
        mixed = run(name, x, y, step)
        if mixed.index is None:
            with pytest.raises(ValueError, match=r"^this batch has no index: "):
                mixed.apply(x)
        elif mixed.mask.shape[1] == 1:
            torch.testing.assert_close(mixed.apply(x), mixed.x)
            torch.testing.assert_close(mixed.apply(x[:, 1]), mixed.x[:, 1])
        else:  # PatchUp has a mask for each channel: a map of one channel follows their mean
            gray = x.mean(dim=1, keepdim=True).expand(x.shape)
            torch.testing.assert_close(mixed.apply(gray), torch.lerp(gray[mixed.index], gray, mixed.mask.mean(1, True)))


# --- labels by visible object


@pytest.mark.parametrize("name", TAKING_OBJECTS)
@pytest.mark.parametrize("rule", ["absolute", "relative"])
@pytest.mark.parametrize("size", [(6, 16, 16), (5, 13, 22), (1, 8, 8)], ids=["even", "odd", "single"])
def test_objects_change_the_label_alone(name: str, rule: str, size: tuple[int, int, int]) -> None:
    x, y = batch(*size)
    objects = torch.rand(len(x), *x.shape[-2:]) ** 4
    kept = objects.clone()
    for step in range(3):
        plain = run(name, x, y, step)
        mixed = run(name, x, y, step, objects=objects, objects_rule=rule)
        assert torch.equal(mixed.x, plain.x)
        assert torch.equal(mixed.mask, plain.mask)
        assert mixed.target.lam.shape == (len(x),)
        assert mixed.target.lam.dtype == plain.target.lam.dtype
        assert bool(((mixed.target.lam >= 0) & (mixed.target.lam <= 1)).all())
        none = run(name, x, y, step, objects=objects, objects_rule=rule, objects_weight=0.0)
        assert torch.equal(none.target.lam, plain.target.lam.expand(len(x)))
        half = run(name, x, y, step, objects=objects, objects_rule=rule, objects_weight=0.5).target.lam
        torch.testing.assert_close(half, (mixed.target.lam + plain.target.lam) / 2)
    assert torch.equal(objects, kept)


@pytest.mark.parametrize("name", TAKING_OBJECTS)
def test_objects_that_fill_their_images_have_the_plain_label(name: str) -> None:
    x, y = batch(5, 13, 22)
    for step in range(5):
        plain = run(name, x, y, step)
        mixed = run(name, x, y, step, objects=torch.ones(5, 13, 22, dtype=torch.bool))
        torch.testing.assert_close(mixed.target.lam, plain.target.lam.expand(5))


@pytest.mark.parametrize("name", TAKING_OBJECTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_objects_with_rows_and_other_types(name: str, dtype: torch.dtype) -> None:
    x, _ = batch()
    for y in (torch.softmax(torch.randn(6, 4), dim=1), torch.randint(2, (6, 4))):
        mixed = run(name, x.to(dtype), y, objects=torch.tensor([[2.0, 3.0, 9.0, 14.0]]).expand(6, 4))
        assert mixed.x.dtype == dtype
        assert mixed.target.lam.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        lam = mixed.target.lam.reshape(-1, 1)
        expected = lam * mixed.target.y_a + (1 - lam) * mixed.target.y_b
        torch.testing.assert_close(mixed.target.soft(), expected.float())


@pytest.mark.parametrize("name", TAKING_OBJECTS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objects": torch.zeros(6, 8, 8)}, r"^objects must have shape \(6, 1, 16, 16\) or .*\(6, 8, 8\)"),
        ({"objects": torch.zeros(5, 4)}, r"^objects must have shape .*\(5, 4\)"),
        ({"objects": torch.full((6, 16, 16), 255, dtype=torch.uint8)}, r"^objects .*\[0, 1\], got 255"),
        ({"objects_rule": "area"}, "^objects_rule must be one of absolute, relative; got 'area'"),
        ({"objects_weight": 1.5}, r"^objects_weight must be in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_objects_are_refused_in_one_line(name: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        run(name, *batch(), **wrong)
    assert "\n" not in str(error.value)


# --- oracles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_cutmix_boxes_and_labels_are_timms(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm draws lam and centers; with the same ones, boxes, pixels and labels must be the same."""
    x, y = batch(8, 17, 30)
    x = x.double()
    oracle = timm.data.Mixup(mixup_alpha=0, cutmix_alpha=1.0, mode=mode, label_smoothing=0.1, num_classes=5)
    lams: list[float] = []
    centers: list[int] = []

    def record(draw: Callable[..., Any], into: list[Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            into.append(draw(*args, **kwargs))
            return into[-1]

        return recorded

    monkeypatch.setattr(np.random, "beta", record(np.random.beta, lams))
    monkeypatch.setattr(np.random, "randint", record(np.random.randint, centers))
    for seed in range(10):
        lams.clear()
        centers.clear()
        np.random.seed(seed)
        theirs_x, theirs_y = oracle(x.clone(), y)
        lam = torch.as_tensor(np.asarray(lams[0], dtype=np.float32 if mode == "elem" else np.float64)).double()
        center = torch.tensor(centers).reshape(-1, 2)
        ours = automix.cutmix(
            x, y, lam=lam, index=torch.arange(7, -1, -1), center=center if mode == "elem" else center[0]
        )
        torch.testing.assert_close(ours.x, theirs_x)
        torch.testing.assert_close(ours.target.soft(5, label_smoothing=0.1).float(), theirs_y.float())


def test_mixup_is_torchvisions() -> None:
    x, y = batch()
    oracle = torchvision.transforms.v2.MixUp(alpha=1.0, num_classes=5)
    params = {"labels": y, "batch_size": 6, "lam": 0.3}
    ours = automix.mixup(x, y, lam=0.3, index=torch.arange(6).roll(1))
    torch.testing.assert_close(ours.x, oracle.transform(x, params))
    torch.testing.assert_close(ours.target.soft(5), oracle.transform(y, params))


def test_cutmix_pastes_torchvisions_pixels() -> None:
    x, y = batch(6, 16, 24)
    oracle = torchvision.transforms.v2.CutMix(alpha=1.0, num_classes=5)
    ours = automix.cutmix(x, y, lam=0.75, index=torch.arange(6).roll(1), center=torch.tensor([3, 20]))
    box = (14, 0, 24, 7)  # sides 8 x 12 around row 3, column 20, clipped: columns 14..24, rows 0..7
    params = {"labels": y, "batch_size": 6, "box": box, "lam_adjusted": 1 - 70 / (16 * 24)}
    torch.testing.assert_close(ours.x, oracle.transform(x, params))
    torch.testing.assert_close(ours.target.soft(5), oracle.transform(y, params))


@pytest.mark.parametrize("size", [(17, 30), (32, 32), (16, 25)], ids=str)
def test_even_boxes_are_torchvisions(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's box has the even sides of the authors' code: half of it on each side of the center."""
    x, y = batch(6, *size)
    oracle = torchvision.transforms.v2.CutMix(alpha=1.0, num_classes=5)
    places: list[int] = []
    randint = torch.randint

    def record(*args: Any, **kwargs: Any) -> Tensor:
        drawn = randint(*args, **kwargs)
        places.append(int(drawn))
        return drawn

    monkeypatch.setattr(torch, "randint", record)
    torch.manual_seed(0)
    odd = 0
    for lam in torch.linspace(0.02, 0.98, 25).tolist():
        places.clear()
        oracle._dist = types.SimpleNamespace(sample=lambda *_, lam=lam: torch.tensor(lam))
        params = {"labels": y, "batch_size": 6} | oracle.make_params([x])
        options: dict[str, Any] = {"lam": lam, "index": torch.arange(6).roll(1), "center": torch.tensor(places[::-1])}
        ours = automix.cutmix(x, y, even_sides=True, **options)
        torch.testing.assert_close(ours.x, oracle.transform(x, params))
        torch.testing.assert_close(ours.target.soft(5), oracle.transform(y, params))
        odd += not torch.equal(ours.x, automix.cutmix(x, y, **options).x)
    assert odd > 5


PAIRING = [name for name in FUNCTIONS if "pairing" in inspect.signature(FUNCTIONS[name]).parameters]


@pytest.mark.parametrize("name", PAIRING)
def test_partners_of_another_class(name: str) -> None:
    x, _ = batch()
    y = torch.tensor([3, 3, 3, 0, 1, 1])
    for step in range(10):
        mixed = run(name, x, y, step, pairing="other-class")
        assert (mixed.target.y_a != mixed.target.y_b).all()
    assert torch.equal(run(name, x, y, index=torch.arange(6), pairing="other-class").target.y_b, y)
    with pytest.raises(ValueError, match=r"^pairing must be one of random, other-class; got 'any'"):
        run(name, x, y, pairing="any")


def test_all_partners_of_another_class_are_as_likely() -> None:
    """Of 4 images in the classes 0 0 1 2, by counting: 720 draws against all permutations that pair no class."""
    y = torch.tensor([0, 0, 1, 2])
    allowed = [p for p in itertools.permutations(range(4)) if all(y[i] != y[p[i]] for i in range(4))]
    draws = [tuple(draw_other_class(y, generator=step_generator(0, step)).tolist()) for step in range(720)]
    assert set(draws) == set(allowed)
    assert scipy.stats.chisquare([draws.count(each) for each in allowed]).pvalue > 0.01


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32, 65])
def test_as_few_pairs_of_one_class_as_the_batch_permits(count: int) -> None:
    for step in range(20):
        generator = step_generator(0, step)
        y = torch.randint(1 + step % 4, (count,), generator=generator)
        index = draw_other_class(torch.nn.functional.one_hot(y).float() if step % 2 else y, generator=generator)
        assert torch.equal(index.sort().values, torch.arange(count))
        assert (y == y[index]).sum() == max(0, 2 * int(y.bincount().max()) - count)
    with pytest.raises(ValueError, match=r"^pairing must be 'random' for multi-label rows"):
        draw_other_class(torch.ones(count, 3, dtype=torch.bool))


@pytest.mark.parametrize("name", ["cutmix", "saliencymix"])
def test_a_batch_is_mixed_with_probability_prob(name: str) -> None:
    x, y = batch(4, 12, 12)
    mixed = [run(name, x, y, step, prob=0.5) for step in range(200)]
    clean = sum(torch.equal(each.x, x) and bool((each.target.lam == 1).all()) for each in mixed)
    full = sum(torch.equal(run(name, x, y, step).x, x) for step in range(200))  # boxes without a pixel
    assert scipy.stats.binomtest(clean - full // 2, 200, 0.5).pvalue > 0.01
    assert torch.equal(run(name, x, y, prob=0.0, lam=0.3).x, run(name, x, y, lam=0.3).x)  # a given lam is used
    each = run(name, *batch(300, 12, 12), prob=0.5, per_sample=True).target.lam
    assert 100 < (each == 1).sum() < 220
    with pytest.raises(ValueError, match=r"prob must be in \[0, 1\]"):
        run(name, x, y, prob=1.5)


def test_cutmix_centers_cover_every_pixel_evenly() -> None:
    x, y = torch.zeros(2000, 1, 4, 5), torch.zeros(2000, dtype=torch.int64)
    pasted = 1 - run("cutmix", x, y, lam=torch.full((2000,), 1 - 1 / 16)).mask
    assert torch.equal(pasted.sum(dim=(1, 2, 3)), torch.ones(2000))  # a box of one pixel in each image
    assert scipy.stats.chisquare(pasted.sum(dim=(0, 1)).flatten().numpy()).pvalue > 0.01


@pytest.mark.parametrize("switch", [0.5, 0.2])
def test_mixup_or_cutmix_follows_timms_laws(switch: float) -> None:
    """A black image and a white one tell which of the two it was: Mixup leaves one gray, CutMix black and white."""
    x = torch.stack([torch.ones(3, 16, 16), torch.zeros(3, 16, 16)])
    y, swap = torch.tensor([0, 1]), torch.tensor([1, 0])
    oracle = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, switch_prob=switch, label_smoothing=0, num_classes=2)
    np.random.seed(0)
    theirs = torch.stack([oracle(x.clone(), y)[0][0] for _ in range(1000)])
    mixed = [run("mixup_or_cutmix", x, y, step, index=swap, switch=switch) for step in range(1000)]
    ours = torch.stack([each.x[0] for each in mixed])
    torch.testing.assert_close(torch.stack([each.target.lam for each in mixed]), ours.mean(dim=(1, 2, 3)))

    def lams(images: Tensor) -> tuple[Any, Any]:
        """lam of those that Mixup made, and of those that CutMix made."""
        gray = ((images > 0) & (images < 1)).all(dim=(1, 2, 3))
        lam = images.mean(dim=(1, 2, 3))
        return lam[gray].numpy(), lam[~gray].numpy()

    (our_mixup, our_cutmix), (their_mixup, their_cutmix) = lams(ours), lams(theirs)
    counts = [[len(our_mixup), len(our_cutmix)], [len(their_mixup), len(their_cutmix)]]
    assert scipy.stats.binomtest(len(our_cutmix), 1000, switch).pvalue > 0.01
    assert scipy.stats.chi2_contingency(counts).pvalue > 0.01
    assert scipy.stats.kstest(our_mixup, scipy.stats.beta(0.8, 0.8).cdf).pvalue > 0.01
    assert scipy.stats.ks_2samp(our_mixup, their_mixup).pvalue > 0.01
    assert scipy.stats.ks_2samp(our_cutmix, their_cutmix).pvalue > 0.01


@pytest.mark.parametrize(("switch", "other"), [(0.0, "mixup"), (1.0, "cutmix")])
def test_mixup_or_cutmix_is_one_of_the_two(switch: float, other: str) -> None:
    x, y = batch()
    generator = step_generator(0, 0)
    torch.rand((), generator=generator)  # the toss
    alone = FUNCTIONS[other](x, y, 0.3, generator=generator)
    assert torch.equal(run("mixup_or_cutmix", x, y, switch=switch, mixup_alpha=0.3, cutmix_alpha=0.3).x, alone.x)


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("wrong", [{"mixup_alpha": 0.0}, {"cutmix_alpha": float("nan")}, {"switch": 1.5}])
def test_mixup_or_cutmix_refuses_whatever_the_toss(wrong: dict[str, Any], step: int) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"^{name} must be .*{value}"):
        run("mixup_or_cutmix", *batch(), step, **wrong)
    with pytest.raises(ValueError, match=f"^{name} must be .*{value}"):
        automix.MixupOrCutMix(**wrong)


# --- transforms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [automix.Mixup, automix.CutMix])
def test_transforms_have_timms_call(transform: Any) -> None:
    x, y = batch()
    mixed, soft = transform(alpha=1.0, num_classes=5, label_smoothing=0.1, generator=step_generator(0, 0))(x, y)
    name = transform.__name__.lower()
    same = run(name, x, y)
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(5, label_smoothing=0.1))
    with pytest.raises(ValueError, match="num_classes is missing"):
        transform()(x, y)
    with pytest.raises(ValueError, match=r"alpha.*> 0"):
        transform(alpha=-1)
    with pytest.raises(ValueError, match=r"num_classes.*>= 1"):
        transform(num_classes=0)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        transform(num_classes=2)(x, torch.tensor([0, 1, 2, 0, 1, 2]))


def transforms() -> dict[str, type[MixTransform]]:
    """Every transform by the name of its method."""
    found = {}
    for name in automix.methods():
        for member in vars(find_method(name)).values():
            if isinstance(member, type) and issubclass(member, MixTransform) and member.__module__.endswith(name):
                found[name] = member
    return found


@pytest.mark.parametrize("transform", transforms().values(), ids=transforms())
def test_transforms_take_keywords_only(transform: type[MixTransform]) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(transform).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_transforms_mix_with_probability_prob() -> None:
    x, y = batch()
    kept = 0
    for step in range(200):
        mix = automix.FMix(num_classes=5, prob=0.3, generator=step_generator(0, step))
        mixed, soft = mix(x, y)
        if torch.equal(mixed, x):
            kept += 1
            assert torch.equal(soft, torch.nn.functional.one_hot(y, 5).float())
    assert scipy.stats.binomtest(200 - kept, 200, 0.3).pvalue > 0.01
    assert "prob=0.3" in repr(mix)
    generator = step_generator(0, 0)
    torch.rand((), generator=generator)  # the decision
    certain = automix.FMix(num_classes=5, prob=0.9999, generator=step_generator(0, 0))
    assert torch.equal(certain(x, y)[0], automix.fmix(x, y, generator=generator).x)
    assert torch.equal(automix.FMix(num_classes=5, prob=0.0)(x, y)[0], x)
    with pytest.raises(ValueError, match=r"^prob must be in \[0, 1\], got 2"):
        automix.FMix(prob=2)


VIDEO = ("mixup", "cutmix", "fmix", "smoothmix", "gridmix", "resizemix", "saliencymix", "recursivemix")


@pytest.mark.parametrize("name", VIDEO)
def test_all_frames_of_a_video_are_mixed_alike(name: str) -> None:
    """A video of one frame is an image, and a video that stands still stays so."""
    x, y = batch()
    mix = transforms()[name]

    def run_on(images: Tensor) -> tuple[Tensor, Tensor]:
        return mix(num_classes=5, generator=step_generator(0, 0))(images, y)

    image, rows = run_on(x)
    video, video_rows = run_on(x.unsqueeze(2).expand(-1, -1, 4, -1, -1))
    assert video.shape == (6, 3, 4, 16, 16)
    for frame in video.unbind(2):
        torch.testing.assert_close(frame, image)
    assert torch.equal(video_rows, rows)


def test_videos_are_refused_where_channels_are_colors() -> None:
    with pytest.raises(ValueError, match=r"^AugMix takes images \(N, C, H, W\) alone, got shape \(6, 3, 4, 16, 16\)"):
        automix.AugMix(num_classes=5)(torch.zeros(6, 3, 4, 16, 16), torch.zeros(6, dtype=torch.int64))


def test_transform_of_mixup_or_cutmix() -> None:
    x, y = batch()
    for step in range(6):  # both occur
        options: dict[str, Any] = {"mixup_alpha": 0.1, "cutmix_alpha": 2.0, "switch": 0.4}
        transform = automix.MixupOrCutMix(**options, num_classes=5, generator=step_generator(0, step))
        mixed, soft = transform(x, y)
        same = run("mixup_or_cutmix", x, y, step, **options)
        assert torch.equal(mixed, same.x)
        assert torch.equal(soft, same.target.soft(5))
    assert repr(transform).startswith("MixupOrCutMix(mixup_alpha=0.1, cutmix_alpha=2.0, switch=0.4, num_classes=5")
