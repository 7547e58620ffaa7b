"""Tasks that mix a part of what they get: a share of each batch, or a network whose lower stages are frozen."""

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from torch import Tensor

import automix
from automix import AutomixError
from automix.core import step_generator


@pytest.mark.parametrize("method", ["mixup", "cutmix", "fmix", "puzzlemix"])
def test_mix_share_leaves_the_other_images_clean(method: str) -> None:
    x, y = batch(size=15, num_classes=5)
    seen: list[Tensor] = []

    class Recorder(HandWritten):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                seen.append(x.detach().clone())
            return super().forward(x)

    task = automix.create_task(method, Recorder(5), mix_share=0.5, seed=3)
    out = task(x, y)
    mixed = seen[-1]
    assert mixed.shape == x.shape
    assert torch.equal(mixed[8:], x[8:])  # ceil(0.5 * 15) = 8 are mixed
    assert not torch.equal(mixed[:8], x[:8])
    assert out.logits.shape == (15, 5)
    out.loss.backward()


def test_the_loss_of_a_share_is_worked_out_by_hand() -> None:
    x, y = batch(size=4, num_classes=5)
    task = automix.create_task("mixup", HandWritten(5, norm=group_norm), mix_share=0.5, seed=3)
    out = task(x, y)
    mixed = automix.mixup(x[:2], y[:2], generator=step_generator(3, 0))
    both = task.student(torch.cat([mixed.x, x[2:]]))
    lam = mixed.target.lam
    first = lam * F.cross_entropy(both[:2], y[:2], reduction="none")
    first = first + (1 - lam) * F.cross_entropy(both[:2], mixed.target.y_b, reduction="none")
    expected = torch.cat([first, F.cross_entropy(both[2:], y[2:], reduction="none")]).mean()
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_mixed_rows_and_clean_classes_in_one_batch() -> None:
    x, y = batch(size=8, num_classes=5)
    task = automix.create_task("comixup", HandWritten(5, norm=group_norm), mix_share=0.5, clean_lam=0, bce=False)
    out = task(x, y)  # the targets of Co-Mixup are rows
    mixed = task.mix(x[:4], y[:4])
    both = task.student(torch.cat([mixed.x, x[4:]]))
    rows = torch.cat([mixed.target.soft(5), F.one_hot(y[4:], 5).float()])
    assert out.loss.item() == pytest.approx(F.cross_entropy(both, rows).item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["soft", "multi-label"])
def test_a_share_of_rows(kind: str) -> None:
    x, y = batch(size=6, num_classes=5)
    rows = F.one_hot(y, 5) if kind == "multi-label" else F.one_hot(y, 5).float()
    task = automix.create_task("cutmix", HandWritten(5, norm=group_norm), mix_share=0.5)
    loss = task(x, rows).loss
    assert torch.isfinite(loss)
    if kind == "soft":
        other = automix.create_task("cutmix", task.student, mix_share=0.5)
        assert loss.item() == pytest.approx(other(x, y).loss.item(), rel=1e-6)


def test_mix_share_is_checked() -> None:
    for share in (0.0, 1.5):
        with pytest.raises(AutomixError, match=r"^mix_share must be in \(0, 1\]"):
            automix.create_task("mixup", HandWritten(5), mix_share=share)
    with pytest.raises(AutomixError, match=r"^mix_share must be 1"):
        automix.create_task("manifoldmix", HandWritten(5), mix_share=0.5, layers=("body",))
    with pytest.raises(AutomixError, match=r"^mix_share must be 1 with aux_loss='joined'"):
        automix.AutoMixSettings.from_preset("fast", mix_share=0.5)


@pytest.mark.parametrize("method", ["mixup", "cutmix", "regmixup", "gridmix", "recursivemix", "manifoldmix"])
def test_a_step_mixes_with_probability_prob(method: str) -> None:
    """Steps that do not mix have the loss of plain training; which ones, depends on seed and step alone."""
    x, y = batch(size=6, num_classes=5)
    task = automix.create_task(method, HandWritten(5, norm=group_norm), prob=0.5, seed=3)
    decisions = []
    for step in range(40):
        task.step = step
        out = task(x, y)
        decisions.append("loss_mixed" in out.metrics)
        assert decisions[-1] == task.mixes_now()
        if not decisions[-1]:
            torch.testing.assert_close(out.metrics["loss_clean"], F.cross_entropy(task.student(x), y))
    assert 10 < sum(decisions) < 30
    again = automix.create_task(method, task.student, prob=0.5, seed=3)
    again.step = 17
    assert [again.mixes_now() for _ in range(3)] == [decisions[17]] * 3
    assert task.mixed_share == 0.5
    assert automix.create_task(method, task.student, prob=0.0).mixed_share == 0
    with pytest.raises(AutomixError, match=r"^prob must be in \[0, 1\], got -1"):
        automix.create_task(method, task.student, prob=-1)


def test_automix_finetune_mixes_half_of_the_batch() -> None:
    x, y = batch(size=8, num_classes=5)
    model = HandWritten(5, norm=group_norm)
    seen: list[Tensor] = []
    model.stem.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    task = automix.AutoMix(model, layer="body", preset="finetune")
    seen.clear()
    out = task(x, y)
    student = [images for images in seen if len(images) == 8]
    assert len(student) == 1  # one pass of the student
    assert torch.equal(student[0][4:], x[4:])
    assert not torch.equal(student[0][:4], x[:4])
    assert {"loss_mixed", "loss_generation"} <= out.metrics.keys()
    out.loss.backward()
    assert all(parameter.grad is not None for parameter in task.mix_block.parameters())


def test_the_rest_of_the_batch_is_mixed_by_mixup() -> None:
    x, y = batch(size=8, num_classes=5)
    model = HandWritten(5, norm=group_norm)
    seen: list[Tensor] = []
    model.stem.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    task = automix.AutoMix(model, layer="body", aux_loss="none", mix_share=0.5, rest="mixup-ramp")
    task.update(progress=0.6)
    seen.clear()
    task(x, y)
    (student,) = [images for images in seen if len(images) == 8]
    generator = step_generator(task.seed, task.step)
    for count in (4, 2):  # the student's pairs, the Mix Block's
        task.draw(x[:count], generator, distinct=True)
    expected = automix.mixup(x[4:], y[4:], 0.6, generator=generator)
    assert 0.02 < float(expected.target.lam) < 0.98
    assert torch.equal(student[4:], expected.x)
    with pytest.raises(AutomixError, match=r"^rest has no effect with mix_share=1"):
        automix.AutoMixSettings.from_preset("tuned", rest="mixup-ramp")


def test_a_block_with_learning_rate_0_costs_no_pass_of_its_own() -> None:
    x, y = batch(size=8, num_classes=5)
    task = automix.AutoMix(HandWritten(5, norm=group_norm), layer="body", preset="finetune", block_lr=0)
    out = task(x, y)
    out.loss.backward()
    assert "loss_generation" not in out.metrics
    assert all(parameter.grad is None for parameter in task.mix_block.parameters())
    assert any(parameter.grad is not None for parameter in task.student.parameters())


def test_frozen_batch_norms_keep_their_statistics() -> None:
    model = automix.create_model("resnet18", num_classes=3, image_size=32, layers=(1, 1, 1, 1), channels=(8,) * 4)
    automix.networks.freeze_stages(model, 1)
    task = automix.create_task("mixup", model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, _ = batch(size=4, height=32, width=32)
    task.eval()
    task.train()
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        task(x, torch.tensor([0, 1, 2, 0])).loss.backward()
        optimizer.step()
    same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    frozen = {name for name in before if name.startswith(("conv1.", "bn1.", "layer1."))}
    assert frozen <= same
    assert not any(name.endswith(("weight", "running_mean")) for name in same - frozen)
    with pytest.raises(AutomixError, match=r"^frozen_stages of ResNet must be in \[0, 4\]"):
        automix.networks.freeze_stages(model, 5)
