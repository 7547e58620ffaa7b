"""Manifold Mixup: at every layer of every kind of network, what the rest of the network sees is the mixed map."""

from typing import Any

import pytest
import scipy.stats
import timm
import torch
from conftest import HandWritten, batch, group_norm
from torch import Tensor, nn

import automix
from automix.core.draws import draw_index, draw_lam, step_generator
from automix.core.target import MixedTarget
from automix.methods.manifoldmix import manifoldmix
from automix.tasks.hidden_task import HiddenTask


def create_task(model: nn.Module, **options: Any) -> HiddenTask:
    task = automix.create_task("manifoldmix", model, **options)
    assert isinstance(task, HiddenTask)
    return task


@pytest.mark.parametrize("shape", [(5,), (4, 5), (5, 3, 4), (2, 3, 4, 5)], ids=["vector", "tokens", "map", "volume"])
def test_mixes_outputs_of_any_shape(shape: tuple[int, ...]) -> None:
    z, y = torch.randn(6, *shape), torch.arange(6)
    index, lam = torch.tensor([1, 2, 3, 4, 5, 0]), torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0, 0.1])
    mixed = manifoldmix(z, y, lam=lam, index=index)
    for i in range(6):
        torch.testing.assert_close(mixed.x[i], lam[i] * z[i] + (1 - lam[i]) * z[index[i]])
    assert torch.equal(mixed.x[0], z[0])
    assert torch.equal(mixed.x[4], z[5])


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5), (0, 4, 5)])
def test_refuses_what_is_not_a_batch(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^x must be images, maps or tokens \(6, ...\)"):
        manifoldmix(torch.zeros(shape), torch.arange(6))
    with pytest.raises(ValueError, match=r"y must be .*integer"):
        manifoldmix(torch.zeros(6, 4, 5), torch.zeros(6))


def drawn(x: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The lam and the partners of a task's first step."""
    generator = step_generator(seed, 0)
    torch.rand((), generator=generator)  # the layer
    return draw_lam(x, 2.0, generator=generator), draw_index(x, generator=generator)


def test_loss_by_hand() -> None:
    """stem -> mix -> body -> head, written out."""
    x, y = batch()
    task = create_task(HandWritten(norm=group_norm), layers=("stem",))
    lam, index = drawn(x)
    model = task.student
    z = model.stem(x)  # type: ignore[operator]
    logits = model.head(model.body(lam * z + (1 - lam) * z[index]).mean(dim=(2, 3)))  # type: ignore[operator]
    out = task(x, y)
    torch.testing.assert_close(out.logits, logits.detach())
    torch.testing.assert_close(out.loss, MixedTarget(y, y[index], lam).cross_entropy(logits))
    assert out.metrics["lam"] == lam


NETWORKS: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "depth": 4},
    "swin_tiny_patch4_window7_224": {"img_size": 32, "window_size": 2, "embed_dim": 24, "depths": (1, 1, 1, 1)},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
}


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore:the model is in eval mode")
def test_after_the_last_layer_and_before_it_in_every_family(name: str, layer: int) -> None:
    """A partner with all the weight gives the partner's logits, whichever layer they are exchanged at."""
    model = timm.create_model(name, num_classes=5, **NETWORKS[name]).eval()
    x, y = batch(4, 32, 32)
    task = create_task(model, layers=(layer,))
    task.student.eval()
    index = torch.tensor([2, 3, 0, 1])
    task.options = {}
    task.mixer = lambda z, y, **rest: manifoldmix(z, y, lam=0.0, index=index)
    torch.testing.assert_close(task(x, y).logits, model(x[index]).detach(), rtol=1e-4, atol=1e-4)
    lam, _ = drawn(x)
    assert 0 < lam < 1
    task = create_task(model, layers=(layer,))
    task.student.eval()
    assert not torch.allclose(task(x, y).logits, model(x).detach(), atol=1e-6)  # drawn ones: really mixed


def test_layers_by_default() -> None:
    resnet = timm.create_model("resnet10t", num_classes=5)
    assert create_task(resnet).layers == [None, "layer1", "layer2"]
    assert create_task(HandWritten()).layers == [None]
    three = timm.create_model("levit_128s", num_classes=5)
    assert create_task(three).layers == [None, "stages.0", "stages.1"]


def test_without_stages_it_is_mixup() -> None:
    x, y = batch()
    torch.manual_seed(3)
    ours = create_task(HandWritten(), alpha=1.0)
    torch.manual_seed(3)
    theirs = automix.create_task("mixup", HandWritten(), alpha=1.0)
    generator = step_generator(0, 0)
    torch.rand((), generator=generator)
    assert torch.equal(ours(x, y).loss, theirs.training_step(x, y, generator).loss)
    assert torch.equal(ours.mix(x, lam=0.3).x, theirs.mix(x, lam=0.3).x)


def test_layers_are_drawn_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    task = create_task(HandWritten(), layers=(0, "stem", "body"))
    seen: list[str | None] = []
    monkeypatch.setattr(task, "input_step", lambda *_: seen.append(None))
    monkeypatch.setattr(task, "hidden_step", lambda x, y, layer, generator: seen.append(layer))
    for _ in range(600):
        task(*batch(2, 4, 4))
        task.update(0.5)
    counts = [seen.count(layer) for layer in (None, "stem", "body")]
    assert scipy.stats.chisquare(counts).pvalue > 0.01


def test_the_clean_loss_and_the_teacher_come_along() -> None:
    x, y = batch()
    task = create_task(HandWritten(norm=group_norm), layers=("body",), ema=True, one_hot_loss=True)
    torch.nn.init.normal_(task.student.head.weight)  # type: ignore[arg-type, union-attr]
    assert task.teacher is not None  # another network now
    out = task(x, y)
    clean = torch.nn.functional.cross_entropy(task.student(x), y)  # not mixed: the hook is gone
    torch.testing.assert_close(out.metrics["loss_clean"], clean.detach())
    torch.testing.assert_close(out.loss, out.metrics["loss_clean"] + out.metrics["loss_mixed"])


class Twice(HandWritten):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.unused(self.unused(x)))


class Pair(nn.Module):
    """A layer with two outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class WithPair(HandWritten):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.pair(x)[0])


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        (HandWritten, (1,), r"layers must be 0 \(the input\) or names .*HandWritten, got 1"),
        (HandWritten, ("bodi",), "layers .*HandWritten, got 'bodi'"),
        (HandWritten, "body", r"layers must be a tuple"),
        (HandWritten, (), "layers .*got none"),
        (HandWritten, ("unused",), "layer 'unused' must run once .* 0 times"),
        (Twice, (0, "unused"), "layer 'unused' must run once .* 2 times"),
        (WithPair, ("pair",), "layer 'pair' must return one tensor, got tuple"),
    ],
)
def test_wrong_layers_are_refused_when_the_task_is_built(model: Any, layers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        create_task(model(), layers=layers)
    assert "\n" not in str(error.value)


def test_a_stage_that_is_no_submodule_is_refused() -> None:
    model = timm.create_model("twins_pcpvt_small", num_classes=5, img_size=32)
    with pytest.raises(ValueError, match=r"layers .*Twins .*'block\.0'"):
        create_task(model)


def test_gradient_checkpointing_is_refused_where_it_would_lie() -> None:
    model = timm.create_model("resnet10t", num_classes=5)
    model.set_grad_checkpointing()
    with pytest.raises(ValueError, match=r"layers must be \(0,\).* gradient checkpointing"):
        create_task(model)
    create_task(model, layers=(0,))


def test_building_changes_nothing_of_the_model() -> None:
    model = HandWritten()
    model.stem.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    create_task(model, layers=("stem", "body"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert not model.stem.training
    assert not model.body._forward_hooks
