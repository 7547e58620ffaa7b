"""The loops that people have, each against one plain step: the sum of the losses, one backward pass, float32.

`LOOPS` is shared by tests/test_loops.py and benchmarks/loop_table.py. A loop takes the name of a method and raises an
AssertionError if its loss or a gradient is not that of the plain step. It returns None, or why there is nothing to
compare with.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from method_data import traits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import automix
from automix import Task
from automix.core.draws import step_generator
from automix.tasks import HiddenTask, MixTask

Gradients = dict[str, Tensor]


class Network(HandWritten):
    """Without BatchNorm, whose statistics would depend on how a batch is divided; with what a loop may add to it."""

    def __init__(self, *, dropout: float = 0.0, checkpointing: str = "", unused: bool = False) -> None:
        super().__init__(norm=group_norm)
        self.dropout, self.checkpointing = dropout, checkpointing
        if unused:
            self.spare = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.checkpointing:
            x = checkpoint(self.body, x, use_reentrant=self.checkpointing == "reentrant")
        else:
            x = self.body(x)
        return self.head(F.dropout(x.mean(dim=(2, 3)), self.dropout, self.training))


def make(name: str, *, low_memory: bool = False, **network: Any) -> Task:
    """A task of the method, the same for the same arguments."""
    torch.manual_seed(3)
    known = traits(name)
    model = Network(**network) if known.model is HandWritten else known.model()
    layers = {"layers": ("body",)} if name in ("manifoldmix", "patchup") else {}  # not the input
    return automix.create_task(name, model, **{**known.options, **layers, "low_memory": low_memory})


def gradients(task: nn.Module) -> Gradients:
    """Those of all parameters that have one, by name."""
    return {
        name.removeprefix("module."): parameter.grad.clone()
        for name, parameter in task.named_parameters()
        if parameter.grad is not None
    }


def step(
    task: nn.Module, x: Tensor | None = None, y: Tensor | None = None, factor: float = 1.0
) -> tuple[Tensor, Gradients]:
    """One step as in the README."""
    given = batch()
    torch.manual_seed(5)  # of dropout
    out = task(given[0] if x is None else x, given[1] if y is None else y)
    (factor * out.loss).backward()
    return out.loss.detach(), gradients(task)


def compare(found: tuple[Tensor, Gradients], expected: tuple[Tensor, Gradients], tolerance: float = 1e-5) -> None:
    """Loss and gradients, each relative to the norm of the expected one."""
    torch.testing.assert_close(found[0].float(), expected[0].float(), rtol=tolerance, atol=tolerance)
    assert found[1].keys() == expected[1].keys()
    scale = torch.stack([gradient.float().norm() for gradient in expected[1].values()]).max()
    for name, gradient in expected[1].items():
        gap = (found[1][name].float() - gradient.float()).norm()
        assert gap <= tolerance * max(gradient.float().norm(), 0.01 * scale), name


def plain_sum(name: str) -> str | None:
    """The oracle of methods that mix images: cross-entropy written out, gradients by torch.autograd.grad."""
    task = make(name)
    if (
        not isinstance(task, MixTask)
        or isinstance(task, HiddenTask)
        or type(task).training_step is not MixTask.training_step
        or name == "comixup"  # has a loss on clean images, too
        or task.attention_label is not None  # the step itself finds the label
    ):
        return "has tests of its own"
    (x, y), student = batch(), copy.deepcopy(task.student)
    mixed = copy.deepcopy(task).make_mixed(x, y, lam=None, index=None, generator=step_generator(task.seed, 0))
    rows = mixed.target.soft(5)
    torch.manual_seed(5)
    loss = -(rows * student(mixed.x).log_softmax(dim=1)).sum(dim=1).mean()
    direct = torch.autograd.grad(loss, list(student.parameters()))
    names = [f"student.{key}" for key, _ in student.named_parameters()]
    compare(step(task), (loss.detach(), dict(zip(names, direct, strict=True))))
    return None


def bf16(name: str) -> str | None:
    if name in ("comixup", "supermix"):
        return "its masks jump with the rounding of the gradients"
    task = make(name)
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(5)
        loss = task(*batch()).loss
    loss.backward()
    compare((loss.detach(), gradients(task)), step(make(name)), 0.1)
    return None


def accumulation(name: str) -> str | None:
    """Two batches, half the loss each: the mean of the gradients of both steps."""
    if name == "recursivemix":
        return "each batch is pasted into the next one"
    (x, y), task = batch(8), make(name)
    for part in (slice(4), slice(4, 8)):
        _, found = step(task, x[part], y[part], 0.5)
    first, second = make(name), make(name)
    loss, one = step(first, x[:4], y[:4])
    second._calls = 1  # the second batch of a step draws other pairs
    _, two = step(second, x[4:], y[4:])
    expected = {key: (one.get(key, 0) + two.get(key, 0)) / 2 for key in one.keys() | two.keys()}
    compare((loss, found), (loss, expected))  # type: ignore[arg-type]
    return None


def scaler(name: str) -> None:
    """Gradients scaled by 1024, unscaled and clipped to half their norm."""
    task = make(name)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1))
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    torch.manual_seed(5)
    loss = task(*batch()).loss
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(optimizer)
    expected = step(make(name))
    norm = torch.stack([gradient.norm() for gradient in expected[1].values()]).norm()
    torch.nn.utils.clip_grad_norm_(task.parameters(), float(norm) / 2)
    compare((loss.detach(), gradients(task)), (expected[0], {key: g / 2 for key, g in expected[1].items()}), 1e-4)


def low_memory(name: str) -> None:
    compare(step(make(name, low_memory=True)), step(make(name)))


def frozen(name: str) -> None:
    """The stem is frozen: it gets no gradient, all others the same."""
    task, whole = make(name), make(name)
    stem = next(iter(dict(task.student.named_children())))
    task.student.get_submodule(stem).requires_grad_(False)
    loss, full = step(whole)
    compare(step(task), (loss, {key: value for key, value in full.items() if not key.startswith(f"student.{stem}.")}))


def dropout(name: str) -> None:
    compare(step(make(name, low_memory=True, dropout=0.5)), step(make(name, dropout=0.5)))


def channels_last(name: str) -> None:
    x, y = batch()
    task = make(name).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compare(step(task, x.contiguous(memory_format=torch.channels_last), y), step(make(name)), 1e-3)


def checkpointing(name: str) -> None:
    compare(step(make(name, checkpointing="non-reentrant")), step(make(name)))


def reentrant_checkpointing(name: str) -> None:
    try:
        compare(step(make(name, checkpointing="reentrant")), step(make(name)))
    except RuntimeError as error:
        if "use_reentrant=True, torch.utils.checkpoint is incompatible with .grad()" not in str(error):
            raise
        raise automix.AutomixError("torch refuses gradients of the images") from error


def unused_parameters(name: str) -> None:
    compare(step(make(name, unused=True)), step(make(name, unused=True)))
    assert all("spare" not in key for key in step(make(name, unused=True))[1])


def ddp(name: str) -> None:
    """A process group of one process; tests/test_ddp.py and tests/test_torchrun.py have two."""
    task = make(name)
    wrapped = DistributedDataParallel(task, find_unused_parameters=True)
    compare(step(wrapped), step(make(name)))


def fused(name: str) -> None:
    """Weights after a step of AdamW: one by one, foreach and fused."""
    states = []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        task = make(name)
        optimizer = torch.optim.AdamW(task.param_groups(lr=0.01), **options)  # type: ignore[arg-type]
        step(task)
        optimizer.step()
        states.append(torch.cat([parameter.detach().flatten() for parameter in task.parameters()]))
    for state in states[1:]:
        torch.testing.assert_close(state, states[0], rtol=1e-4, atol=1e-5)


def float64(name: str) -> None:
    x, y = batch()
    compare(step(make(name).double(), x.double(), y), step(make(name)), 1e-3)


def copied(name: str) -> None:
    """A deepcopy, and a task with the state dict of another."""
    other = make(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(make(name).state_dict())
    for task in (copy.deepcopy(make(name)), other):
        compare(step(task), step(make(name)))


LOOPS: dict[str, Callable[[str], str | None]] = {
    "plain sum": plain_sum,
    "bf16": bf16,
    "accumulation": accumulation,
    "scaler, clipping": scaler,
    "low memory": low_memory,
    "frozen stem": frozen,
    "dropout": dropout,
    "channels last": channels_last,
    "checkpointing": checkpointing,
    "reentrant": reentrant_checkpointing,
    "unused weights": unused_parameters,
    "DDP": ddp,
    "foreach, fused": fused,
    "float64": float64,
    "copies": copied,
}


def outcome(loop: str, name: str) -> str:
    """Return "yes" if the gradients are right, "refused" if an error says they cannot be, "-" if it does not apply."""
    if loop == "DDP" and not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        nothing_to_compare = LOOPS[loop](name)
    except automix.AutomixError:
        return "refused"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "yes" if nothing_to_compare is None else "-"
