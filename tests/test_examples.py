"""The code of the README and the examples runs."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import batch
from test_integrations import load_example

import automix
from automix.core.draws import step_generator

ROOT = Path(__file__).parent.parent


def test_readme_code_runs() -> None:
    """The blocks in order, in one namespace, as a reader would paste them."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    x, y = batch(4, 32, 32)
    names: dict[str, Any] = {
        "torch": torch,
        "model": automix.create_model("resnet18", num_classes=10, image_size=32, channels=(8, 8, 16, 16)),
        "loader": [(x, y)] * 2,
        "total": 2,
        "g": torch.Generator(),
    }
    for block in blocks:
        exec(block, names)
    assert not any("teacher" in name or "mix_block" in name for name in names["classifier"].state_dict())
    assert names["soft"].shape == (4, 10)
    assert isinstance(names["task"], automix.MixTask)


def test_links_in_the_documents_exist() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert link.startswith("http") or (document.parent / link).exists(), f"{document.name}: {link}"


def run_example(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run in parallel
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_bare_loop(tmp_path: Path) -> None:
    done = run_example("bare_loop.py", "--epochs", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy: \d+\.\d\d %", done.stdout)
    assert (tmp_path / "mixed.png").stat().st_size > 1000
    weights = torch.load(tmp_path / "classifier.pt", weights_only=True)
    automix.create_model("resnet18", num_classes=10, image_size=16, channels=(16, 32, 64, 128)).load_state_dict(weights)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_minimal_example_equals_the_library(seed: int) -> None:
    """Two steps with the same weights and draws: losses, gradients and teacher, in float64."""
    example = load_example("automix_minimal")
    network = example.Network().double()
    options = {"preset": "paper", "mixed_head": False, "momentum_warmup": True}
    library = automix.AutoMix(copy.deepcopy(network), layer="body", channels=64, seed=seed, **options).double()
    minimal = example.AutoMix(network)
    minimal.block.double().load_state_dict(library.mix_block.state_dict())
    groups = library.param_groups(lr=0.1)
    assert {group["lr"] for group in groups} == {0.1}
    theirs = torch.optim.SGD(groups, momentum=0.9)
    ours = torch.optim.SGD([*minimal.student.parameters(), *minimal.block.parameters()], lr=0.1, momentum=0.9)
    x, y = batch(6, num_classes=10)
    x = x[:, :1].double()
    for step in range(2):
        generator = step_generator(seed, step)
        q, k = (library.draw(x, generator) for _ in range(2))
        expected = library(x, y).loss
        loss = minimal.loss(x, y, (q.lam, q.index), (k.lam, k.index), progress=library.progress)
        torch.testing.assert_close(loss, expected)
        for optimizer, value in ((ours, loss), (theirs, expected)):
            optimizer.zero_grad()
            value.backward()
        pairs = [(minimal.student, library.student), (minimal.block, library.mix_block)]
        for mine, other in pairs:
            for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad)
                assert a.grad.abs().sum() > 0
        ours.step()
        theirs.step()
        minimal.update(step, progress=step / 4)
        library.update(step / 4)
        assert library.teacher is not None
        torch.testing.assert_close(minimal.teacher.state_dict(), library.teacher.state_dict())


def test_minimal_example_is_short() -> None:
    assert len((ROOT / "examples" / "automix_minimal.py").read_text().splitlines()) < 150


def test_minimal_example_trains() -> None:
    assert load_example("automix_minimal").train(epochs=8) > 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bare_loop.py", "--method", "nonsense"), "invalid choice: 'nonsense'"),
        (("bare_loop.py", "--epochs", "0"), "--epochs must be at least 1"),
    ],
)
def test_examples_refuse_wrong_values_in_one_line(arguments: tuple[str, str, str], message: str) -> None:
    done = run_example(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr
