"""torch.compile: the functions as whole graphs, and tasks whose networks are compiled. Without a C++ compiler."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import batch
from support import KNOWN_GAPS, compiled_function, compiled_task
from test_methods import FUNCTIONS

import automix

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if ("one graph", name) not in KNOWN_GAPS])
def test_a_function_is_one_graph(name: str) -> None:
    compiled_function(name)


@pytest.mark.parametrize(("switch", "other"), [(0.0, "mixup"), (1.0, "cutmix")])
def test_a_graph_chooses_one_of_the_two(switch: float, other: str) -> None:
    options: dict[str, Any] = {"lam": 0.6, "index": torch.tensor([1, 2, 3, 4, 5, 0])}
    compiled = torch.compile(automix.mixup_or_cutmix, backend="eager", fullgraph=True)
    mixed = compiled(*batch(), switch=switch, **options)
    is_mixup = bool((mixed.mask == 0.6).all())
    assert is_mixup == (other == "mixup")
    assert is_mixup or set(mixed.mask.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("name", automix.methods())
def test_a_compiled_task_has_the_losses_of_the_plain_one(name: str) -> None:
    compiled_task(name)


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
