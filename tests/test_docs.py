"""The documentation site: it builds without a warning or the network, and its tables and code say what is true."""

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

import generate
import house
import pytest
from PIL import Image

import automix
from automix.runs.recipes import RECIPES
from automix.studies import EXPERIMENTS
from automix.studies.plan import Grid
from automix.studies.results import collect
from automix.studies.tables import as_json, table_cells

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


def load(name: str, path: Path) -> ModuleType:
    """A file that is no part of the package, as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    assert "bias_for_mean(logit.flatten(1), 1 - lam)" in explained  # of MixBlock._attend
    pages = "".join(page.read_text() for page in site.glob("*.html"))
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert {name for name in examples if f"<summary>examples/{name}</summary>" in pages} == examples
    assert (site / "examples" / "automix_tour.ipynb").read_text() == (ROOT / "examples/automix_tour.ipynb").read_text()


def test_api_has_everything_public(site: Path) -> None:
    pages = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(automix[\w.]*)"', pages)}
    names = {*automix.__all__, *automix.methods(), "AdAutoMix"}
    names -= {"adautomix", "automix", "recipes"}  # methods that are tasks alone, and a sub-package
    assert sorted(names - anchors) == []


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
    assert set(shown) == measured.keys() & set(automix.methods())


def test_results_of_the_readme_are_the_measured_ones() -> None:
    study = json.loads((DOCS / "results" / "finetune.json").read_text())
    columns = {column["name"]: {row["name"]: row["teacher"] for row in column["rows"]} for column in study["columns"]}
    shown = rows("../README.md", "| photographs |")
    assert set(shown) == {"birds", "pets"}
    for data, cells in shown.items():
        top1, ece = columns[f"{data}-long"], columns[f"{data}-long-ece"]
        expected = [top1["vanilla"], top1["automix"], ece["vanilla"], ece["automix"]]
        assert cells == [f"{value['mean']:.1f}" for value in expected] + [str(expected[0]["trials"])]


@pytest.mark.parametrize(("place", "column"), [(0, "cifar"), (1, "shapes")])
def test_gains_are_the_measured_ones(place: int, column: str) -> None:
    replica = json.loads((DOCS / "results" / "replica.json").read_text())
    lines = next(found["rows"] for found in replica["columns"] if found["name"] == column)
    measured = {line["title"]: line["teacher"] for line in lines}
    shown = rows("choosing.md", "| method | CIFAR")
    assert len(shown) >= 5
    for name, accuracies in shown.items():
        assert accuracies[place] == f"{measured[name]['mean']:.2f} +- {measured[name]['std']:.2f}"


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("lab/2026-11-mix-block.md", "| method | seed 0"),
        ("lab/2026-11-mix-block.md", "| on shapes | seed 0"),
        ("results/mix-block.md", "| method | seeds 0 to 4"),
    ],
)
def test_means_and_deviations_are_those_of_the_runs(page: str, table: str) -> None:
    for *cells, summary in rows(page, table).values():
        runs = [float(run) for cell in cells for run in cell.split(",")]
        mean, spread = (float(number) for number in summary.split(" +- "))
        assert statistics.mean(runs) == pytest.approx(mean, abs=0.01)
        assert statistics.stdev(runs) == pytest.approx(spread, abs=0.01)


@pytest.fixture(scope="module")
def kept_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of the studies' runs, as folders."""
    benchmark: Any = load("kept_runs_benchmark", ROOT / "benchmarks" / "kept_runs.py")
    benchmark.RUNS = tmp_path_factory.mktemp("runs")
    for study in benchmark.STUDIES:
        benchmark.restore(study)
    runs: Path = benchmark.RUNS
    return runs


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if (DOCS / "results" / f"{name}.json").exists()])
def test_a_study_is_what_its_logs_say(name: str, kept_runs: Path) -> None:
    """The page's tables, and the numbers for machines beside it, from the accuracies by epoch."""
    experiment = EXPERIMENTS[name]
    tables = collect(experiment, Grid(kept_runs, experiment.trials))
    numbers = json.loads((DOCS / "results" / f"{name}.json").read_text())["columns"]
    assert numbers == json.loads(as_json(experiment, tables, {}))["columns"]
    for table in tables:
        if measured := {title: cells for title, *cells in table_cells(experiment, table, bold="**{}**")[1:]}:
            page = "label-noise.md" if name == "label-noise" else f"results/{name.partition('-')[0]}.md"
            assert rows(page, "| method |", below=f"## {table.column.title}") == measured


def test_every_method_has_its_page() -> None:
    pages = {path.stem for path in (DOCS / "methods").glob("*.md")} - {"README"}
    assert pages == set(automix.methods())


@pytest.mark.parametrize("name", automix.methods())
def test_a_methods_page_begins_with_its_picture_or_says_why_not(name: str) -> None:
    text = (DOCS / "methods" / f"{name}.md").read_text().splitlines()[2]
    picture = DOCS / "pictures" / "methods" / f"{name}.png"
    if not picture.exists():
        assert re.fullmatch(r"\(No picture: .+\)", text)
        return
    assert re.fullmatch(rf"!\[.+\]\(\.\./pictures/methods/{name}\.png\)", text)
    with Image.open(picture) as opened:
        assert 700 < opened.width < 850  # a row of photographs, as wide as a page


def test_claims_are_the_readmes_and_their_tests_exist() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    table = rows("claims.md", "| the README |")
    assert len(table) > 12
    for claim, (_, checks) in table.items():
        for quoted in re.findall(r'"([^"]+)"', claim):
            assert quoted in readme
        named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", checks)
        assert named or checks.startswith("not run: ")
        for file, test in named:
            assert not test or f"\ndef {test}(" in (ROOT / file).read_text()
            assert (ROOT / file).exists()


# --- the architecture ------------------------------------------------------------------------------------------------


def test_every_room_has_its_api_page() -> None:
    pages = {path.stem for path in (DOCS / "api").glob("*.md")} - {"README"}
    assert pages == {room for room in house.DRAWN if room != "cli"}


def test_generated_parts_are_what_the_source_says() -> None:
    for path, text in generate.generated().items():
        assert path.read_text() == text, f"{path} differs; run: python docs/assets/generate.py"


def test_files_named_on_the_page_exist() -> None:
    named = re.findall(r"`([\w/]+/(?:\w+\.py)?)`", (DOCS / "architecture.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not any((base / name).exists() for base in (house.SOURCE, ROOT))] == []


# --- the hooks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    return load("docs_hooks", DOCS / "assets" / "hooks.py")


def test_code_is_read_without_its_docstring(hooks: ModuleType) -> None:
    text = 'class A:\n    @property\n    def b(self):\n        """One.\n\n        Two."""\n        return 1  # why\n'
    assert hooks.read_code(text, "A.b") == "@property\ndef b(self):\n    return 1  # why"
    with pytest.raises(KeyError, match="no 'c' in the source"):
        hooks.read_code(text, "A.c")


def test_links_to_paths_get_the_titles_of_pages(hooks: ModuleType) -> None:
    page = type("Page", (), {"file": type("File", (), {"abs_src_path": str(DOCS / "methods" / "cutmix.md")})})
    text = "see [../training.md](../training.md)"
    expected = "see [Training from the command line](../training.md)"
    assert hooks.on_page_markdown(text, page=page) == expected


def test_hooks_find_the_methods_that_the_registry_finds(hooks: ModuleType) -> None:
    assert hooks.methods() == automix.methods()
    assert "::: automix.methods.fmix.FMix\n" in hooks.method_reference("fmix")
