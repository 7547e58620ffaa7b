"""Results of runs: the protocol by network, paired differences against scipy, Markdown and JSON tables."""

import io
import json
import math
import statistics
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

from automix.studies import find_experiment
from automix.studies.differences import Difference, paired_difference, student_t_975
from automix.studies.plan import Grid, plan_jobs, select
from automix.studies.results import collect, precisions, read_value
from automix.studies.tables import as_json, as_markdown, print_tables, remarks


@pytest.mark.parametrize("df", [*range(1, 41), 60, 100, 1000])
def test_student_t_quantile_equals_scipys(df: int) -> None:
    assert student_t_975(df) == pytest.approx(stats.t.ppf(0.975, df), abs=5.1e-5)


def test_degrees_of_freedom_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"df.*1"):
        student_t_975(0)


def test_interval_equals_scipys() -> None:
    ours, theirs = {0: 82.1, 1: 81.7, 2: 82.4, 5: 90.0}, {0: 81.0, 1: 81.3, 2: 81.2, 7: 10.0}  # seeds 5, 7 are alone
    difference = paired_difference(ours, theirs)
    assert difference is not None
    interval = stats.ttest_rel([82.1, 81.7, 82.4], [81.0, 81.3, 81.2]).confidence_interval(0.95)
    assert difference.count == 3
    assert difference.mean == pytest.approx(0.9)
    assert difference.half_width is not None
    low, high = difference.mean - difference.half_width, difference.mean + difference.half_width
    assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-4)


@pytest.mark.parametrize(
    ("difference", "noise", "text"),
    [
        (Difference(1.2, 0.4, 3), False, "+1.20 +- 0.40"),
        (Difference(-1.2, 0.4, 3), False, "-1.20 +- 0.40"),
        (Difference(0.3, 0.4, 3), True, "+0.30 +- 0.40, within noise"),
        (Difference(-0.3, 0.4, 3), True, "-0.30 +- 0.40, within noise"),
        (Difference(5.0, None, 1), True, "+5.00 (one pair: no interval)"),
    ],
)
def test_difference_within_noise_says_so(difference: Difference, noise: bool, text: str) -> None:
    assert difference.within_noise == noise
    assert str(difference) == text


def test_no_difference_without_a_common_seed() -> None:
    assert paired_difference({0: 1.0}, {1: 2.0}) is None


def write_run(folder: Path, top1: dict[str, list[float]], seconds: float = 3600) -> None:
    """Write a finished run whose last epochs have these accuracies."""
    folder.mkdir(parents=True)
    last = {f"{network}_top1": values[-1] for network, values in top1.items()}
    (folder / "summary.json").write_text(json.dumps({"seconds": seconds, **last}))
    lines = [json.dumps({"kind": "step", "step": 1, "student_top1": 99.0})]
    for epoch, values in enumerate(zip(*top1.values(), strict=True), start=1):
        numbers = {f"{network}_top1": value for network, value in zip(top1, values, strict=True)}
        lines.append(json.dumps({"kind": "epoch", "step": epoch, "epoch": epoch, **numbers}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_trial_is_the_median_of_the_last_ten_epochs(tmp_path: Path) -> None:
    student = [0.0, 0.0, 50, 51, 52, 53, 54, 55, 56, 57, 58, 99]
    write_run(tmp_path / "run", {"student": student, "teacher": [value + 1 for value in student]})
    assert read_value(tmp_path / "run", "top1", "student", "mixup") == (statistics.median(student[2:]), 10)
    assert read_value(tmp_path / "run", "top1", "teacher", "mixup") == (55.5, 10)
    assert read_value(tmp_path / "run", "last_top1", "teacher", "mixup") == (100, 1)
    assert read_value(tmp_path / "run", "hours", "teacher", "mixup") == (1.0, 1)
    assert read_value(tmp_path / "run", "calibration/ece", "teacher", "mixup") is None
    assert read_value(tmp_path / "none", "top1", "student", "mixup") is None
    for name, value in (("evaluation", 2.5), ("evaluation-student", 5.0)):
        (tmp_path / "run" / name).mkdir()
        entry = {"mixed": {"values": {"mixup_top1": value, "b": 1.0}}}
        (tmp_path / "run" / name / "results.json").write_text(json.dumps(entry))
    assert read_value(tmp_path / "run", "mixed/{method}_top1", "teacher", "mixup") == (2.5, 1)
    assert read_value(tmp_path / "run", "mixed/mixup_top1+b", "student", "mixup") == (6.0, 1)
    (tmp_path / "run" / "detect-voc").mkdir()
    (tmp_path / "run" / "detect-voc" / "results.json").write_text('{"AP50": 81.5}')
    assert read_value(tmp_path / "run", "detect/voc/AP50", "teacher", "mixup") == (81.5, 1)


@pytest.fixture
def table(tmp_path: Path) -> tuple[Grid, list[str]]:
    """Three trials of three methods in one column of Table 1; MixUp's last trial is not finished."""
    grid = Grid(tmp_path, 3)
    experiment = select(find_experiment("table1"), ["vanilla", "mixup", "automix"], ["cifar100-r18"])
    base = {"vanilla": 78.0, "mixup": 80.0, "automix": 80.5}
    wobble = {"vanilla": (0.0, 0.1, 0.2), "mixup": (0.0, 1.0, 0.0), "automix": (0.1, 0.3, 0.3)}
    for job in plan_jobs(experiment, grid):
        method, seed = job.values["method"], job.values["seed"]
        if (method, seed) != ("mixup", 2):
            value = base[method] + wobble[method][seed]
            write_run(job.folder, {"student": [value - 1] * 12, "teacher": [value] * 12})
    return grid, ["vanilla", "mixup", "automix"]


def test_markdown_and_json_by_hand(table: tuple[Grid, list[str]]) -> None:
    grid, methods = table
    experiment = select(find_experiment("table1"), methods, ["cifar100-r18"])
    tables = collect(experiment, grid)
    text = as_markdown(experiment, tables, {"command": "automix bench table1"})
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows == [
        "| method | paper | student | teacher | AutoMix minus it |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| Vanilla | 78.04 | **77.10 +- 0.10** | 78.10 +- 0.10 | +2.63 +- 0.14 |",
        "| MixUp | 79.12 | **79.50 +- 0.71** | 80.50 +- 0.71 | +0.20 +- 5.08, within noise |",
        "| AutoMix | 82.04 | 79.73 +- 0.12 | **80.73 +- 0.12** |  |",
    ]
    assert "- command: automix bench table1" in text
    assert any("paired by seed, 95 % confidence; compared are teachers" in line for line in text.splitlines())
    content = json.loads(as_json(experiment, tables, {}))
    vanilla, mixup, ours = content["columns"][0]["rows"]
    assert vanilla["student"]["by_seed"] == {"0": 77.0, "1": 77.1, "2": 77.2}
    assert vanilla["teacher"]["trials"] == 3
    assert vanilla["difference"]["within_noise"] is False
    assert mixup["teacher"]["trials"] == mixup["difference"]["pairs"] == 2
    assert mixup["difference"]["within_noise"] is True
    assert (ours["paper"], ours["paper_network"], "difference" in ours) == (82.04, "teacher", False)
    assert math.isclose(vanilla["difference"]["reference_minus_this"], 2.6333333, abs_tol=1e-6)


def test_table_has_all_rows_when_some_are_finished(table: tuple[Grid, list[str]]) -> None:
    experiment = find_experiment("table1")
    text = as_markdown(experiment, collect(experiment, table[0]), {})
    assert text.count("| AutoMix |") == len(experiment.columns)
    assert "| Co-Mixup | 81.17 |  |  |  |" in text
    assert "official code" in text


def test_empty_columns_and_rows_are_left_out(tmp_path: Path) -> None:
    """The replica has no numbers of the paper, and a cost is not the student's or the teacher's; not all is run."""
    grid = Grid(tmp_path, 1)
    for job in plan_jobs(select(find_experiment("replica"), ["vanilla", "mixup"], ["cifar"]), grid):
        write_run(job.folder, {"student": [50.0] * 10, "teacher": [51.0] * 10})
        (job.folder / "evaluation").mkdir()
        entry = {"efficiency": {"values": {"step_ratio": 1.25}}}
        (job.folder / "evaluation" / "results.json").write_text(json.dumps(entry))
    experiment = select(find_experiment("replica"), ["vanilla", "mixup", "cutmix"], ["cifar", "shapes", "cost"])
    text = as_markdown(experiment, collect(experiment, grid), {})
    assert "shapes" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert rows == [
        "| method | student | teacher |", "| Vanilla | 50.00 | 51.00 |", "| MixUp | 50.00 | 51.00 |",
        "| method | measured |", "| Vanilla | 1.25 |", "| MixUp | 1.25 |",
    ]  # fmt: skip


def test_page_names_the_precision_of_the_runs(table: tuple[Grid, list[str]]) -> None:
    grid, methods = table
    experiment = select(find_experiment("table1"), methods, ["cifar100-r18"])
    tables = collect(experiment, grid)
    assert precisions(tables, grid.out) == []  # runs of an earlier version do not tell
    for number, path in enumerate(sorted(grid.out.glob("*/summary.json"))):
        precision = {"precision": "bf16" if number else "float32"}
        path.write_text(json.dumps(json.loads(path.read_text()) | precision))
    assert precisions(tables, grid.out) == ["bf16", "float32"]


def test_table_fits_a_terminal(table: tuple[Grid, list[str]]) -> None:
    experiment = find_experiment("table1")
    file = io.StringIO()
    print_tables(experiment, collect(experiment, table[0]), Console(width=80, file=file))
    lines = file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any("within noise" in line and "MixUp" in line for line in lines), lines


def test_comparisons_of_unlike_networks_are_marked(tmp_path: Path) -> None:
    """Table 10 compares with and without the average on purpose: the remarks say so."""
    grid = Grid(tmp_path, 2)
    experiment = select(find_experiment("table10"), ["none", "mp", "mp-ce"], ["cifar100-mixup"])
    jobs = plan_jobs(experiment, grid)
    assert len(jobs) == 4  # without the pipeline is the student of the run with it
    for job in jobs:
        write_run(job.folder, {"student": [70.0 + job.values["seed"]], "teacher": [73.0]})
    tables = collect(experiment, grid)
    none, mp, _ = tables[0].rows
    assert none.results["student"].by_seed == {0: 70.0, 1: 71.0}
    assert none.results["teacher"].by_seed == {}
    assert none.difference is not None
    assert none.difference.mean == 2.5
    assert (none.compared, mp.compared) == ("its teacher with this student", "teachers")
    assert any("its teacher with this student" in remark for remark in remarks(experiment, tables))
    assert any("of which 1 were measured" in remark for remark in remarks(experiment, tables))
