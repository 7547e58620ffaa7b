"""torch.compile: the functions as whole graphs, and tasks whose networks are compiled. Without a C++ compiler."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch, group_norm
from method_data import traits
from test_methods import FUNCTIONS

import automix

FIXED: dict[str, dict[str, Any]] = {
    "comixup": {"m": 2, "grid": 2},  # a small graph, to save time
    "puzzlemix": {"grid": 2},  # cannot be drawn: the shapes of the graph depend on it
}
BREAKS = ("supermix",)  # optimizes its masks by gradients of a network, until each is good enough
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning:torch")


@pytest.fixture(autouse=True)
def _forget_graphs() -> None:
    torch._dynamo.reset()


def run(name: str, function: Any, **options: Any) -> automix.Mixed:
    x, y = batch()
    torch.manual_seed(0)  # no generator: torch.compile takes none
    return function(x, y, **{**traits(name).further(x), **FIXED.get(name, {}), **options})


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in BREAKS])
def test_a_function_is_one_graph(name: str) -> None:
    compiled = torch.compile(FUNCTIONS[name], backend="eager", fullgraph=True)
    mixed, plain = run(name, compiled), run(name, FUNCTIONS[name])
    if name == "mixup_or_cutmix":  # draws for both
        torch.testing.assert_close(mixed.target.lam.expand(6), mixed.mask.mean(dim=(1, 2, 3)))
        torch.testing.assert_close(mixed.x, torch.lerp(batch()[0][mixed.partners()], batch()[0], mixed.mask))
        return
    torch.testing.assert_close(mixed.x, plain.x)
    torch.testing.assert_close(mixed.target.soft(5), plain.target.soft(5))


@pytest.mark.parametrize(("switch", "other"), [(0.0, "mixup"), (1.0, "cutmix")])
def test_a_graph_chooses_one_of_the_two(switch: float, other: str) -> None:
    options: dict[str, Any] = {"lam": 0.6, "index": torch.tensor([1, 2, 3, 4, 5, 0])}
    compiled = torch.compile(automix.mixup_or_cutmix, backend="eager", fullgraph=True)
    mixed = run("mixup_or_cutmix", compiled, switch=switch, **options)
    is_mixup = bool((mixed.mask == 0.6).all())
    assert is_mixup == (other == "mixup")
    assert is_mixup or set(mixed.mask.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("name", automix.methods())
def test_a_compiled_task_has_the_loss_of_the_plain_one(name: str) -> None:
    """With fullgraph=True: student, teacher and Mix Block have no graph breaks."""
    losses = []
    known = traits(name)
    for compiled in (False, True):
        torch.manual_seed(3)
        model = HandWritten(norm=group_norm) if known.model is HandWritten else known.model()
        ema = {} if name == "automix" else {"ema": True}
        task = automix.create_task(name, model, **{**known.options, **ema})
        if compiled:
            task.compile(backend="eager", fullgraph=True)
        optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
        for step in range(2):
            out = task(*batch())
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
            task.update(step / 2)
        losses.append(out.loss.detach())
        deployed = task.deploy()
        assert type(deployed) is type(model)
        assert list(deployed.state_dict()) == list(model.state_dict())
        assert deployed._compiled_call_impl is None
    torch.testing.assert_close(*losses)


def test_a_run_with_compile_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the eager backend, which compiles the same graphs and runs them as they are: the same accuracy."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    small: dict[str, Any] = {"classes": 2, "per_class": 20, "epochs": 1, "batch_size": 20, "train_size": 16}
    graphs, results = [], []
    for compiled in (False, True):
        torch._dynamo.utils.counters.clear()
        out = str(tmp_path / str(compiled))
        summary = automix.train("shapes", method="mixup", model="wrn_10_1", out=out, compile=compiled, **small)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        results.append(summary["student_top1"])
    assert graphs[0] == 0 < graphs[1]
    assert results[0] == results[1]
