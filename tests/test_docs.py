"""The documentation site: it builds without a warning or the network, and its tables and code say what is true."""

import ast
import importlib.util
import inspect
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import batch

import automix
from automix.recipes import RECIPES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))


def rows(page: str, header: str, below: str = "#") -> dict[str, list[str]]:
    """The table below the line that begins with `header`, the first after one that has `below`, by its first cell."""
    lines = (DOCS / page).read_text().splitlines()
    lines = lines[next(number for number, line in enumerate(lines) if below in line) :]
    start = next(number for number, line in enumerate(lines) if line.startswith(header)) + 2
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:]]
    end = next((number for number, line in enumerate(lines[start:]) if not line.startswith("|")), len(cells))
    return {row[0].strip("`"): row[1:] for row in cells[:end]}


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


# --- the site --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_site_fetches_nothing_from_the_network(site: Path) -> None:
    pages = list(site.glob("**/*.html"))
    assert len(pages) > len(PAGES) - 2
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?([^\"' >]+)", page.read_text())
        assert loaded
        assert not [url for url in loaded if "//" in url], page
    assert "@import" not in (site / "assets" / "site.css").read_text()


def test_site_has_the_search_index_for_pages_opened_from_disk(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = ")
    assert "cross-attention" in index


def test_site_shows_code_and_examples_as_they_stand(site: Path) -> None:
    explained = re.sub(r"<[^>]+>", "", (site / "automix.html").read_text())
    assert "{{" not in explained
    assert "logit + bias_for_mean(logit, 1 - lam)" in explained  # of MixBlock._attend
    loops = (site / "integrations.html").read_text()
    examples = {path.name for path in (ROOT / "examples").glob("*.py")} - {"quickstart.py"}
    assert {name for name in examples if f"<summary>examples/{name}</summary>" in loops} == examples
    assert (site / "examples" / "automix_tour.ipynb").read_text() == (ROOT / "examples/automix_tour.ipynb").read_text()


def test_api_has_everything_public(site: Path) -> None:
    core = (site / "api" / "core.html").read_text() + (site / "api" / "methods.html").read_text()
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(automix[\w.]*)"', core)}
    assert set(automix.__all__) <= anchors
    missing = [name for name in automix.methods() if name != "automix" and name not in anchors]
    assert missing == []


# --- what the pages say ----------------------------------------------------------------------------------------------


def test_recipes_are_those_of_the_command_line() -> None:
    table = rows("recipes.md", "| recipe |")
    expected = {}
    for name, kind in RECIPES.items():
        recipe, about = kind(), inspect.getdoc(kind) or ""
        number = re.search(r"Expected: (\d[\d.]+ % on [\w-]+)", about)
        expected[name] = [
            about.splitlines()[0].rstrip("."),
            str(recipe.epochs),
            str(recipe.batch_size),
            f"{recipe.optimizer} {recipe.lr:g}",
            str(recipe.train_size or "as they are"),
            number[1] if number else "",
        ]
    assert table == expected


def test_costs_are_the_measured_ones() -> None:
    measured = {name: cells[0] for name, cells in rows("results/methods-cost.md", "| method |").items()}
    chosen = " ".join(cells[0] for cells in rows("choosing.md", "| cost |").values())
    shown = dict(re.findall(r"`(\w+)` (\d\.\d\d)", chosen))
    assert shown == {name: measured[name] for name in shown}
    assert set(shown) == set(automix.methods()) - {"stylemix"}


@pytest.mark.parametrize(("column", "table"), [(0, "| method | seed 0"), (1, "| on shapes | seed 0")])
def test_gains_are_the_measured_ones(column: int, table: str) -> None:
    measured = rows("results/mix-block.md", table)
    shown = rows("choosing.md", "| method | CIFAR")
    assert shown.keys() == measured.keys()
    for name, accuracies in shown.items():
        *runs, summary = measured[name]
        by_seed = [float(run) for run in runs]
        assert accuracies[column] == summary
        mean, spread = (float(number) for number in summary.split(" +- "))
        assert statistics.mean(by_seed) == pytest.approx(mean, abs=0.01)
        assert statistics.stdev(by_seed) == pytest.approx(spread, abs=0.01)


@pytest.mark.parametrize("path", sorted((DOCS / "results").glob("replica*.json")), ids=lambda path: path.stem)
def test_the_replica_is_what_was_measured(path: Path) -> None:
    """Its tables have the means and standard deviations of the runs' own numbers, and one row for each method."""
    for column in json.loads(path.read_text())["columns"]:
        table = rows("results/replica.md", "| method |", below=f"## {column['title']}")
        assert list(table) == [row["title"] for row in column["rows"]]
        for row in column["rows"]:
            for network in ("student", "teacher"):
                if (measured := row[network]) is not None:
                    by_seed = list(measured["by_seed"].values())
                    assert len(by_seed) >= 3
                    number = f"{statistics.mean(by_seed):.2f} +- {statistics.stdev(by_seed):.2f}"
                    assert number in table[row["title"]], (column["title"], row["title"], network)


def test_every_method_has_its_page() -> None:
    listed = set(rows("methods/README.md", "| method |"))
    pages = {path.stem for path in (DOCS / "methods").glob("*.md")} - {"README"}
    assert pages == set(automix.methods()) - {"vanilla"}
    assert {re.sub(r"\W", "", name.split("]")[0]) for name in listed} == set(automix.methods())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_code_on_the_pages_is_python(page: Path) -> None:
    for block in python_blocks(page):
        ast.parse(block)


@pytest.mark.parametrize("name", ["index.md", "recipes.md", "faq.md"])
def test_code_on_the_page_runs(name: str) -> None:
    x, y = batch(4, 32, 32)
    names: dict[str, Any] = {
        "automix": automix,
        "torch": torch,
        "model": automix.create_model("resnet18", num_classes=10, image_size=32, channels=(8, 8, 16, 16)),
        "my_network": torch.nn.Sequential(),
        "loader": [(x, y)] * 2,
        "x": x,
        "y": y,
        "total": 2,
        "g": torch.Generator(),
    }
    blocks = [block for block in python_blocks(DOCS / name) if "my_network" not in block]
    assert blocks
    for block in blocks:
        exec(block, names)
    assert "task" in names or "recipe" in names


# --- the hooks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "assets" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_code_is_read_without_its_docstring(hooks: ModuleType) -> None:
    text = 'class A:\n    @property\n    def b(self):\n        """One.\n\n        Two."""\n        return 1  # why\n'
    assert hooks.read_code(text, "A.b") == "@property\ndef b(self):\n    return 1  # why"
    with pytest.raises(KeyError, match="no 'c' in the source"):
        hooks.read_code(text, "A.c")


def test_links_to_source_and_to_paths_are_made_readable(hooks: ModuleType) -> None:
    page = type("Page", (), {"file": type("File", (), {"abs_src_path": str(DOCS / "methods" / "cutmix.md")})})
    text = "[why](../../src/automix/learned/mix_block.py), [../training.md](../training.md)"
    expected = "[why][automix.learned.mix_block], [Training from the command line](../training.md)"
    assert hooks.on_page_markdown(text, page=page) == expected
