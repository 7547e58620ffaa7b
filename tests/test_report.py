"""The report: a page of what the run folder holds, damaged or not, that a browser shows without warnings."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from jinja2 import UndefinedError
from markupsafe import Markup
from PIL import Image
from safetensors.torch import save_file

from automix.cli.main import execute
from automix.core.accuracy import accuracy_interval
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import train
from automix.views.html import render_template
from automix.views.report import render_report
from automix.views.report.album import Album, Picture, encode
from automix.views.report.chart import BOTTOM, LEFT, RIGHT, TOP, Chart, Scale, lay_out_chart
from automix.views.report.evaluations import missing_evaluations
from automix.views.report.groups import differences, group_runs
from automix.views.report.numbers import number, tick_label
from automix.views.report.pictures import epoch_pictures
from automix.views.report.run_record import read_run
from automix.views.report.series import Series, over_seeds, thin
from automix.views.report.summary import percent

LIMIT = 5_000_000  # bytes of a page


class Page(HTMLParser):
    """A page, checked for being well formed while it is read."""

    VOID = ("img", "input", "meta")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str, **expected: str) -> list[dict[str, str]]:
        found = [attributes for name, attributes in self.elements if name == tag]
        return [one for one in found if all(one.get(key) == value for key, value in expected.items())]

    def ids(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.elements if "id" in attributes}


def configure(photos: Path, out: Path, method: str = "automix", seed: int = 0) -> TrainConfig:
    """2 epochs of 3 steps of 12 images."""
    return TrainConfig(
        data=str(photos),
        method=method,
        out=str(out),
        seed=seed,
        model_options={"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
        settings=replace(find_recipe("quick"), epochs=2, batch_size=12),
    )


@pytest.fixture(scope="module")
def runs(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """automix with seeds 0 and 1, the first of them evaluated, and cutmix."""
    root = tmp_path_factory.mktemp("runs")
    train(configure(photos, root / "automix-0"))
    train(configure(photos, root / "automix-1", seed=1))
    train(configure(photos, root / "cutmix-0", "cutmix"))
    execute(["evaluate", str(root / "automix-0"), "--on", "accuracy", "calibration", "corruptions", "mixed"])
    return root


@pytest.fixture(scope="module")
def pages(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of one run and of three."""
    root = tmp_path_factory.mktemp("pages")
    found = {"one": [runs / "automix-0"], "three": [runs / name for name in ("automix-0", "automix-1", "cutmix-0")]}
    for name, folders in found.items():
        (root / f"{name}.html").write_text(render_report(folders), encoding="utf-8")
    return {name: root / f"{name}.html" for name in found}


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    """A run without evaluations that a test may change."""
    shutil.copytree(runs / "automix-1", tmp_path / "run")
    return tmp_path / "run"


def records(folder: Path, kind: str = "epoch") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def append(folder: Path, *lines: str) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_the_page_of_one_run_is_complete(runs: Path, pages: dict[str, Path]) -> None:
    text = pages["one"].read_text(encoding="utf-8")
    page = Page(text)
    assert len(text.encode()) < LIMIT
    assert {"curves", "mixed-samples", "evaluations", "configuration", "versions"} <= page.ids()
    assert "comparison" not in page.ids()
    assert {f"evaluation-{name}" for name in ("accuracy", "calibration", "corruptions", "mixed")} <= page.ids()
    links = {one["href"].removeprefix("#") for one in page.all("a")}
    assert links <= page.ids()
    images = page.all("img")
    assert all(image["src"].startswith("data:image/webp;base64,") and image["alt"] for image in images)
    # three epochs and the history; reliability, corruptions, mixed and the CAM panels; accuracy by class and the errors
    assert len(images) == 3 + 1 + 4 + 4
    assert [section for section in page.ids() if section == "errors"] == ["errors"]
    assert text.index("confused most often") < text.index("Mixed samples over lam")
    assert "Reliability diagram" in page.text
    assert "Class activation maps" in page.text
    summary = json.loads((runs / "automix-0" / "summary.json").read_text())
    low, high = accuracy_interval(summary["teacher_top1"], summary["test_images"])
    assert f"{summary['teacher_top1']:.2f} % top-1 accuracy on" in page.text
    assert "of the teacher, which automix predict uses" in page.text
    assert f"{summary['test_images']} test images (95 % interval {low:.1f} to {high:.1f} %)" in page.text
    results = json.loads((runs / "automix-0" / "evaluation" / "results.json").read_text())
    for entry in results.values():
        for name, value in entry["values"].items():
            assert f"{name}{number(value)}" in page.text
        for note in entry["notes"]:
            assert note in page.text
    assert "--on attacks efficiency" in page.text  # no localization: the photographs have no boxes
    assert f"torch {torch.__version__}" in page.text
    assert (runs / "automix-0" / "config.yaml").read_text() in page.text


def test_curves_are_those_of_the_log(runs: Path, pages: dict[str, Path]) -> None:
    page = Page(pages["one"].read_text(encoding="utf-8"))
    epochs = records(runs / "automix-0")
    curves = {one["data-name"]: one for one in page.all("g") if "data-name" in one}
    for name, metric in {"teacher": "teacher_top1", "mixed": "loss_mixed", "generation": "loss_generation",
                         "training": "mixed_accuracy", "test, lam 0.5": "mask_spread_at_0.5",
                         "mix block": "gradient_norm_mix_block"}.items():  # fmt: skip
        assert curves[name]["data-at"] == "3 6"
        assert curves[name]["data-values"] == " ".join(number(record[metric]) for record in epochs)
    assert all(record["lam_gap"] < 1e-4 for record in epochs)  # by construction
    assert not {"|lam - mask mean|", "lam 0.5", "total"} & curves.keys()


def test_charts_that_are_constant_by_construction_are_left_out_and_no_others(copy: Path) -> None:
    path = copy / "metrics.jsonl"
    path.write_text(re.sub(r'"lam_gap": [^,}]*', '"lam_gap": 0.02', path.read_text()))
    text = Page(render_report([copy])).text
    assert "Lam gap" in text
    assert "Mask mean" in text


def test_the_headline_is_the_network_that_predict_uses(copy: Path) -> None:
    """The last evaluation counts, not the median of the last ten."""
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if record["kind"] == "epoch":
            record["teacher_top1"] = 30.0 if record["epoch"] == 1 else 90.0
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    text = Page(render_report([copy])).text
    assert "90.00 % top-1 accuracy on 12 test images (95 % interval" in text
    assert "of the teacher, which automix predict uses" in text
    assert "median of the last 2 evaluations60.00 %" in text


def test_localization_is_suggested_only_where_an_evaluation_saw_boxes(copy: Path) -> None:
    for has_boxes in (False, True):
        (copy / "evaluation").mkdir(exist_ok=True)
        entry = {"values": {"top1": 50.0}, "has_boxes": has_boxes}
        (copy / "evaluation" / "results.json").write_text(json.dumps({"accuracy": entry}))
        (missing,) = missing_evaluations(group_runs([read_run(copy)]))
        assert ("localization" in missing.names) == has_boxes
        assert ("localization" in missing.command.split("--on")[1]) == has_boxes


def test_a_page_loads_nothing_and_runs_only_its_own_script(pages: dict[str, Path]) -> None:
    text = pages["three"].read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'<)]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, no address
    page = Page(text)
    assert not [one for _, one in page.elements if {"style", "onload", "onerror", "onclick"} & one.keys()]
    assert len(page.all("script")) == 1
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    for tag in ("script", "style"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert content is not None
        assert base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    for name in ("style.css", "hover.js"):
        assert files("automix.views.report").joinpath(name).is_file()


def test_runs_of_several_seeds_form_one_group(runs: Path, pages: dict[str, Path]) -> None:
    folders = [runs / name for name in ("automix-0", "cutmix-0", "automix-1")]
    automix, cutmix = groups = group_runs([read_run(folder) for folder in folders])
    assert [run.name for run in automix.runs] == ["automix-0", "automix-1"]
    assert [automix.label, cutmix.label] == ["automix", "cutmix"]
    assert differences(groups) == {"method": ["automix", "cutmix"], "ema": [True, False]}
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (folders[0], folders[2]))
    a, b = one["median_top1_of_last_epochs"], two["median_top1_of_last_epochs"]
    assert percent(automix) == f"{(a + b) / 2:.2f} ± {abs(a - b) / 2**0.5:.2f} %"
    page = Page(pages["three"].read_text(encoding="utf-8"))
    assert "comparison" in page.ids()
    assert percent(automix) in page.text
    assert len([one for one in page.all("polygon") if one["class"] == "band"]) > 0
    assert "Differences" in page.text


def test_labels_name_the_settings_in_which_runs_of_one_method_differ(runs: Path, copy: Path) -> None:
    path = copy / "config.yaml"
    path.write_text(re.sub(r"(?m)^lr: .*$", "lr: 0.05", path.read_text()))
    groups = group_runs([read_run(folder) for folder in (runs / "automix-0", copy, runs / "cutmix-0")])
    assert [group.label for group in groups] == ["automix, lr 0.1", "automix, lr 0.05", "cutmix"]


def test_accuracies_on_different_data_are_not_ranked(runs: Path, copy: Path) -> None:
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("classes: null", "classes: 2", 1))
    refusal = "accuracies on different test sets do not compare"
    text = Page(render_report([runs / "automix-0", copy])).text
    assert "(2 classes): " in text
    assert refusal in text
    assert refusal not in Page(render_report([runs / "automix-0", runs / "cutmix-0"])).text


def test_runs_of_the_same_seed_form_separate_groups(runs: Path, copy: Path) -> None:
    groups = group_runs([read_run(folder) for folder in (runs / "automix-1", copy)])
    assert [len(group.runs) for group in groups] == [1, 1]
    assert [group.label for group in groups] == ["automix", "run"]  # the folders' names, without the seed
    assert len(Page(render_report([copy, copy, copy / ".." / copy.name])).all("h1")) == 1
    assert len(group_runs([read_run(copy)])) == 1


def test_a_setting_missing_in_an_old_run_counts_as_its_default(runs: Path, copy: Path) -> None:
    path = copy / "config.yaml"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("bad_data")))
    assert "bad_data" not in read_run(copy).config
    assert len(group_runs([read_run(runs / "automix-0"), read_run(copy)])) == 1


def test_mean_and_spread_by_hand() -> None:
    found = over_seeds("x", [[(1, 1.0), (2, 4.0), (3, 9.0)], [(1, 3.0), (2, 4.0)], [(1, 5.0), (2, 4.0)]], 2)
    assert found.points == [(1, 3.0), (2, 4.0)]  # up to where the shortest has come
    assert found.spread == (2.0, 0.0)
    assert over_seeds("x", [[(1, 1.0), (3, 2.0)]]) == Series("x", [(1, 1.0), (3, 2.0)])


def test_a_thinned_curve_keeps_its_ends_and_its_peaks() -> None:
    points = [(step, 1.0 + step / 10_000) for step in range(5000)]
    points[1234] = (1234, 50.0)
    points[3210] = (3210, -50.0)
    spread = tuple(float(step) for step in range(5000))
    found = thin(Series("x", points, 3, spread), 100)
    assert 50 <= len(found.points) <= 104
    assert {points[0], points[-1], (1234, 50.0), (3210, -50.0)} <= set(found.points)
    assert found.spread == tuple(float(step) for step, _ in found.points)
    assert [step for step, _ in found.points] == sorted(step for step, _ in found.points)


def drawn(chart: Chart) -> str:
    return render_template("automix.views.report", "chart.svg.jinja", chart=chart)


def test_coordinates_and_ticks_by_hand() -> None:
    assert Scale(0, 100, 50, 250)(25) == 100
    assert Scale(0.01, 100, 0, 8, log=True)(1) == pytest.approx(4)
    assert Scale(0, 2400, 0, 1).ticks(4) == [0, 1000, 2000]
    assert Scale(43, 99, 0, 1).ticks(6) == [50, 60, 70, 80, 90]
    assert [tick_label(value) for value in (0, 2.5, 1500, 20_000, 3e6, 3.2e-8)] == [
        "0",
        "2.5",
        "1500",
        "20k",
        "3M",
        "3.2e-8",
    ]
    assert Scale(0.001, 10, 0, 1, log=True).ticks(5) == pytest.approx([0.001, 0.01, 0.1, 1, 10])
    page = Page(drawn(lay_out_chart([Series("x", [(5, 0.0), (10, 100.0)])], "title")))
    circles = [(float(one["cx"]), float(one["cy"])) for one in page.all("circle")]
    assert circles[0] == ((LEFT + RIGHT) / 2, BOTTOM)
    assert circles[1][0] == RIGHT
    assert circles[1][1] == pytest.approx(BOTTOM - (BOTTOM - TOP) * 100 / 105, abs=0.06)  # 5 % of room above


@pytest.mark.parametrize(
    "values", [[0.0], [1e-8, 1e-8], [-3.0, -3.0], [0.0, 1e9], [1e-8, 1e3], [5e-324, 1.0], [-1e300, 1e300]]
)
@pytest.mark.parametrize("log", [False, True])
def test_any_finite_values_can_be_drawn(values: list[float], log: bool) -> None:
    spread = tuple(2 * abs(value) for value in values)
    for series in (Series("x", list(enumerate(values))), Series("x", list(enumerate(values)), 11, spread)):
        svg = drawn(lay_out_chart([series], "title", log=log))
        page = Page(svg)
        assert "nan" not in svg
        assert "inf" not in svg
        for one in page.all("circle"):
            assert TOP - 1 <= float(one["cy"]) <= BOTTOM + 1


EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"


def test_text_from_files_and_file_names_is_escaped(copy: Path) -> None:
    folder = copy.rename(copy.with_name(EVIL.replace("/", "|")))
    append(
        folder,
        json.dumps({"step": 6, "kind": "warning", "about": "x", "message": f"warned {EVIL}"}),
        json.dumps({"step": 6, "kind": "epoch", "epoch": 3, f"loss_{EVIL}": 1.0, "loss": 1.0}),
    )
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + f"# {EVIL}\n")
    (folder / "evaluation").mkdir()
    picture = f"{EVIL.replace('/', '|')}.png"
    Image.new("RGB", (8, 8)).save(folder / "evaluation" / picture)
    entry = {"values": {f"accuracy of class {EVIL}": 1.5}, "notes": [f"note {EVIL}"], "data": EVIL, "images": EVIL}
    entry["pictures"] = [picture]
    (folder / "evaluation" / "results.json").write_text(json.dumps({f"named {EVIL}": entry}))
    text = render_report([folder])
    page = Page(text)
    assert len(page.all("script")) == 1
    assert not [image for image in page.all("img") if "onerror" in image]
    assert picture.removesuffix(".png") in [image["alt"] for image in page.all("img")]
    for words in (f"warned {EVIL}", f"# {EVIL}", f"accuracy of class {EVIL}", f"note {EVIL}", f"test images of {EVIL}"):
        assert words in page.text
    assert [one for one in page.all("g") if one.get("data-name") == EVIL.replace("_", " ")]


def test_templates_escape_values_and_refuse_missing_ones() -> None:
    rows = [("a\0b\ud800<", "\"'&"), (Markup("<b>"), "")]
    page = render_template("automix.views.report", "versions.html.jinja", versions=rows)
    assert '<th scope="row">a\ufffdb\ufffd&lt;</th><td>&#34;&#39;&amp;</td>' in page
    assert '<th scope="row"><b></th>' in page  # markup stays markup
    with pytest.raises(UndefinedError):
        render_template("automix.views.report", "versions.html.jinja")


def test_pictures_outside_the_evaluation_folder_are_not_shown(copy: Path) -> None:
    Image.new("RGB", (8, 8)).save(copy.parent / "secret.png")
    (copy / "evaluation").mkdir()
    Image.new("RGB", (8, 8)).save(copy / "evaluation" / "mine.png")
    names = ["../../secret.png", str(copy.parent / "secret.png"), "..", "", 5, "mine.png"]
    entry = {"values": {"x": 1.0}, "notes": [], "pictures": names}
    (copy / "evaluation" / "results.json").write_text(json.dumps({"accuracy": entry}))
    alts = [image["alt"] for image in Page(render_report([copy])).all("img")]
    assert alts.count("mine") == 1
    assert len(alts) == 3 + 1 + 1


def test_damaged_files_are_named_and_left_out(copy: Path) -> None:
    append(copy, '{"step": 7, "kind": "epo', "5", "null", '{"kind": "epoch", "step": 9}', "[" * 100_000)
    append(copy, json.dumps({"step": 9, "kind": "epoch", "epoch": 3, "loss_mixed": float("nan"), "student_top1": 50.0}))
    (copy / "summary.json").write_text("{")
    (copy / "pictures" / "epoch-0001.png").write_bytes(b"no picture")
    (copy / "evaluation").mkdir()
    (copy / "evaluation" / "results.json").write_text('{"accuracy": 3}')
    page = Page(render_report([copy]))
    assert "metrics.jsonl: lines 3, 4, 5, 6, 7 cannot be read" in page.text
    assert "summary.json: cannot be read" in page.text
    assert "epoch-0001.png: cannot be read as a picture" in page.text
    assert "the results of accuracy cannot be read" in page.text
    assert len(read_run(copy).epochs) == 3
    curves = {one["data-name"]: one["data-at"] for one in page.all("g") if "data-name" in one}
    assert curves["student"] == "3 6"  # of the gradient norms, drawn last
    assert curves["mixed"] == "3 6"  # the NaN is no point
    (copy / "evaluation" / "results.json").write_text("{")
    assert "results.json: cannot be read" in Page(render_report([copy])).text


@pytest.mark.parametrize(
    "metadata", [{}, {"automix": "["}, {"automix": '{"environment": 3, "facts": {"card": "["}}'}, {"automix": "[1]"}]
)
def test_unexpected_metadata_of_weights_is_ignored(copy: Path, metadata: dict[str, str]) -> None:
    for name in ("checkpoint", "last", "best"):
        save_file({"x": torch.zeros(1)}, copy / f"{name}.safetensors", metadata=metadata)
    assert read_run(copy).versions == {}


def test_a_run_without_an_epoch_has_a_page(copy: Path) -> None:
    for name in ("metrics.jsonl", "summary.json", "last.safetensors", "best.safetensors", "pictures"):
        path = copy / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in copy.glob("checkpoint*"):
        path.unlink()
    page = Page(render_report([copy]))
    assert "No accuracy has been measured yet." in page.text
    assert "no epoch is finished yet" in page.text
    assert f"automix train --resume --out {copy}" in page.text
    assert f"automix mix {copy}" in page.text
    assert f"automix evaluate {copy} --on all" in page.text
    assert page.all("img") == []
    assert page.all("svg") == []


def test_a_run_of_one_epoch_has_a_page(runs: Path, copy: Path) -> None:
    (copy / "metrics.jsonl").write_text(json.dumps(records(copy)[0]) + "\n")
    page = Page(render_report([copy]))
    assert "1 of 2 epochs are done" in page.text
    value = records(copy)[0]["teacher_top1"]
    assert f"{value:.2f} % top-1 accuracy of the teacher on the test set so far, after epoch 1 of 2" in page.text
    assert page.all("polyline") == []
    assert page.all("circle")
    # beside a finished one of another seed: no result of its own, and the mean of curves ends with it
    page = Page(render_report([copy, runs / "automix-0"]))
    assert {one["data-at"] for one in page.all("g") if "data-at" in one} == {"3"}


def test_warnings_stand_above_the_curves(copy: Path) -> None:
    append(copy, json.dumps({"step": 6, "kind": "warning", "about": "flat", "message": "the masks are flat"}))
    text = render_report([copy])
    assert text.index("Warning while training: the masks are flat") < text.index('<section id="curves"')
    assert "warnings" in Page(text).ids()


def test_missing_pictures_are_drawn_from_the_checkpoint(copy: Path) -> None:
    shutil.rmtree(copy / "pictures")
    page = Page(render_report([copy]))
    assert [image["alt"] for image in page.all("img")] == [
        "Mixed samples over lam, epoch 2. In a mask, white is the image and black its partner."
    ]
    assert not (copy / "pictures").exists()


@pytest.mark.parametrize("content", [None, "a: 1", "data: shapes\nmethod: 5\nmodel: x", "- a", "{"])
def test_a_folder_without_a_run_is_a_one_line_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"config\.yaml") as caught:
        execute(["report", str(tmp_path)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "report.html").exists()
    for path in (tmp_path / "nothing", Path(__file__)):
        with pytest.raises(ValueError, match=f"{path.name}: no such folder"):
            render_report([path])
    with pytest.raises(ValueError, match="folders"):
        render_report([])


def test_the_command(copy: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["report", str(copy)])
    assert re.fullmatch(r".*/run/report\.html: 1 run, \d\.\d MB\n", capsys.readouterr().out)
    assert (copy / "report.html").read_text(encoding="utf-8") == render_report([copy])
    out = tmp_path / "new" / "both.html"
    execute(["report", str(copy), str(runs / "cutmix-0"), "--out", str(out)])
    assert "2 runs" in capsys.readouterr().out
    Page(out.read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"out.*report\.html"):
        execute(["report", str(copy), "--out", str(tmp_path)])


def test_pictures_fit_into_the_budget(tmp_path: Path) -> None:
    noise = torch.randint(256, (300, 400, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    plain, busy = Image.new("RGB", (400, 300), "red"), Image.fromarray(noise)
    pictures = [Picture(tmp_path / str(number), image) for number, image in enumerate([busy, plain, busy])]
    for budget in (2_000_000, 150_000, 60_000):
        album = Album(pictures, budget)
        shown = [album[picture] for picture in pictures]
        assert all(one is not None and (one.width, one.height) == (400, 300) for one in shown)
        assert sum(len(one.uri) for one in shown if one) <= budget * 4 / 3 + 100
        assert album.problems == []
    album = Album(pictures, 1000)
    assert [album[picture] is None for picture in pictures] == [True, False, True]
    assert album.problems == [f"{tmp_path / name}: left out to keep the page small" for name in "02"]
    lossless = encode(busy, 10**6)
    assert lossless is not None
    (tmp_path / "a.webp").write_bytes(lossless)
    with Image.open(tmp_path / "a.webp") as opened:
        assert opened.convert("RGB").tobytes() == busy.tobytes()


def test_chosen_epochs_are_evenly_spaced_and_include_the_last(runs: Path, copy: Path) -> None:
    for epoch in range(3, 21):
        shutil.copy(copy / "pictures" / "epoch-0001.png", copy / "pictures" / f"epoch-{epoch:04d}.png")
    run = read_run(copy)
    assert list(epoch_pictures(run, 5)) == [0, 5, 10, 15, 20]
    assert list(epoch_pictures(run, 1)) == [20]
    assert list(epoch_pictures(run, 100)) == list(range(21))


# In a real browser


class Visit:
    """A page in a browser, with its console messages and requests."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light", script: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script
        )
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state()


@pytest.mark.parametrize("name", ["one", "three"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_a_browser_shows_the_page_without_warnings(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    visit = Visit(browser, pages[name], width, scheme)
    assert visit.messages == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    loaded = "[...document.images].map(image => image.complete && image.naturalWidth > 0)"
    assert set(visit.page.evaluate(loaded)) == {True}
    for details in visit.page.locator("details").all():
        details.evaluate("one => one.open = true")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    shades = [int(shade) for shade in re.findall(r"\d+", background)]
    assert max(shades) < 60 if scheme == "dark" else min(shades) > 200
    small = "[...document.querySelectorAll('svg.chart text')].map(t => t.getBoundingClientRect().height)"
    assert min(visit.page.evaluate(small)) >= 9
    visit.context.close()


def test_the_pointer_reads_values_and_epochs_can_be_chosen(browser: Any, pages: dict[str, Path], runs: Path) -> None:
    visit = Visit(browser, pages["one"])
    plot = visit.page.locator(".plot").first
    chart_box = plot.locator("svg").bounding_box()
    plot.locator("svg").hover(position={"x": chart_box["width"] - 8, "y": 40})
    last = records(runs / "automix-0")[-1]
    readout = plot.locator(".readout").inner_text()
    assert readout.split() == [
        "step",
        "6",
        number(last["teacher_top1"]),
        "teacher",
        number(last["student_top1"]),
        "student",
    ]
    plot.locator("svg").hover(position={"x": chart_box["width"] / 2, "y": 40})
    assert plot.locator(".readout").inner_text().startswith("step 3")
    visit.page.mouse.move(0, 0)
    assert not plot.locator(".readout").is_visible()
    assert visit.messages == []
    visit.context.close()


def test_the_page_works_without_scripts(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["one"], script=False)
    shown = visit.page.locator(".epochs figure:visible")
    assert "epoch 2" in shown.inner_text()
    visit.page.locator(".epochs label", has_text=re.compile("^0$")).click()
    assert shown.count() == 1
    assert "epoch 0" in shown.inner_text()
    assert visit.page.locator("svg.chart").count() >= 8
    visit.context.close()


def test_printed_pages_are_dark_on_white(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["three"], scheme="dark")
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert visit.page.pdf(format="A4").startswith(b"%PDF")
    visit.context.close()


@pytest.mark.parametrize("name", ["one", "three"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing(
    browser: Any,
    pages: dict[str, Path],
    find_violations: Callable[[Any], list[str]],
    name: str,
    width: int,
    scheme: str,
) -> None:
    """Contrast, headings, names of tables and pictures, with everything unfolded: the errors are among it."""
    visit = Visit(browser, pages[name], width, scheme)
    for details in visit.page.locator("details").all():
        details.evaluate("one => one.open = true")
    assert name != "one" or visit.page.locator("#errors img").count() >= 2
    assert find_violations(visit.page) == []
    visit.context.close()


def test_the_keyboard_reaches_the_parts_and_chooses_epochs(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["one"])
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#errors"
    page.keyboard.press("Enter")
    assert page.url.endswith("#errors")
    page.locator(".epochs input:checked").first.focus()
    shown = page.locator(".epochs figure:visible")
    assert "epoch 2" in shown.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "epoch 1" in shown.inner_text()
    visit.context.close()
