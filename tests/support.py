"""What every method supports, each as a check that runs it.

`COLUMNS` is shared by tests/test_support.py, tests/test_compile.py and benchmarks/support_matrix.py. A check takes the
name of a method. It raises an AssertionError where something is wrong, an AutomixError where the method refuses, and
NotApplicableError where the question does not apply.
"""

from collections.abc import Callable
from typing import Any

import torch
from conftest import HandWritten, batch, group_norm
from method_data import small_vit, traits
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

import automix
from automix import Mixed, Task
from automix.core import MixTransform
from automix.core.draws import step_generator
from automix.methods import find_method

FIXED: dict[str, dict[str, Any]] = {
    "comixup": {"m": 2, "grid": 2},  # a small graph, to save time
    "puzzlemix": {"grid": 2},  # cannot be drawn: the shapes of the graph depend on it
}
"""Options of the functions that are compiled."""


class NotApplicableError(Exception):
    """The question does not apply to the method."""


def function_of(name: str) -> Callable[..., Mixed]:
    function = getattr(find_method(name), name, None)
    if not callable(function):
        raise NotApplicableError("a task alone")
    return function


def transform_of(name: str) -> MixTransform:
    """The transform of a method, with the networks that it needs."""
    members = [value for value in vars(find_method(name)).values() if isinstance(value, type)]
    found = [cls for cls in members if issubclass(cls, MixTransform) and cls.__module__.endswith(f".{name}")]
    if not found:
        raise NotApplicableError("no transform")
    networks: dict[str, Any] = {}
    if name == "stylemix":
        networks = traits(name).options
    elif name == "supermix":
        networks = {"model": HandWritten(), "steps": 2}
    elif name == "attentivemix":
        networks = {"helper": HandWritten(), "layer": "body"}
    return found[0](num_classes=5, generator=step_generator(0, 0), **networks)


def task_of(name: str, **options: Any) -> Task:
    """A task of the method, the same for the same arguments."""
    torch.manual_seed(3)
    known = traits(name)
    model = HandWritten(norm=group_norm) if known.model is HandWritten else known.model()
    return automix.create_task(name, model, **{**known.options, **options})


def steps(task: Task, x: Tensor, y: Tensor) -> Tensor:
    """The loss of the second of two steps, with gradients that are numbers."""
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
    for step in range(2):
        loss = task(x, y).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        task.update(step / 2)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in task.parameters() if p.grad is not None)
    return loss.detach()


# --- the checks


def compiled_function(name: str) -> None:
    """One graph, with the result of the function as it is."""
    torch._dynamo.reset()
    function, (x, y) = function_of(name), batch()
    options = {**traits(name).further(x), **FIXED.get(name, {})}
    results = []
    for call in (torch.compile(function, backend="eager", fullgraph=True), function):
        torch.manual_seed(0)  # no generator: torch.compile takes none
        try:
            results.append(call(x, y, **options))
        except torch._dynamo.exc.Unsupported as error:
            raise AssertionError("graph breaks") from error
    mixed, plain = results
    if name == "mixup_or_cutmix":  # a graph draws for both
        torch.testing.assert_close(mixed.target.lam.expand(len(x)), mixed.mask.mean(dim=(1, 2, 3)))
        torch.testing.assert_close(mixed.x, torch.lerp(x[mixed.partners()], x, mixed.mask))
    else:
        torch.testing.assert_close(mixed.x, plain.x)
        torch.testing.assert_close(mixed.target.soft(5), plain.target.soft(5))


def compiled_task(name: str) -> None:
    """Student, teacher and Mix Block without graph breaks, with the losses of the plain task."""
    torch._dynamo.reset()
    ema = {} if name == "automix" else {"ema": True}
    task = task_of(name, **ema)
    task.compile(backend="eager", fullgraph=True)
    torch.testing.assert_close(steps(task, *batch()), steps(task_of(name, **ema), *batch()))
    plain = task_of(name, **ema).student
    deployed = task.deploy()
    assert type(deployed) is type(plain)
    assert list(deployed.state_dict()) == list(plain.state_dict())
    assert deployed._compiled_call_impl is None


def bf16(name: str) -> None:
    """Weights and images of bfloat16; the loss is that of float32, about."""
    x, y = batch()
    loss = steps(task_of(name).bfloat16(), x.bfloat16(), y).float()
    rounding = 0.5 if name in ("comixup", "supermix") else 0.1  # masks that jump with the rounding of gradients
    torch.testing.assert_close(loss, steps(task_of(name), x, y), rtol=rounding, atol=rounding)


def uint8(name: str) -> None:
    x, y = batch()
    images = (x.sigmoid() * 255).round().to(torch.uint8)
    if name == "automix":
        task_of(name).mix(images, y)
    mixed = function_of(name)(images, y, generator=step_generator(0, 0), **traits(name).further(images.float()))
    assert mixed.x.dtype == torch.uint8
    assert torch.isin(mixed.x, images).all()


def per_sample(name: str) -> None:
    if not traits(name).mixes:
        raise NotApplicableError("labels are not mixed")
    x, y = batch()
    mixed = task_of(name, per_sample=True).mix(x, y)
    assert len(mixed.target.lam.expand(len(x)).unique()) > 1


def other_class(name: str) -> None:
    task = task_of(name, pairing="other-class")
    x, _ = batch()
    y = torch.tensor([3, 3, 3, 0, 1, 1])
    assert (task.mix(x, y).target.y_b != y).all()
    steps(task, x, y)


def multi_label(name: str) -> None:
    x, _ = batch()
    steps(task_of(name), x, torch.rand(6, 5, generator=step_generator(0, 0)) < 0.4)


def vit(name: str) -> None:
    """A plain transformer of timm, with the layers that the method takes by default."""
    torch.manual_seed(3)
    known = {key: value for key, value in traits(name).options.items() if key not in ("layer", "layers")}
    known |= {"layer": 2} if name == "automix" else {}  # it has two blocks
    steps(automix.create_task(name, small_vit(), **known), *batch())


def collate(name: str) -> None:
    mix, (x, y) = transform_of(name), batch()
    loader: Any = DataLoader(
        list(zip(x, y, strict=True)),  # type: ignore[arg-type]
        batch_size=3,
        collate_fn=lambda samples: mix(*default_collate(samples)),
    )
    for images, rows in loader:
        assert images.shape == (3, 3, 16, 16)
        torch.testing.assert_close(rows.sum(dim=1), torch.ones(3))


def odd_batch(name: str) -> None:
    """Five images of 19 x 22 pixels, then three."""
    task = task_of(name)
    steps(task, *batch(5, 19, 22))
    steps(task, *batch(3, 19, 22))


def video(name: str) -> None:
    x, y = batch()
    clips = torch.stack([x, x.flip(3)], dim=2)
    mixed, rows = transform_of(name)(clips, y)
    assert mixed.shape == clips.shape
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(6))


COLUMNS: dict[str, Callable[[str], None]] = {
    "one graph": compiled_function,
    "compiled task": compiled_task,
    "bf16": bf16,
    "uint8": uint8,
    "lam per sample": per_sample,
    "partners of another class": other_class,
    "multi-label": multi_label,
    "ViT": vit,
    "collate": collate,
    "odd batch": odd_batch,
    "video": video,
}

KNOWN_GAPS = {("one graph", "supermix")}
"""What does not work and is not refused."""


def outcome(column: str, name: str) -> str:
    """Return "yes", "refused" if an error says that it cannot be, "no" for a known gap, "-" if it does not apply."""
    try:
        COLUMNS[column](name)
    except NotApplicableError:
        return "-"
    except automix.AutomixError:
        return "refused"
    except AssertionError:
        if (column, name) not in KNOWN_GAPS:
            raise
        return "no"
    return "yes"
