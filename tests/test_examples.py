"""The code of the README and the examples runs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import batch

import automix

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


def test_readme_lists_all_methods() -> None:
    listed = re.search(r"lists the names: ([^;]*);", (ROOT / "README.md").read_text())
    assert listed
    assert re.findall(r"`(\w+)`", listed[1]) == automix.methods()


def test_links_in_the_documents_exist() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert link.startswith("http") or (document.parent / link).exists(), f"{document.name}: {link}"


def run_example(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run in parallel
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_quickstart(tmp_path: Path) -> None:
    done = run_example("quickstart.py", "--epochs", "1", "--seeds", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for method in ("vanilla", "automix"):
        assert re.search(rf"  {method} +\d+\.\d\d %", done.stdout)
    assert (tmp_path / "automix-0" / "pictures" / "epoch-0001.png").is_file()


def test_bare_loop(tmp_path: Path) -> None:
    done = run_example("bare_loop.py", "--epochs", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy: \d+\.\d\d %", done.stdout)
    assert (tmp_path / "mixed.png").stat().st_size > 1000
    weights = torch.load(tmp_path / "classifier.pt", weights_only=True)
    automix.create_model("resnet18", num_classes=10, image_size=16, channels=(16, 32, 64, 128)).load_state_dict(weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bare_loop.py", "--method", "nonsense"), "invalid choice: 'nonsense'"),
        (("bare_loop.py", "--epochs", "0"), "--epochs must be at least 1"),
        (("quickstart.py", "--lr", "0"), "--lr must be > 0"),
        (("quickstart.py", "--seeds", "0"), "--epochs and --seeds must be at least 1"),
    ],
)
def test_examples_refuse_wrong_values_in_one_line(arguments: tuple[str, str, str], message: str) -> None:
    done = run_example(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr
