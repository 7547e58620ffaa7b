"""Each figure of the paper is one picture, whose panels are the rows and whose numbers are those of the runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_runs import EPOCHS, LAMS, bins_of, curve_of, draw_images, keep_runs, spread_of, top1_of, values_of
from PIL import Image

import automix
from automix.cli.main import execute
from automix.pictures import MixedSamples, stack_pictures
from automix.pictures.grid import TITLE_FONT
from automix.runs.classifier import Card, save_classifier
from automix.studies import find_experiment
from automix.studies.composites import COMPOSITES, draw_experiment
from automix.studies.composites.shown import shown_runs
from automix.studies.plan import Grid, Job, select
from automix.studies.results import collect
from automix.studies.run_job import is_complete, missing_evaluators, missing_lams

CLASSIFIER = {"layers": [1, 1, 1, 1], "channels": [4, 4, 4, 4]}


def keep_classifiers(jobs: list[Job]) -> None:
    model = automix.create_model("resnet18", num_classes=3, image_size=16, **CLASSIFIER)
    sizes: dict[str, Any] = {"image_size": 16, "train_size": 16, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    card = Card(model="resnet18", model_options=CLASSIFIER, classes=("newt", "wren", "owl"), **sizes)
    for job in jobs:
        save_classifier(job.folder / "last.safetensors", model, card)


def captured_axes(name: str, module: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Draw a figure of kept runs and return the axes of its plot."""
    figures: list[Any] = []

    def keep(figure: Any) -> Image.Image:
        figures.append(figure)
        return Image.new("RGB", (8, 8))

    monkeypatch.setattr(f"automix.{module}.as_image", keep)
    experiment = find_experiment(name)
    assert draw_experiment(experiment, collect(experiment, Grid(out, 1)), out) is not None
    (figure,) = figures
    return [axis for axis in figure.axes if axis.axison]


def lines(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}


@pytest.mark.parametrize("name", sorted(COMPOSITES))
def test_the_command_leaves_one_picture(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = keep_runs(find_experiment(name), tmp_path)
    keep_classifiers(jobs)
    before = set(tmp_path.rglob("*"))
    execute(["bench", name, "--trials", "1", "--report", "--out", str(tmp_path)])
    left = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - before}
    assert left == {f"{name}.png", f"{name}.md", f"{name}.json"}
    page = (tmp_path / f"{name}.md").read_text()
    assert page.count("![") == 1
    assert f"({name}.png)" in page
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert min(picture.size) > 200
        assert np.asarray(picture.convert("L")).std() > 10


@pytest.mark.parametrize("name", sorted(COMPOSITES))
def test_nothing_is_drawn_before_a_run_is_finished(name: str, tmp_path: Path) -> None:
    experiment = find_experiment(name)
    assert draw_experiment(experiment, collect(experiment, Grid(tmp_path, 1)), tmp_path) is None


def test_figure1_shows_cost_and_a_tile_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = find_experiment("figure1")
    jobs = keep_runs(experiment, tmp_path)
    grids: list[list[list[str]]] = []

    def keep(rows: Any, **options: Any) -> Image.Image:
        grids.append([[tile.caption for tile in row] for row in rows])
        return Image.new("RGB", (8, 8))

    monkeypatch.setattr("automix.studies.composites.samples.tile_grid", keep)
    (axis,) = captured_axes("figure1", "studies.composites.samples", tmp_path, monkeypatch)
    titles = [row.title for row in experiment.rows]
    assert [text.get_text() for text in axis.texts] == titles  # in the order of the accuracy, as the numbers are here
    assert grids == [[["image", "partner", *titles]] * 3]
    number = {job.values["method"]: place for place, job in enumerate(jobs)}  # PuzzleMix's second run has a teacher
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines]
    ratios = [values_of(number[row.name], "")["efficiency"]["step_ratio"] for row in experiment.rows]
    assert [x for x, _ in points] == ratios
    medians = [np.median([top1_of(number[row.name], epoch, "teacher") for epoch in range(1, EPOCHS + 1)])
               for row in experiment.rows]  # fmt: skip
    assert [y for _, y in points] == pytest.approx(medians)


def test_figure4_has_a_line_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = find_experiment("figure4")
    jobs = keep_runs(experiment, tmp_path)
    number = {job.values["method"]: place for place, job in reversed(list(enumerate(jobs)))}  # students first
    for axis, which in zip(
        captured_axes("figure4", "evaluation.mixed", tmp_path, monkeypatch), ("top1", "top2"), strict=True
    ):
        expected = {row.title: (LAMS, curve_of(number[row.name], which)) for row in experiment.rows}
        assert lines(axis) == expected


def test_figure6_shows_accuracy_and_spread_of_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_runs(find_experiment("figure6"), tmp_path)
    accuracy, spread = captured_axes("figure6", "studies.composites.history", tmp_path, monkeypatch)
    epochs = list(range(1, EPOCHS + 1))
    networks = {"AutoMix, no MP": "student", "AutoMix": "teacher"}
    assert lines(accuracy) == {title: (epochs, [top1_of(number, epoch, network) for epoch in epochs])
                               for number, (title, network) in enumerate(networks.items())}  # fmt: skip
    assert lines(spread) == {title: (epochs, [spread_of(number, epoch) for epoch in epochs])
                             for number, title in enumerate(networks)}  # fmt: skip


def test_figure7_has_the_history_of_each_form(tmp_path: Path) -> None:
    experiment = find_experiment("figure7")
    jobs = keep_runs(experiment, tmp_path)
    picture = draw_experiment(experiment, collect(experiment, Grid(tmp_path, 1)), tmp_path)
    assert picture is not None
    histories = [np.asarray(Image.open(job.folder / "pictures" / "over-time.png").convert("RGB")) for job in jobs]
    height, width, _ = histories[0].shape
    assert picture.size[0] == width
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[-height:], histories[1])
    upper = pixels.shape[0] // 2
    assert np.array_equal(pixels[upper - height : upper], histories[0])


def test_figure8_has_a_diagram_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = find_experiment("figure8")
    jobs = keep_runs(experiment, tmp_path)
    number = {job.values["method"]: place for place, job in reversed(list(enumerate(jobs)))}
    axes = captured_axes("figure8", "studies.composites.reliability", tmp_path, monkeypatch)
    titles = [f"{row.title} ({'teacher' if row.name == 'automix' else 'student'})" for row in experiment.rows]
    assert [axis.get_title() for axis in axes] == titles
    for axis, row in zip(axes, experiment.rows, strict=True):
        drawn = [bar.get_height() for bar in axis.containers[0]]
        expected = [np.nan if value is None else value for value in bins_of(number[row.name])["accuracy"]]
        np.testing.assert_allclose(drawn, expected)
        (text,) = axis.texts
        assert text.get_text() == f"ECE {2 + number[row.name]:.1f} %"


@pytest.mark.parametrize("methods", [["automix"], ["mixup", "automix"], ["mixup", "cutmix", "automix"]])
def test_figure8_of_a_few_methods_is_not_cut_off(methods: list[str], tmp_path: Path) -> None:
    experiment = find_experiment("figure8")
    keep_runs(select(experiment, methods, None), tmp_path)
    picture = draw_experiment(experiment, collect(experiment, Grid(tmp_path, 1)), tmp_path)
    assert picture is not None
    pixels = np.asarray(picture)
    assert all((edge == 255).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))


@pytest.mark.parametrize(("name", "settings"), [("figure9", [0.2, 0.5, 1, 2, 4]), ("figure10", [1, 2, 3, 4])])
def test_sweeps_are_lines_over_the_setting(
    name: str, settings: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = find_experiment(name)
    keep_runs(experiment, tmp_path)
    axes = captured_axes(name, "studies.composites.lines", tmp_path, monkeypatch)
    assert [axis.get_title() for axis in axes] == [column.title for column in experiment.columns]
    for axis, table in zip(axes, collect(experiment, Grid(tmp_path, 1)), strict=True):
        for bars, network in zip(axis.containers, ("student", "teacher"), strict=True):
            assert list(bars.lines[0].get_xdata()) == settings
            means = [row.results[network].trials.mean for row in table.rows]  # type: ignore[index, union-attr]
            assert list(bars.lines[0].get_ydata()) == means


def test_rows_without_results_have_no_panel(tmp_path: Path) -> None:
    keep_runs(select(find_experiment("figure8"), ["mixup", "automix"], None), tmp_path)
    runs = shown_runs(collect(find_experiment("figure8"), Grid(tmp_path, 1)), tmp_path)
    assert [(run.title, run.network, run.method) for run in runs] == [
        ("MixUp", "student", "mixup"),
        ("AutoMix", "teacher", "automix"),
    ]


@pytest.mark.parametrize("name", ["figure1", "figure3", "figure4", "figure6", "figure12"])
def test_runs_whose_samples_have_other_lams_have_no_tiles(name: str, tmp_path: Path) -> None:
    """Runs of another figure, before this one's samples are made: ``--report``, or a part of the rows."""
    jobs = keep_runs(find_experiment(name), tmp_path)
    keep_classifiers(jobs)
    for job in jobs:
        kept = MixedSamples.read(job.folder / "evaluation" / "samples.safetensors")
        mask, mixed = (next(iter(by_lam.values())) for by_lam in (kept.masks, kept.mixed))
        replace(kept, masks={0.77: mask}, mixed={0.77: mixed}).write(job.folder / "evaluation" / "samples.safetensors")
    tables = collect(find_experiment(name), Grid(tmp_path, 1))
    picture = draw_experiment(find_experiment(name), tables, tmp_path)
    assert (picture is None) == (name in ("figure3", "figure12"))  # the others have curves


@pytest.mark.parametrize("name", ["figure4", "figure8"])
def test_evaluations_without_series_have_no_curves(name: str, tmp_path: Path) -> None:
    for job in keep_runs(find_experiment(name), tmp_path):
        for results in job.folder.glob("evaluation*/results.json"):
            results.write_text(results.read_text().replace('"series"', '"other"'))
    picture = draw_experiment(find_experiment(name), collect(find_experiment(name), Grid(tmp_path, 1)), tmp_path)
    assert (picture is None) == (name == "figure8")


def test_lams_and_series_of_another_experiment_are_added(tmp_path: Path) -> None:
    """Figures 1 and 4 share their runs: those of one need further samples and series for the other."""
    experiment = select(find_experiment("figure4"), ["mixup"], None)
    (job,) = keep_runs(experiment, tmp_path)
    assert is_complete(job)
    job.lams = (0.3, 0.5)
    assert missing_lams(job) == [0.5]
    assert not is_complete(job)
    results = job.folder / "evaluation" / "results.json"
    results.write_text(results.read_text().replace('"series"', '"other"'))
    assert missing_evaluators(job, "teacher") == ["mixed"]
    job.series = ()
    assert missing_evaluators(job, "teacher") == []


def test_kept_samples_are_read_as_they_were(tmp_path: Path) -> None:
    images = (draw_images(3) * 255).round() / 255
    mask = torch.rand(3, 1, 16, 16)
    kept = MixedSamples(images, images.roll(1, 0), {0.3: mask}, {0.3: images * mask}, torch.tensor([2, 0, 1]))
    kept.write(tmp_path / "samples.safetensors")
    read = MixedSamples.read(tmp_path / "samples.safetensors")
    torch.testing.assert_close(read.images, kept.images)
    torch.testing.assert_close(read.partners, kept.partners)
    assert list(read.mixed) == list(read.masks) == [0.3]
    torch.testing.assert_close(read.masks[0.3], mask, atol=0.5 / 255 + 1e-6, rtol=0)
    torch.testing.assert_close(read.mixed[0.3], images * mask, atol=0.5 / 255 + 1e-6, rtol=0)
    assert read.labels is not None
    assert read.labels.tolist() == [2, 0, 1]


def test_stacked_pictures_are_whole() -> None:
    red, blue = Image.new("RGB", (30, 10), "red"), Image.new("RGB", (300, 20), "blue")
    stack = stack_pictures([("", red), ("below", blue)])
    assert stack.width == 300
    assert stack.height > 10 + 20 + TITLE_FONT
    pixels = np.asarray(stack)
    assert (pixels[:10, 135:165] == (255, 0, 0)).all()
    assert (pixels[:10, :135] == 255).all()
    assert (pixels[-20:] == (0, 0, 255)).all()
    assert (pixels[10:-20] < 100).any()  # the title
