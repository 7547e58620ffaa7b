"""One menu over all tasks: every method trains, resumes, deploys and keeps its promises to the loop."""

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import batch
from method_data import traits
from torch import Tensor

import automix
from automix import Task
from automix.methods import find_method, has_own_teacher

WITH_OBJECTS = ["cutmix+objects", "resizemix+objects", "attentivemix+objects", "automix+objects"]
WITH_THREE = ["mixup+three", "automix+three"]
VARIANTS = [*WITH_OBJECTS, *WITH_THREE, "automix+samix", "transmix+progressive"]
every_method = pytest.mark.parametrize("name", [*automix.methods(), *VARIANTS])


def make(name: str, **options: Any) -> Task:
    torch.manual_seed(3)
    return automix.create_task(name.partition("+")[0], traits(name).model(), **{**traits(name).options, **options})


def train(task: Task, steps: range, total: int = 6, x: Tensor | None = None) -> torch.optim.Optimizer:
    batches = batch(6) if x is None else (x, torch.arange(len(x)) % 5)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.0)
    for step in steps:
        out = task(*batches)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        task.update(step / total)
    return optimizer


def same_state(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@every_method
@pytest.mark.parametrize("ema", [False, True])
def test_same_seed_same_result_and_resume_in_the_middle(name: str, ema: bool) -> None:
    straight, again, other = make(name, ema=ema), make(name, ema=ema), make(name, ema=ema, seed=1)
    for task in (straight, again, other):
        train(task, range(6))
    assert same_state(straight, again)
    assert name == "vanilla" or not same_state(straight, other)
    stopped = make(name, ema=ema)
    train(stopped, range(4))
    resumed = make(name, ema=ema)
    resumed.load_state_dict(stopped.state_dict())
    train(resumed, range(4, 6))
    assert same_state(straight, resumed)


@every_method
def test_from_mix_until_on_training_is_plain(name: str) -> None:
    x, y = batch(6)
    task, never = make(name, mix_until=0.5), make(name, mix_until=1.0)
    plain = copy.deepcopy(task.student)
    torch.manual_seed(0)
    expected = F.cross_entropy(plain(x), y)
    expected.backward()
    for one, progress in ((task, 0.5), (never, 1.0)):
        one.update(progress)
    torch.manual_seed(0)
    out = task(x, y)
    out.loss.backward()
    torch.testing.assert_close(out.loss, expected)
    assert set(out.metrics) == {"loss_clean", "lam", "mixed_accuracy"}
    for (label, parameter), reference in zip(task.student.named_parameters(), plain.parameters(), strict=True):
        if reference.grad is None:
            assert parameter.grad is None, label
        else:
            torch.testing.assert_close(parameter.grad, reference.grad)
    students = {id(parameter) for parameter in task.student.parameters()}
    assert all(p.grad is None for p in task.parameters() if id(p) not in students)  # the Mix Block rests
    assert name in ("vanilla", "augmix") or "loss_mixed" in never(x, y).metrics  # 1 is to mix to the very end


@every_method
def test_state_dict_survives_a_safe_file(name: str, tmp_path: Any) -> None:
    task = make(name, ema=True)
    train(task, range(2))
    torch.save(task.state_dict(), tmp_path / "task.pt")
    loaded = make(name, ema=True)
    loaded.load_state_dict(torch.load(tmp_path / "task.pt", weights_only=True))
    assert same_state(task, loaded)
    assert (loaded.step, loaded.progress) == (2, task.progress)


@every_method
def test_deepcopy_is_independent(name: str) -> None:
    task = make(name, ema=True)
    twin = copy.deepcopy(task)
    train(task, range(2))
    assert not same_state(task, twin)
    train(twin, range(2))
    assert same_state(task, twin)


@every_method
@pytest.mark.parametrize("size", [(5, 16, 16), (6, 12, 20), (1, 16, 16), (4, 15, 9)])
def test_any_batch_and_image_size(name: str, size: tuple[int, int, int]) -> None:
    out = make(name)(*batch(*size))
    out.loss.backward()
    assert out.logits.shape == (size[0], 5)
    assert out.logits.requires_grad
    assert all(value.ndim == 0 and not value.requires_grad for value in out.metrics.values())


@pytest.mark.parametrize("name", [name for name in automix.methods() if not traits(name).batch_of_one])
def test_a_batch_of_one_that_batch_norm_cannot_take(name: str) -> None:
    with pytest.raises(ValueError, match=r"BatchNorm .*batch of 1 at 4 x 4 px"):
        make(name)(*batch(1, 4, 4))


@every_method
def test_float64_and_channels_last(name: str) -> None:
    x, y = batch()
    task = make(name).double()
    assert task(x.double(), y).loss.dtype == torch.float64
    task = make(name).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    last = task(x.contiguous(memory_format=torch.channels_last), y).loss
    torch.testing.assert_close(last, make(name)(x, y).loss, rtol=1e-4, atol=1e-4)


@every_method
def test_bf16_autocast_is_close_to_float32(name: str) -> None:
    x, y = batch()
    with torch.autocast("cpu", torch.bfloat16):
        low = make(name)(x, y)
    low.loss.backward()
    assert low.loss.dtype == torch.float32
    torch.testing.assert_close(low.loss, make(name)(x, y).loss, rtol=2e-2, atol=2e-2)


@every_method
def test_labels_of_every_kind(name: str) -> None:
    x, y = batch()
    plain = make(name)(x, y).loss
    rows = make(name)(x, F.one_hot(y, 5).float()).loss
    torch.testing.assert_close(plain, rows)
    multi = make(name)(x, torch.randint(2, (6, 5)))
    assert multi.loss.isfinite()
    with pytest.raises(ValueError, match="num_classes=5, got 7"):
        make(name)(x, torch.full((6,), 7))


@every_method
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_class_indices_of_any_integer_type(name: str, dtype: torch.dtype) -> None:
    x, y = batch()
    assert torch.equal(make(name)(x, y.to(dtype)).loss, make(name)(x, y).loss)
    assert torch.equal(make(name).eval()(x, y.to(dtype)).loss, make(name).eval()(x, y).loss)


@every_method
@pytest.mark.parametrize("ema", [False, True])
def test_deploy_is_the_plain_classifier(name: str, ema: bool) -> None:
    task = make(name, ema=ema)
    train(task, range(3))
    classifier = task.deploy()
    plain = traits(name).model()
    assert type(classifier) is type(plain)
    assert not classifier.training
    assert all(parameter.requires_grad for parameter in classifier.parameters())
    assert same_state(classifier, task.classifier)
    assert (task.teacher is not None) == (ema or has_own_teacher(name.partition("+")[0]))
    plain.load_state_dict(classifier.state_dict())
    train(task, range(3, 4))
    assert same_state(classifier, plain)  # a copy: training on does not move it


@every_method
def test_the_teacher_stays_in_eval_mode(name: str) -> None:
    task = make(name, ema=True).train()
    assert task.teacher is not None
    assert task.student.training
    assert not task.teacher.training
    task.eval()
    assert not task.student.training


@every_method
def test_accumulated_batches_draw_anew_and_a_step_repeats_its_draws(name: str) -> None:
    x, y = batch()
    task = make(name)
    first, second = task(x, y).metrics["lam"], task(x, y).metrics["lam"]
    assert not traits(name).mixes or first != second
    fresh = make(name)
    assert torch.equal(fresh(x, y).metrics["lam"], first)
    task.update(0.0)
    assert not traits(name).mixes or task(x, y).metrics["lam"] != first


@every_method
def test_mix_shows_what_the_task_would_train_on(name: str) -> None:
    x, _ = batch()
    task = make(name)
    mixed = task.mix(x, lam=0.4)
    assert mixed.x.shape == x.shape
    assert not traits(name).pairs or torch.equal(mixed.target.y_a, torch.arange(6))
    with pytest.raises(ValueError, match="x must be images"):
        task.mix(x[0])


def test_global_random_state_is_left_alone() -> None:
    x, y = batch()
    task = make("automix")
    state = torch.get_rng_state()
    task(x, y)
    task.mix(x)
    assert torch.equal(state, torch.get_rng_state())


def test_a_forgotten_update_is_noticed() -> None:
    x, y = batch(2, 4, 4)
    task = make("mixup")
    for _ in range(99):
        task(x, y)
    with pytest.warns(UserWarning, match=r"task.update\(\) was not called for 100 batches"):
        task(x, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("cutmx"), "method 'cutmx'.*did you mean 'cutmix'"),
        (lambda: make("cutmix", alhpa=2), "cutmix has no option 'alhpa'.*alpha, "),
        (lambda: make("mixup").update(1.5), r"progress .*\[0, 1\]"),
        (lambda: make("mixup").update(), "progress .*total_steps"),
        (lambda: make("mixup", total_steps=0), "total_steps.*>= 1"),
        (lambda: make("mixup", ema=True, momentum=2), r"momentum .*\[0, 1\)"),
        (lambda: make("mixup", momentum=0.9), "momentum .*ema=True"),
    ],
)
def test_wrong_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@every_method
def test_in_eval_mode_the_clean_loss_of_the_classifier(name: str) -> None:
    x, y = batch(6)
    task = make(name, ema=True)
    train(task, range(2))
    task.eval()
    before = copy.deepcopy(task.state_dict())
    out = task(x, y)
    torch.testing.assert_close(out.loss, F.cross_entropy(task.classifier(x), y))
    torch.testing.assert_close(out.logits, task.classifier(x))
    assert out.metrics["lam"] == 1
    assert all(torch.equal(value, before[key]) for key, value in task.state_dict().items())


def test_total_steps_stand_in_for_progress() -> None:
    told, knows = make("automix"), make("automix", total_steps=4)
    for step in range(6):  # two more than planned
        told.update(min(1.0, step / 4))
        knows.update()
        assert knows.progress == told.progress
    assert same_state(told, knows)


def test_a_step_is_a_mapping_too() -> None:
    out = make("mixup")(*batch())
    assert {**out} == {"loss": out.loss, "logits": out.logits, "metrics": out.metrics}
    assert out["loss"] is out.loss


def test_deploy_keeps_what_was_frozen() -> None:
    model = traits("mixup").model()
    frozen = next(iter(model.parameters())).requires_grad_(False)
    for ema in (False, True):
        deployed = automix.create_task("mixup", model, ema=ema).deploy()
        flags = [parameter.requires_grad for parameter in deployed.parameters()]
        assert flags == [parameter is not frozen for parameter in model.parameters()]


def test_progress_that_falls_is_noticed_once() -> None:
    """As in a loop that counts the steps of each epoch anew."""
    task = make("mixup")
    task.update(0.5)
    with pytest.warns(UserWarning, match=r"progress fell from 0\.5 to 0"):
        task.update(0.0)
    task.update(0.5)
    task.update(0.0)  # without another warning, which would be an error here


def test_an_untrained_teacher_is_not_deployed_silently() -> None:
    task = make("mixup", ema=True)
    task.deploy()  # before any training there is nothing to say
    task(*batch())
    with pytest.warns(UserWarning, match=r"update\(\) was never called"):
        task.deploy()


def test_a_model_in_eval_mode_is_trained() -> None:
    task = automix.create_task("mixup", traits("mixup").model().eval(), ema=True)
    assert task.student.training
    assert task.teacher is not None
    assert not task.teacher.training


def test_the_parameters_of_a_criterion_are_trained() -> None:
    class Scaled(torch.nn.CrossEntropyLoss):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, input: Tensor, target: Tensor) -> Tensor:
            return super().forward(self.scale * input, target)

    task = make("automix", criterion=Scaled())
    groups = task.param_groups(lr=0.1)
    assert [group["name"] for group in groups] == ["student", "criterion", "mix_block"]
    listed = {id(parameter) for group in groups for parameter in group["params"]}
    assert listed == {id(parameter) for parameter in task.parameters() if parameter.requires_grad}


def test_a_model_in_ddp_is_refused(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(traits("mixup").model())
        with pytest.raises(automix.AutomixError, match=r"model .*DDP\(task\)"):
            automix.create_task("mixup", model)
    finally:
        dist.destroy_process_group()


def test_the_function_registry_is_a_package_too() -> None:
    import automix.methods.puzzlemix as module

    assert automix.methods() == sorted(automix.methods())
    assert automix.methods.puzzlemix is module  # type: ignore[attr-defined]
    assert module.puzzlemix is automix.puzzlemix


def test_every_method_documents_itself() -> None:
    for name in automix.methods():
        assert len(inspect.getdoc(find_method(name)) or "") > 60
