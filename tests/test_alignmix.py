"""AlignMix: the transport plan against others' solvers, the alignment against loops, and layers of every layout."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import timm
import torch
from conftest import HandWritten, batch, group_norm
from torch import Tensor, nn

import automix
from automix.core.draws import step_generator
from automix.methods.alignmix import _squared_distances, aligned, alignmix, transport_plan
from automix.tasks.hidden_task import HiddenTask


def create_task(model: nn.Module, **options: Any) -> HiddenTask:
    task = automix.create_task("alignmix", model, **options)
    assert isinstance(task, HiddenTask)
    return task


# --- the transport plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.1, 1.0])
def test_plan_is_sinkhorns(eps: float) -> None:
    """Against the textbook's iterations, not on logarithms and with eps as it is, until nothing changes."""
    cost = torch.rand(3, 7, 7, dtype=torch.float64) * 2
    ours = transport_plan(cost, eps, 1000)
    for plan, each in zip(ours, cost.numpy(), strict=True):
        kernel = np.exp(-each / eps)
        u = np.ones(7)
        for _ in range(5000):
            v = 1 / 7 / (kernel.T @ u)
            u = 1 / 7 / (kernel @ v)
        np.testing.assert_allclose(plan.numpy(), u[:, None] * kernel * v, rtol=1e-6, atol=1e-12)


def test_plan_comes_close_to_the_best_assignment() -> None:
    """Costs thousands of times eps, as of features: the cheapest assignment, by scipy, is all but reached."""
    a, b = torch.randn(8, 16, 64), torch.randn(8, 16, 64)
    cost = _squared_distances(a * 2, b * 2)
    assert cost.mean() > 4000 * 0.1
    plan = transport_plan(cost, 0.1, 50) * 16
    for each, ours in zip(cost.numpy(), plan.numpy(), strict=True):
        rows, columns = scipy.optimize.linear_sum_assignment(each)
        assert (each * ours).sum() == pytest.approx(each[rows, columns].sum(), rel=0.05)
        plain = each.min(axis=1).sum()  # what every row would take if columns had no weights to keep
        assert (each * ours).sum() > plain


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_weights_of_rows_and_columns(scale: float) -> None:
    plan = transport_plan(torch.rand(5, 9, 9) * scale, 0.1, 200)
    torch.testing.assert_close(plan.sum(dim=2), torch.full((5, 9), 1 / 9), rtol=5e-3, atol=0)
    torch.testing.assert_close(plan.sum(dim=1), torch.full((5, 9), 1 / 9), rtol=0.15, atol=0)


def test_squared_distances() -> None:
    a, b = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    torch.testing.assert_close(_squared_distances(a, b), torch.cdist(a, b).square(), rtol=1e-4, atol=1e-4)
    assert (_squared_distances(a * 1e3, a * 1e3) >= 0).all()


def test_a_shuffled_map_is_put_in_order() -> None:
    """Well separated points find their twins, whatever the order."""
    points = torch.eye(6).repeat(2, 1, 1) * 4
    shuffled = points[:, torch.tensor([3, 1, 5, 0, 2, 4])]
    torch.testing.assert_close(aligned(shuffled, points, 0.1, 50), points)


# --- the mix ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", ["first", "second"])
def test_mix_by_loops(moved: str) -> None:
    """The paper's two forms, position by position."""
    x, y = torch.rand(3, 4, 2, 3), torch.arange(3)
    index, lam = torch.tensor([1, 2, 0]), torch.tensor([0.3, 0.6, 0.9])
    mixed = alignmix(x, y, lam=lam, index=index, moved=moved, iterations=300)
    for n in range(3):
        first, second = x[n].flatten(1), x[index[n]].flatten(1)  # (C, 6)
        cost = torch.tensor([[float((first[:, p] - second[:, q]).square().sum()) for q in range(6)] for p in range(6)])
        assign = 6 * transport_plan(cost[None], 0.1, 300)[0]
        if moved == "second":
            expected = lam[n] * first + (1 - lam[n]) * second @ assign.T
        else:
            expected = lam[n] * first @ assign + (1 - lam[n]) * second
        torch.testing.assert_close(mixed.x[n].flatten(1), expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(mixed.target.lam, lam)


def test_tokens_and_maps_are_the_same_positions() -> None:
    x, y = torch.rand(4, 5, 3, 2), torch.arange(4)
    options: dict[str, Any] = {"lam": 0.4, "index": torch.tensor([1, 2, 3, 0]), "moved": "first"}
    tokens = x.flatten(2).transpose(1, 2)
    mixed = alignmix(tokens, y, **options).x
    torch.testing.assert_close(mixed.transpose(1, 2).reshape(x.shape), alignmix(x, y, **options).x)
    with_class = torch.cat([torch.rand(4, 1, 5), tokens], dim=1)
    again = alignmix(with_class, y, prefix=1, **options).x
    torch.testing.assert_close(again[:, 1:], mixed)
    torch.testing.assert_close(again[:, 0], 0.4 * with_class[:, 0] + 0.6 * with_class[options["index"], 0])


def test_lam_one_gives_the_map_back_whichever_is_moved() -> None:
    x, y = batch(4, 4, 4)
    for moved in ("first", "second"):
        assert torch.equal(alignmix(x, y, lam=1.0, moved=moved).x, x)


def test_which_is_moved_is_drawn_evenly() -> None:
    x, y = torch.zeros(2, 1, 1, 2), torch.tensor([0, 1])
    x[0, 0, 0], x[1, 0, 0] = torch.tensor([0.0, 9.0]), torch.tensor([8.0, 1.0])
    firsts = 0
    for step in range(300):
        mixed = alignmix(x, y, lam=0.5, index=torch.tensor([1, 0]), iterations=5, generator=step_generator(0, step))
        firsts += int(mixed.x[0, 0, 0, 0] > mixed.x[0, 0, 0, 1])  # the partner's layout
    assert scipy.stats.binomtest(firsts, 300, 0.5).pvalue > 0.01


def test_no_gradient_through_the_plan() -> None:
    x = torch.rand(2, 3, 2, 2, requires_grad=True)
    index = torch.tensor([1, 0])
    alignmix(x, torch.arange(2), lam=0.3, index=index, moved="second").x.sum().backward()
    # Rows of the assignment sum to 1, so all that the partner gives is 0.7 in all; its plan is a constant.
    assert x.grad is not None
    points = x.detach().flatten(2).transpose(1, 2)
    assign = 4 * transport_plan(_squared_distances(points, points[index]), 0.1, 50)
    expected = 0.3 + 0.7 * assign.sum(dim=1)[index].reshape(2, 1, 2, 2).expand(2, 3, 2, 2)
    torch.testing.assert_close(x.grad, expected)


# --- the task --------------------------------------------------------------------------------------------------------

NETWORKS: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "depth": 4},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 2, "embed_dim": 24, "depths": (1, 1, 1, 1)},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_aligns_the_positions_of_every_layout(name: str) -> None:
    """What reaches the function has the channels where it expects them, and tokens without a place set apart."""
    model = timm.create_model(name, num_classes=5, **NETWORKS[name])
    task = create_task(model)
    seen: list[tuple[tuple[int, ...], int]] = []

    def record(z: Tensor, y: Tensor, **rest: Any) -> Any:
        seen.append((tuple(z.shape), rest["prefix"]))
        return alignmix(z, y, **rest)

    task.mixer = record
    side = NETWORKS[name].get("img_size", 64)
    x, y = batch(4, side, side)
    for _ in range(6):
        task(x, y).loss.backward()
    channels = model.feature_info[-1]["num_chs"]
    expected = ((4, 17, channels), 1) if name.startswith("vit") else ((4, channels, 2, 2), 0)
    assert 0 < len(seen) < 6  # others were mixed at the input
    assert set(seen) == {expected}


def test_layers_by_default() -> None:
    assert create_task(timm.create_model("resnet10t")).layers == [None, "layer4"]
    vit = NETWORKS["vit_tiny_patch16_224"]
    assert create_task(timm.create_model("vit_tiny_patch16_224", **vit)).layers == [None, "blocks.2"]
    pooled = timm.create_model("vit_tiny_patch16_224", global_pool="avg", **vit)
    assert create_task(pooled).layers == [None, "blocks.3"]
    assert create_task(HandWritten(), layer="body").layers == [None, "body"]


def test_loss_by_hand() -> None:
    x, y = batch()
    task = create_task(HandWritten(norm=group_norm), layer="body")
    model, kinds = task.student, set()
    for step in range(6):
        generator = step_generator(0, step)
        if torch.rand((), generator=generator) < 0.5:
            mixed = automix.mixup(x, y, 2.0, generator=generator)
            logits = model(mixed.x)
            kinds.add("input")
        else:
            mixed = alignmix(model.body(model.stem(x)), y, generator=generator)  # type: ignore[operator]
            logits = model.head(mixed.x.mean(dim=(2, 3)))  # type: ignore[operator]
            kinds.add("aligned")
        torch.testing.assert_close(task(x, y).loss, mixed.target.cross_entropy(logits))
        task.update(0.5)
    assert kinds == {"input", "aligned"}


def test_shows_mixup() -> None:
    x, _ = batch()
    ours = create_task(HandWritten(), layer="body", alpha=1.0)
    assert torch.equal(ours.mix(x, lam=0.3).x, automix.create_task("mixup", HandWritten()).mix(x, lam=0.3).x)


def test_bf16_autocast() -> None:
    x, y = batch()
    torch.manual_seed(0)
    model = HandWritten(norm=group_norm)
    for step in range(4):
        losses = []
        for low in (False, True):
            task = create_task(model, layer="body")
            task.step = step
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                losses.append(task(x, y).loss)
        torch.testing.assert_close(losses[0], losses[1], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: create_task(HandWritten()),
            "HandWritten does not describe its stages; pass layer=",
        ),
        (
            lambda: create_task(HandWritten(), layer="head"),
            r"layer 'head' must return maps .*got \(N, 5\)",
        ),
        (lambda: create_task(HandWritten(), layer=2), "layers .*HandWritten, got 2"),
        (lambda: create_task(HandWritten(), layer="body", eps=0.0), "eps.*> 0"),
        (lambda: create_task(HandWritten(), layer="body", iterations=0), "iterations.*integer"),
        (lambda: alignmix(*batch(), moved="third"), "moved.*first, second"),
        (lambda: alignmix(torch.zeros(6, 4), torch.arange(6)), r"x must be maps .*\(6, 4\)"),
    ],
)
def test_wrong_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)
