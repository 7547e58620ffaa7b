"""The paper's numbers: compared with its LaTeX source if that is beside the checkout, and by sums."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from automix.studies import EXPERIMENTS, Experiment, find_experiment

TEX = Path(__file__).parents[2] / "shared" / "paper" / "automix.tex"
needs_tex = pytest.mark.skipif(not TEX.is_file(), reason="the paper's source is not beside this checkout")

TABLES = [name for name in EXPERIMENTS if name.startswith("table")]
Numbers = list[float | None]


def our_numbers(experiment: Experiment) -> dict[str, Numbers]:
    """By row, in the order of the columns."""
    found: dict[str, Numbers] = {}
    for row in experiment.rows:
        cells = [experiment.cell(row.name, column.name) for column in experiment.columns]
        found[row.name] = [cell.paper if cell else None for cell in cells]
    return found


def paper_numbers(label: str) -> dict[str, Numbers]:
    """A table of the paper's source: the first word of each line, and its numbers; a dash is none."""
    text = TEX.read_text(encoding="utf-8")
    end = text.index(rf"\label{{{label}}}")
    body = text[text.rindex(r"\begin{tabular}", 0, end) : text.rindex(r"\end{tabular}", 0, end)]
    rows: dict[str, Numbers] = {}
    for line in body.split(r"\hline", 1)[1].split(r"\\"):
        cells = [_plain(cell) for cell in line.split("&")]
        if len(cells) > 1 and all(re.fullmatch(r"[+-]?[\d.]*|-", cell) for cell in cells[1:]):
            rows[cells[0]] = [None if cell == "-" else float(cell) for cell in cells[1:]]
    return rows


def _plain(cell: str) -> str:
    """Without bold, colors, rules and marks."""
    cell = re.sub(r"\\(rowcolor|hline|bottomrule|toprule)(\{\w+\})?", "", cell)
    cell = re.sub(r"\$\^(\*|\\dag)\$", "", cell)
    while (inner := re.sub(r"\\(bf|blue|gray|gbf|gfn|green|fn)\{([^{}]*)\}", r"\2", cell)) != cell:
        cell = inner
    return cell.strip()


NAMES = {  # as the paper spells them, where that is not our title
    "Mixup": "MixUp",
    "Ours": "AutoMix",
    r"+$\lambda$ embedding": "+ lam embedding",
    r"+$\ell_{\lambda}$": "+ l_lambda",
    "+cross attention": "+ cross attention",
    "+MP(m=0)": "+MP (m=0)",
    **{f"$l_{layer}$": f"AutoMix, layer {layer}" for layer in (1, 2, 3, 4)},
}


@needs_tex
@pytest.mark.parametrize("name", [name for name in TABLES if name != "table8"])
def test_numbers_equal_the_papers(name: str) -> None:
    experiment = find_experiment(name)
    rows = {NAMES.get(row, row): numbers for row, numbers in paper_numbers(experiment.source).items() if row != "Gain"}
    ours = {row.title: numbers for row, numbers in zip(experiment.rows, our_numbers(experiment).values(), strict=True)}
    assert list(rows) == list(ours)
    assert rows == ours


@needs_tex
def test_numbers_of_the_transposed_table_equal_the_papers() -> None:
    """Table 8 has the networks in rows and the methods in columns."""
    rows = paper_numbers("tab:cub_wsol")
    assert list(rows) == ["R-18", "RX-50"]
    assert list(map(list, zip(*rows.values(), strict=True))) == list(our_numbers(find_experiment("table8")).values())


# By column: what the paper says and what follows from its numbers. It overlooked the best of the others there: Co-Mixup
# in Table 1 and 14, SaliencyMix (which is above AutoMix) in Table 3, ManifoldMix in Table 13.
WRONG_GAINS: dict[str, dict[int, tuple[float, float]]] = {
    "table1": {3: (0.76, 0.73)},
    "table3": {1: (0.23, -0.09)},
    "table13": {5: (0.04, 0.03)},
    "table14": {6: (0.76, 0.73)},
}


@needs_tex
@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table5", "table13", "table14"])
def test_gains_follow_from_the_papers_numbers(name: str) -> None:
    """AutoMix minus the best of the others, but for four columns."""
    numbers = our_numbers(find_experiment(name))
    gains = paper_numbers(find_experiment(name).source)["Gain"]
    wrong = {}
    for place, gain in enumerate(gains):
        *others, ours = (row[place] for row in numbers.values() if row[place] is not None)
        computed = (ours or 0) - max(number for number in others if number is not None)
        if gain != pytest.approx(computed, abs=0.005):
            wrong[place] = (gain, round(computed, 2))
    assert wrong == WRONG_GAINS.get(name, {})


SUMS = {  # of all numbers of a table, and how many they are
    "table1": (5715.61, 70),
    "table2": (6174.03, 81),
    "table3": (3346.19, 45),
    "table4": (2333.32, 29),
    "table5": (6419.20, 90),
    "table6": (1204.68, 18),
    "table7": (1327.0, 24),
    "table8": (763.98, 14),
    "table9": (543.47, 8),
    "table10": (2160.62, 30),
    "table11": (2200.95, 30),
    "table13": (6959.99, 72),
    "table14": (6427.69, 80),
}


@pytest.mark.parametrize("name", TABLES)
def test_sum_of_a_table(name: str) -> None:
    numbers = [number for row in our_numbers(find_experiment(name)).values() for number in row if number is not None]
    total, count = SUMS[name]
    assert len(numbers) == count
    assert sum(numbers) == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "row", "column", "paper"),
    [
        ("table1", "automix", "cifar100-r18", 82.04),
        ("table1", "comixup", "tiny-rx50", 68.02),
        ("table2", "automix", "r50-100ep", 77.91),
        ("table2", "puzzlemix", "r101-300ep", 80.67),
        ("table3", "mixup_or_cutmix", "r50-a3", 78.08),
        ("table4", "transmix", "deit-s", 80.70),
        ("table4", "transmix", "convnext-t", None),
        ("table5", "manifoldmix", "cub-rx50", 86.38),
        ("table6", "augmix", "corruption", 66.54),
        ("table6", "automix", "fgsm", 55.34),
        ("table7", "automix", "voc", 82.4),
        ("table8", "fmix", "rx50", 59.80),
        ("table9", "random-grids", "tiny-rx50", 66.83),
        ("table10", "mp", "tiny-cutmix", 65.72),
        ("table10", "mp-m0", "imagenet-mixup", None),
        ("table11", "layer3", "rx50-hours", 196),
        ("table13", "automix", "rx50-1200ep", 97.51),
        ("table14", "cutmix", "rx50-400ep", 78.52),
        ("figure8", "automix", "ece", 2.3),
    ],
)
def test_numbers_looked_up_by_hand(name: str, row: str, column: str, paper: float | None) -> None:
    cell = find_experiment(name).cell(row, column)
    assert cell is not None
    assert cell.paper == paper


def test_figures_have_only_the_number_in_the_text() -> None:
    numbers = [(name, cell.row, cell.paper) for name, figure in EXPERIMENTS.items() if name.startswith("figure")
               for cell in figure.cells if cell.paper is not None]  # fmt: skip
    assert numbers == [("figure8", "automix", 2.3)]


@needs_tex
def test_every_table_and_figure_of_runs_is_an_experiment() -> None:
    labels = re.findall(r"\\label\{((?:tab|fig):[^}]*)\}", TEX.read_text(encoding="utf-8"))
    here = {experiment.source for experiment in EXPERIMENTS.values()}
    elsewhere = {
        "tab:app_train_settings",  # the recipes
        "fig:semantic",  # diagrams
        "fig:framework",
        "fig:app_arch",
        "fig:Visualization_ImageNet_R50_2.",  # more of the same as its neighbor
    }
    assert set(labels) - here == elsewhere
    assert here - set(labels) == {"ours"}


def test_tables_are_numbered_as_in_the_paper() -> None:
    if not TEX.is_file():
        pytest.skip("the paper's source is not beside this checkout")
    text = TEX.read_text(encoding="utf-8")
    for kind, word in (("tab", "table"), ("fig", "figure")):
        order: Sequence[str] = re.findall(rf"\\label\{{({kind}:[^}}]*)\}}", text)
        for name, experiment in EXPERIMENTS.items():
            if name.startswith(word):
                assert order.index(experiment.source) + 1 == int(name.removeprefix(word)), name
