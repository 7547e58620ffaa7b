"""Grids of runs: one cell of every table trains for two steps on tiny images in the layout of its dataset."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from automix.cli.bench import RunsFailedError
from automix.cli.main import execute
from automix.data import draw_shapes
from automix.studies import EXPERIMENTS, find_experiment
from automix.studies.cells import ACCURACIES, MIX_WITH_DEPLOYED, Column, Row, make_cells
from automix.studies.changes import read_changes
from automix.studies.composites import COMPOSITES
from automix.studies.cost import estimate_seconds, step_times
from automix.studies.experiment import Experiment
from automix.studies.names import METHODS
from automix.studies.plan import CHANGED_DEFAULTS, Grid, Job, all_settings, folder_name, plan_jobs, select
from automix.training import Stopped
from automix.training.display import Silent
from automix.training.run import Run

SIDE = 24
SMALL = [
    *("--set", "epochs=1", "warmup_epochs=0", "batch_size=4", "train_size=16", "test_size=16", "workers=0"),
    *("pretrained=false", "model=resnet18", "model_options.layers=[1,1,1,1]", "model_options.channels=[8,8,8,8]"),
    *("classes=null", "per_class=null", "device=cpu", "checkpoint_minutes=0", "eval_every=1"),
]
FOLDERS = {"birds": "test", "cifar10": "test", "cifar100": "test", "imagenet": "val"}


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every dataset of the paper in its layout: 2 classes of 4 training and 2 test images."""
    root = tmp_path_factory.mktemp("datasets")
    drawn = draw_shapes(12 * 6, SIDE)
    by_class = {label: drawn.images[drawn.labels == label] for label in (0, 1)}

    def save(path: Path, label: int, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(by_class[label][number].permute(1, 2, 0).numpy()).save(path, format="PNG")

    def text(path: str, lines: list[str]) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("\n".join(lines) + "\n")

    every = [(label, number) for label in (0, 1) for number in range(6)]
    for label, number in every:
        part = "train" if number < 4 else "test"
        for name, testing in FOLDERS.items():
            save(root / name / (part if part == "train" else testing) / f"n{label}" / f"{number}.png", label, number)
        tiny = f"train/n{label}/images" if part == "train" else "val/images"
        save(root / "tiny-imagenet-200" / tiny / f"{label}_{number}.JPEG", label, number)
        for below in ("CUB_200_2011/images", "fgvc-aircraft-2013b/data/images", "places205/images256/a/abbey"):
            save(root / below / f"{label}_{number}.jpg", label, number)
        for year in (2017, 2018):
            save(root / f"inat{year}" / f"{label}_{number}.jpg", label, number)
    train, test = ([pair for pair in every if (pair[1] < 4) == wanted] for wanted in (True, False))
    text("tiny-imagenet-200/wnids.txt", ["n0", "n1"])
    text("tiny-imagenet-200/words.txt", ["n0\tnewt", "n1\twren"])
    for label in (0, 1):
        boxes = [f"{label}_{number}.JPEG\t0\t0\t9\t9" for number in range(4)]
        text(f"tiny-imagenet-200/train/n{label}/n{label}_boxes.txt", boxes)
    text("tiny-imagenet-200/val/val_annotations.txt", [f"{k}_{n}.JPEG\tn{k}\t0\t0\t9\t9" for k, n in test])
    numbered = {f"{6 * label + number + 1}": (label, number) for label, number in every}
    text("CUB_200_2011/images.txt", [f"{key} {k}_{n}.jpg" for key, (k, n) in numbered.items()])
    text("CUB_200_2011/classes.txt", ["1 001.Newt", "2 002.Wren"])
    text("CUB_200_2011/image_class_labels.txt", [f"{key} {k + 1}" for key, (k, _) in numbered.items()])
    text("CUB_200_2011/train_test_split.txt", [f"{key} {int(n < 4)}" for key, (_, n) in numbered.items()])
    text("CUB_200_2011/bounding_boxes.txt", [f"{key} 4.0 4.0 12.0 12.0" for key in numbered])
    text("fgvc-aircraft-2013b/data/variants.txt", ["707", "A300"])
    for name, pairs in (("trainval", train), ("test", test)):
        lines = [f"{k}_{n} {('707', 'A300')[k]}" for k, n in pairs]
        text(f"fgvc-aircraft-2013b/data/images_variant_{name}.txt", lines)
    for name, pairs in (("train", train), ("val", test)):
        text(f"places205/trainvalsplit_places205/{name}_places205.csv", [f"a/abbey/{k}_{n}.jpg {k}" for k, n in pairs])
        content = {
            "images": [{"id": 10 * k + n, "file_name": f"{k}_{n}.jpg"} for k, n in pairs],
            "annotations": [{"image_id": 10 * k + n, "category_id": k} for k, n in pairs],
            "categories": [{"id": 0, "name": "newt"}, {"id": 1, "name": "wren"}],
        }
        for year in (2017, 2018):
            text(f"inat{year}/{name}{year}.json", [json.dumps(content)])
    return root


def results(out: Path, name: str) -> dict[str, dict[str, Any]]:
    """The JSON that a grid leaves, as (column, row)."""
    content = json.loads((out / f"{name}-changed.json").read_text())
    return {f"{column['name']} {row['name']}": row for column in content["columns"] for row in column["rows"]}


CELLS = {  # of each experiment: a method and the columns
    "control": ("automix-reference", "cifar100-r18-floor"),
    "finetune": ("automix", "birds-short birds-short-ece"),
    "label-noise": ("regmixup", "birds-40 cifar-20"),
    "table1": ("automix", "tiny-r18"),
    "table2": ("cutmix", "r50-100ep"),
    "table3": ("mixup_or_cutmix", "efficientnet-a2"),
    "table4": ("mixup_or_cutmix", "swin-t"),
    "table5": ("resizemix", "cub-r18 aircraft-rx50 inat2017-r50 inat2018-rx101 places-r18"),
    "table6": ("mixup", "clean fgsm"),
    "table7": ("automix", "voc"),
    "table8": ("vanilla", "r18"),
    "table9": ("cross-attention", "tiny-r18"),
    "table10": ("none", "cifar100-mixup cifar100-automix"),
    "table11": ("layer2", "r18-top1 r18-params r18-hours"),
    "table13": ("fmix", "r18-200ep"),
    "table14": ("vanilla", "rx50-1200ep"),
    "figure1": ("mixup", "top1 cost"),
    "figure3": ("automix", "top1"),
    "figure4": ("automix", "top1 top2"),
    "figure6": ("none", "tiny-r18"),
    "figure7": ("mp-ce", "top1"),
    "figure8": ("manifoldmix", "ece"),
    "figure9": ("alpha-4", "cifar100-r18"),
    "figure10": ("layer4", "imagenet-r50"),
    "figure12": ("automix", "top1"),
    "replica": ("automix-paper", "cifar"),
    "replica-regimes": ("vanilla", "images"),
    "replica-mix-block": ("random-grids", "shapes"),
    "replica-pipeline": ("mp-m0", "shapes-automix"),
}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_one_cell_of_every_experiment_runs(
    name: str, datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, columns = CELLS[name]
    small = SMALL if "shapes" not in columns else [*SMALL, "per_class=1", "batch_size=6"]
    line = [name, "--methods", method, "--columns", *columns.split(), "--trials", "1", "--out", str(tmp_path)]
    execute(["bench", *line, "--data-root", str(datasets), *small])
    found = results(tmp_path, name)
    titles = [column["title"] for column in json.loads((tmp_path / f"{name}-changed.json").read_text())["columns"]]
    assert all(title.endswith(" (settings changed)") for title in titles)
    accuracies = any(column.measure in ACCURACIES for column in find_experiment(name).columns if column.name in columns)
    plotted = accuracies or name in COMPOSITES
    assert (tmp_path / f"{name}-changed.png").is_file() == plotted
    assert (f"({name}-changed.png)" in (tmp_path / f"{name}-changed.md").read_text()) == plotted
    for column in columns.split():
        row = found[f"{column} {method}"]
        measured = [row[network] for network in ("student", "teacher") if row[network]]
        if name == "table7":  # a detector would have to be fine-tuned
            assert measured == []
            assert re.search(r"automix detect train voc --backbone \S+ --kind c4 --recipe voc", capsys.readouterr().out)
        else:
            assert measured
            runs = 0 if column.endswith("-params") else 1  # parameters are counted without a run
            assert all(len(number["runs"]) == runs for number in measured)
    for run in (path.parent for path in tmp_path.glob("*/summary.json")):
        assert json.loads((run / "summary.json").read_text())["steps"] == 2
        assert (run / "evaluation" / "samples.safetensors").is_file() == bool(find_experiment(name).lams)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_dry_run_of_every_experiment(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["bench", name, "--dry-run", "--out", str(tmp_path / "none")])
    out = capsys.readouterr().out
    experiment = find_experiment(name)
    runs = len(plan_jobs(experiment, Grid(tmp_path, experiment.trials)))
    assert re.search(rf"{experiment.trials} trials? each: {runs} runs?, 0 of them finished", out)
    assert re.search(r"left     [\d,]{3,} steps, [\d,]{3,} training images", out)
    assert not (tmp_path / "none").exists()


def test_cost_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CIFAR: 800 epochs of 500 steps of 100; PuzzleMix needs a run for each of its networks, the others one."""
    line = ["table1", "--methods", "mixup", "puzzlemix", "--columns", "cifar100-r18", "--trials", "2"]
    execute(["bench", *line, "--dry-run", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "2 cells, 2 trials each: 6 runs, 0 of them finished" in out
    assert "left     2,400,000 steps, 240,000,000 training images" in out
    assert "6 runs like none that is finished" in out


def test_parameters_of_table11_are_the_papers_without_a_run(tmp_path: Path) -> None:
    execute(["bench", "table11", "--columns", "r18-params", "--out", str(tmp_path)])
    columns = {column["name"]: column for column in json.loads((tmp_path / "table11.json").read_text())["columns"]}
    found = {row["name"]: round(row["teacher"]["mean"], 2) for row in columns["r18-params"]["rows"]}
    assert found == {"mixup": 11.27, "layer1": 11.38, "layer2": 11.39, "layer3": 11.44, "layer4": 11.64}
    assert not list(tmp_path.glob("*/config.yaml"))


def test_list_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    execute(["bench", "--list"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["experiment", "cells", "runs", "about"]
    assert [row[0] for row in rows[1:]] == list(EXPERIMENTS)
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    assert sum(widths) + 6 <= 80


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tabel2", "experiment.*did you mean 'table2'"),
        ("table2 --methods mixpu", "method.*did you mean 'mixup'"),
        ("table2 --columns r50-10ep", "column.*did you mean 'r50-100ep'"),
        ("table2 --launcher rey", "launcher.*did you mean 'ray'.*local, ray, slurm"),
        ("table2 --trials 0", "trials.*1"),
        ("table2 --set epocs=2", "setting.*did you mean 'epochs'"),
        ("table2 --set epochs", "--set epochs: .*NAME=VALUE"),
        ("table2 --set seed=3", "--set seed"),
        ("table2 --set model_options=3", r"--set model_options: .*model_options\.NAME=VALUE"),
        ("table2 --set epochs=[", r"--set epochs=\[: .*YAML"),
        ("table2 --set epochs=0 data=shapes", "epochs.*1"),
        ("table2 --data-root /none", "imagenet.*not found"),
        ("--dry-run", "NAME is missing"),
        ("table2 --dryrun", "--dryrun.*--dry-run"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        execute(["bench", *line.split()])
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


GRID = ["table9", "--methods", "random-grids", "lambda-loss", "--columns", "tiny-r18", "--trials", "2"]


def stamps(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}


def test_finished_runs_are_not_repeated_and_are_shared(
    datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--out", str(tmp_path), "--data-root", str(datasets), *SMALL]
    execute(["bench", *GRID, *where])
    first = stamps(tmp_path)
    assert len(first) == 4
    capsys.readouterr()
    execute(["bench", *GRID, *where])
    assert "4 runs, 4 of them finished" in capsys.readouterr().out
    # the last row of Table 9 is the AutoMix of Table 1, and the Mix Block with everything of Table 10
    execute(["bench", "table1", "--methods", "automix", "--columns", "tiny-r18", "--trials", "2", *where])
    execute(["bench", "table10", "--methods", "mp-ce", "--columns", "tiny-automix", "--trials", "2", *where])
    assert stamps(tmp_path) == first
    capsys.readouterr()
    execute(["bench", *GRID[:-1], "3", *where, "--dry-run"])
    out = capsys.readouterr().out
    assert "6 runs, 4 of them finished" in out
    assert re.search(r"about \d:\d\d:\d\d for runs like those", out)
    assert "no time is known" not in out


def test_interrupted_grid_continues(datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the second run after its first step; ends with the numbers of a grid that was not."""

    class StopInSecond(Silent):
        def step(self, run: Run, metrics: dict[str, float]) -> None:
            if len(list(tmp_path.glob("cut/*/metrics.jsonl"))) == 2 and run.step == 1:
                signal.raise_signal(signal.SIGTERM)

    once = [*GRID[:-1], "1"]
    where = ["--data-root", str(datasets), *SMALL, "batch_size=2"]
    with monkeypatch.context() as patched:
        patched.setattr("automix.studies.launchers.RunBar", lambda progress, job: StopInSecond())
        with pytest.raises(Stopped):
            execute(["bench", *once, "--out", str(tmp_path / "cut"), *where])
    left = [run.parent.name for run in (tmp_path / "cut").glob("*/checkpoint.safetensors")]
    assert len(left) == 2
    assert len(list((tmp_path / "cut").glob("*/summary.json"))) == 1
    report = results(tmp_path / "cut", "table9")
    assert report["tiny-r18 random-grids"]["teacher"]["trials"] == 1
    assert report["tiny-r18 lambda-loss"]["teacher"] is None
    execute(["bench", *once, "--out", str(tmp_path / "cut"), *where])
    execute(["bench", *once, "--out", str(tmp_path / "whole"), *where])
    assert results(tmp_path / "cut", "table9") == results(tmp_path / "whole", "table9")


def test_failed_run_does_not_end_the_grid(datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["table1", "--methods", "vanilla", "mixup", "--columns", "tiny-r18", "--trials", "1"]
    with pytest.raises(RunsFailedError, match=r"2 of 2 runs failed, tiny-imagenet-\S+: step \d.* not finite"):
        execute(["bench", *line, "--out", str(tmp_path), "--data-root", str(datasets), *SMALL, "lr=1e25"])
    assert capsys.readouterr().out.count("FAILED") == 2


def tiny_job(datasets: Path, out: Path, method: str, **values: Any) -> Job:
    changes = read_changes(SMALL[1:])
    row, column = METHODS[method], Column("c", "", {"data": "tiny-imagenet", "model": "resnet18", "recipe": "tiny"})
    cells = make_cells((row,), (column,), {})
    experiment = Experiment("e", "", "", (row,), (column,), cells, 1)
    grid = Grid(out, 1, str(datasets), {**changes, **values})
    return next(job for job in plan_jobs(experiment, grid) if job.values["ema"] == values.get("ema", True))


WITH_RUNS = sorted(
    {row.values["method"] for e in EXPERIMENTS.values() for row in e.rows if row.values.get("method") in METHODS}
)


@pytest.mark.parametrize(
    "method", [name for name in WITH_RUNS if name not in ("transmix", "automix", "attentivemix", "comixup")]
)
def test_averaging_does_not_change_the_student(method: str, datasets: Path, tmp_path: Path) -> None:
    """So that one run gives both numbers; but for the methods that look through what is deployed.

    AttentiveMix and Co-Mixup do too, but find the same places in images as small as these.
    """
    from safetensors.torch import load_file

    from automix.studies.run_job import run_job

    states = []
    for ema in (True, False):
        job = tiny_job(datasets, tmp_path / str(ema), method, ema=ema)
        run_job(job)
        state = load_file(job.folder / "checkpoint.safetensors")
        states.append({name: value.numpy().tobytes() for name, value in state.items() if "/student." in name})
    assert states[0].keys() == states[1].keys() != set()
    assert (states[0] == states[1]) == (method not in MIX_WITH_DEPLOYED)


def test_run_folders_are_named_by_their_settings(tmp_path: Path) -> None:
    experiment = select(find_experiment("table1"), ["mixup"], ["cifar100-r18"])

    def name(**changes: Any) -> str:
        return plan_jobs(experiment, Grid(tmp_path, 1, changes.pop("data_root", None), changes))[0].name

    assert re.fullmatch(r"cifar100-resnet18-mixup-[0-9a-f]{8}-0", name())
    assert name(workers=7, device="cuda", data_root="/there", checkpoint_minutes=1) == name()
    assert name(alpha=1.0) == name()  # the paper's, which the recipe has anyway
    others = [name(epochs=3), name(alpha=0.5), name(lr_floor=0.01), name(classes=5), name(eval_every=2)]
    assert len({name(), *others}) == 6
    two = plan_jobs(experiment, Grid(tmp_path, 2))
    assert [job.name.rpartition("-")[0] for job in two] == [name().rpartition("-")[0]] * 2


def test_rows_must_differ_in_the_method_only() -> None:
    table = find_experiment("table1")
    unfair = Row("mixup", "MixUp", {"method": "mixup", "epochs": 1600})
    rows = (unfair, METHODS["automix"])
    with pytest.raises(ValueError, match=r"cifar10-r18.*automix has epochs=800, mixup has 1600"):
        replace(table, rows=rows, cells=make_cells(rows, table.columns, {}))
    lower = (Row("automix", "AutoMix", {"method": "automix", "lr_floor": 0.05}), METHODS["mixup"])
    with pytest.raises(ValueError, match=r"mixup has lr_floor=0\.0, automix has 0\.05"):
        replace(table, rows=lower, cells=make_cells(lower, table.columns, {}))
    cells = make_cells(rows, table.columns[:1], {})
    assert cells[1].teacher is not None
    alone = replace(cells[1], teacher=replace(cells[1].teacher, values={**cells[1].teacher.values, "ema": False}))
    with pytest.raises(ValueError, match="automix has no teacher without ema=True"):
        replace(table, rows=rows[1:], columns=table.columns[:1], cells=(alone,))


def test_time_left_is_estimated_from_similar_runs(tmp_path: Path) -> None:
    experiment = select(find_experiment("replica"), ["vanilla", "mixup"], ["cifar", "shapes"])
    vanilla, shapes, mixup, _ = jobs = plan_jobs(experiment, Grid(tmp_path, 1))
    assert (vanilla.steps, shapes.steps, mixup.steps) == (5022, 2400, 5022)
    assert [estimate_seconds(job, step_times(jobs)) for job in jobs] == [None] * 4
    vanilla.folder.mkdir()
    (vanilla.folder / "summary.json").write_text('{"seconds": 100.0}')
    assert estimate_seconds(mixup, step_times(jobs)) == pytest.approx(100)
    assert estimate_seconds(shapes, step_times(jobs)) is None
    mixup.folder.mkdir()
    (mixup.folder / "summary.json").write_text('{"seconds": 300.0}')
    later = plan_jobs(experiment, Grid(tmp_path, 2))[4:]
    assert [estimate_seconds(job, step_times([*jobs, *later])) for job in later] == [
        pytest.approx(100),
        None,
        pytest.approx(300),
        None,
    ]


def test_kept_runs_keep_their_names() -> None:
    """Each kept run of a method whose default has changed is still one of the replica's."""
    kept = json.loads((Path(__file__).parent.parent / "docs/results/replica-runs.json").read_text())
    grid = Grid(Path("runs"), trials=3)
    planned = {job.name for experiment in EXPERIMENTS.values() for job in plan_jobs(experiment, grid)}
    for method in CHANGED_DEFAULTS:
        names = {name for name in kept if f"-{method}-" in name}
        assert names
        assert names <= planned
    of_table = {job.name for job in plan_jobs(EXPERIMENTS["table1"], grid)}
    assert not of_table & set(kept)


def test_a_changed_default_has_a_name_of_its_own() -> None:
    values = all_settings({"data": "shapes", "recipe": "quick", "model": "resnet18", "method": "puzzlemix"})
    values["seed"] = 0

    def name(**options: Any) -> str:
        return folder_name({**values, "method_options": options})

    assert name() == name(levels=3)
    assert len({name(), name(levels=2), name(levels=4)}) == 3
