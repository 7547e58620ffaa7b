"""The report: a page of what the run folder holds, whatever is in it, that a browser shows without a word."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from automix.cli.main import execute
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import train
from automix.views.report import report
from automix.views.report.curves import BOTTOM, LEFT, RIGHT, TOP, Scale, Series, chart, number, over_seeds, thin
from automix.views.report.gather import read_run
from automix.views.report.groups import differences, group_runs
from automix.views.report.images import Album, Picture, encode, epoch_pictures
from automix.views.report.markup import element, escape
from automix.views.report.results import headline, percent

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

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        found = [attributes for name, attributes in self.elements if name == tag]
        return [one for one in found if all(one.get(key) == value for key, value in wanted.items())]

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
        (root / f"{name}.html").write_text(report(folders), encoding="utf-8")
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


def test_the_page_of_one_run_has_everything_in_it(runs: Path, pages: dict[str, Path]) -> None:
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
    # three epochs and the strip; accuracy, reliability, corruptions, mixed and the CAM panels
    assert len(images) == 3 + 1 + 5
    assert "Reliability diagram" in page.text
    assert "Class activation maps" in page.text
    summary = json.loads((runs / "automix-0" / "summary.json").read_text())
    assert f"{summary['median_top1_of_last_epochs']:.2f} % top-1 accuracy of the teacher" in page.text
    results = json.loads((runs / "automix-0" / "evaluation" / "results.json").read_text())
    for entry in results.values():
        for name, value in entry["values"].items():
            assert f"{name}{number(value)}" in page.text
        for note in entry["notes"]:
            assert note in page.text
    assert f"--on {'attacks localization efficiency'}" in page.text
    assert f"torch {torch.__version__}" in page.text
    assert (runs / "automix-0" / "config.yaml").read_text() in page.text


def test_curves_are_those_of_the_log(runs: Path, pages: dict[str, Path]) -> None:
    page = Page(pages["one"].read_text(encoding="utf-8"))
    epochs = records(runs / "automix-0")
    curves = {one["data-name"]: one for one in page.all("g") if "data-name" in one}
    for name, metric in {"teacher": "teacher_top1", "total": "loss", "generation": "loss_generation",
                         "training": "mixed_accuracy", "test, lam 0.5": "mask_spread_at_0.5",
                         "|lam - mask mean|": "lam_gap", "mix block": "gradient_norm_mix_block"}.items():  # fmt: skip
        assert curves[name]["data-at"] == "3 6"
        assert curves[name]["data-values"] == " ".join(number(record[metric]) for record in epochs)


def test_a_page_needs_nothing_and_lets_nothing_in(pages: dict[str, Path]) -> None:
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


def test_seeds_are_taken_together(runs: Path, pages: dict[str, Path]) -> None:
    folders = [runs / name for name in ("automix-0", "cutmix-0", "automix-1")]
    automix, cutmix = groups = group_runs([read_run(folder) for folder in folders])
    assert [run.name for run in automix.runs] == ["automix-0", "automix-1"]
    assert [automix.label, cutmix.label] == ["automix", "cutmix"]
    assert differences(groups) == {"method": ["automix", "cutmix"]}
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (folders[0], folders[2]))
    a, b = one["median_top1_of_last_epochs"], two["median_top1_of_last_epochs"]
    assert percent(automix) == f"{(a + b) / 2:.2f} ± {abs(a - b) / 2**0.5:.2f} %"
    page = Page(pages["three"].read_text(encoding="utf-8"))
    assert "comparison" in page.ids()
    assert percent(automix) in page.text
    assert len([one for one in page.all("polygon") if one["class"] == "band"]) > 0
    assert "What differs" in page.text


def test_accuracies_on_different_data_are_not_ranked(runs: Path, copy: Path) -> None:
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("classes: null", "classes: 2", 1))
    text = headline(group_runs([read_run(runs / "automix-0"), read_run(copy)]))
    assert "(2 classes): " in text
    assert "compare within one of them only" in text
    assert "compare" not in headline(group_runs([read_run(runs / "automix-0"), read_run(runs / "cutmix-0")]))


def test_the_same_seed_twice_is_no_second_trial(runs: Path, copy: Path) -> None:
    groups = group_runs([read_run(folder) for folder in (runs / "automix-1", copy)])
    assert [len(group.runs) for group in groups] == [1, 1]
    assert [group.label for group in groups] == ["automix", "run"]  # the folders' names, without the seed
    assert len(Page(report([copy, copy, copy / ".." / copy.name])).all("h1")) == 1
    assert len(group_runs([read_run(copy)])) == 1


def test_a_setting_younger_than_the_run_makes_no_difference(runs: Path, copy: Path) -> None:
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


def test_places_and_ticks_by_hand() -> None:
    assert Scale(0, 100, 50, 250)(25) == 100
    assert Scale(0.01, 100, 0, 8, log=True)(1) == pytest.approx(4)
    assert Scale(0, 2400, 0, 1).ticks(4) == [0, 1000, 2000]
    assert Scale(43, 99, 0, 1).ticks(6) == [50, 60, 70, 80, 90]
    assert Scale(0.001, 10, 0, 1, log=True).ticks(5) == pytest.approx([0.001, 0.01, 0.1, 1, 10])
    drawn = Page(chart([Series("x", [(5, 0.0), (10, 100.0)])], "about"))
    circles = [(float(one["cx"]), float(one["cy"])) for one in drawn.all("circle")]
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
        drawn = chart([series], "about", log=log)
        page = Page(drawn)
        assert "nan" not in drawn
        assert "inf" not in drawn
        for one in page.all("circle"):
            assert TOP - 1 <= float(one["cy"]) <= BOTTOM + 1


EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"


def test_words_out_of_files_are_words(copy: Path) -> None:
    folder = copy.rename(copy.with_name(EVIL.replace("/", "|")))
    append(
        folder,
        json.dumps({"step": 6, "kind": "warning", "about": "x", "message": f"warned {EVIL}"}),
        json.dumps({"step": 6, "kind": "epoch", "epoch": 3, f"loss_{EVIL}": 1.0, "loss": 1.0}),
    )
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + f"# {EVIL}\n")
    (folder / "evaluation").mkdir()
    entry = {"values": {f"value {EVIL}": 1.5}, "notes": [f"note {EVIL}"], "data": EVIL, "images": EVIL}
    (folder / "evaluation" / "results.json").write_text(json.dumps({f"named {EVIL}": entry}))
    text = report([folder])
    page = Page(text)
    assert len(page.all("script")) == 1
    assert not [image for image in page.all("img") if "onerror" in image]
    for words in (f"warned {EVIL}", f"# {EVIL}", f"value {EVIL}", f"note {EVIL}", f"test images of {EVIL}"):
        assert words in page.text
    assert [one for one in page.all("g") if one.get("data-name") == EVIL.replace("_", " ")]
    assert escape("a\0b\ud800<") == "a\ufffdb\ufffd&lt;"
    assert element("p", "<", element("b", "&"), title='"', hidden=True, id=None) == (
        '<p title="&quot;" hidden>&lt;<b>&amp;</b></p>'
    )


def test_pictures_outside_the_folder_are_nobodys_business(copy: Path) -> None:
    Image.new("RGB", (8, 8)).save(copy.parent / "secret.png")
    (copy / "evaluation").mkdir()
    Image.new("RGB", (8, 8)).save(copy / "evaluation" / "mine.png")
    names = ["../../secret.png", str(copy.parent / "secret.png"), "..", "", 5, "mine.png"]
    entry = {"values": {"x": 1.0}, "notes": [], "pictures": names}
    (copy / "evaluation" / "results.json").write_text(json.dumps({"accuracy": entry}))
    alts = [image["alt"] for image in Page(report([copy])).all("img")]
    assert alts.count("mine") == 1
    assert len(alts) == 3 + 1 + 1


def test_damaged_files_are_named_and_left_out(copy: Path) -> None:
    append(copy, '{"step": 7, "kind": "epo', "5", "null", '{"kind": "epoch", "step": 9}', "[" * 100_000)
    append(copy, json.dumps({"step": 9, "kind": "epoch", "epoch": 3, "loss": float("nan"), "student_top1": 50.0}))
    (copy / "summary.json").write_text("{")
    (copy / "pictures" / "epoch-0001.png").write_bytes(b"no picture")
    (copy / "evaluation").mkdir()
    (copy / "evaluation" / "results.json").write_text('{"accuracy": 3}')
    page = Page(report([copy]))
    assert "metrics.jsonl: lines 3, 4, 5, 6, 7 cannot be read" in page.text
    assert "summary.json: cannot be read" in page.text
    assert "epoch-0001.png: cannot be read as a picture" in page.text
    assert "the results of accuracy cannot be read" in page.text
    assert len(read_run(copy).epochs) == 3
    curves = {one["data-name"]: one["data-at"] for one in page.all("g") if "data-name" in one}
    assert curves["student"] == "3 6"  # of the gradient norms, drawn last
    assert curves["total"] == "3 6"  # the NaN is no point
    (copy / "evaluation" / "results.json").write_text("{")
    assert "results.json: cannot be read" in Page(report([copy])).text


def test_a_run_without_an_epoch_has_a_page(copy: Path) -> None:
    for name in ("metrics.jsonl", "summary.json", "last.safetensors", "best.safetensors", "pictures"):
        path = copy / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in copy.glob("checkpoint*"):
        path.unlink()
    page = Page(report([copy]))
    assert "No accuracy has been measured yet." in page.text
    assert "no epoch is finished yet" in page.text
    assert f"automix train --resume --out {copy}" in page.text
    assert f"automix mix {copy}" in page.text
    assert f"automix evaluate {copy} --on all" in page.text
    assert page.all("img") == []
    assert page.all("svg") == []


def test_a_run_of_one_epoch_has_a_page(runs: Path, copy: Path) -> None:
    (copy / "metrics.jsonl").write_text(json.dumps(records(copy)[0]) + "\n")
    page = Page(report([copy]))
    assert "1 of 2 epochs are done" in page.text
    value = records(copy)[0]["teacher_top1"]
    assert f"{value:.2f} % top-1 accuracy of the teacher on the test set so far, after epoch 1 of 2" in page.text
    assert page.all("polyline") == []
    assert page.all("circle")
    # beside a finished one of another seed: no result of its own, and the mean of curves ends with it
    page = Page(report([copy, runs / "automix-0"]))
    assert {one["data-at"] for one in page.all("g") if "data-at" in one} == {"3"}


def test_warnings_stand_near_the_top(copy: Path) -> None:
    append(copy, json.dumps({"step": 6, "kind": "warning", "about": "flat", "message": "the masks are flat"}))
    text = report([copy])
    assert text.index("Warning while training: the masks are flat") < text.index('<section id="curves"')
    assert "warnings" in Page(text).ids()


def test_missing_pictures_are_drawn_from_the_checkpoint(copy: Path) -> None:
    shutil.rmtree(copy / "pictures")
    page = Page(report([copy]))
    assert [image["alt"] for image in page.all("img")] == [
        "Mixed samples over lam, epoch 2; white in a mask is the image, black its partner"
    ]
    assert not (copy / "pictures").exists()


@pytest.mark.parametrize("content", [None, "a: 1", "data: shapes\nmethod: 5\nmodel: x", "- a", "{"])
def test_what_is_no_run_is_told_in_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"accepted|YAML") as caught:
        execute(["report", str(tmp_path)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(ValueError, match="no such folder; accepted is"):
        report([tmp_path / "nothing"])
    with pytest.raises(ValueError, match="no such folder; accepted is"):
        report([Path(__file__)])
    with pytest.raises(ValueError, match="there are no runs"):
        report([])


def test_the_command(copy: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["report", str(copy)])
    assert re.fullmatch(r".*/run/report\.html: 1 run, \d\.\d MB\n", capsys.readouterr().out)
    assert (copy / "report.html").read_text(encoding="utf-8") == report([copy])
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
    assert album.problems == [f"{tmp_path / name}: left out here to keep the page small" for name in "02"]
    lossless = encode(busy, 10**6)
    assert lossless is not None
    (tmp_path / "a.webp").write_bytes(lossless)
    with Image.open(tmp_path / "a.webp") as opened:
        assert opened.convert("RGB").tobytes() == busy.tobytes()


def test_epochs_are_chosen_evenly_and_the_last_is_among_them(runs: Path, copy: Path) -> None:
    for epoch in range(3, 21):
        shutil.copy(copy / "pictures" / "epoch-0001.png", copy / "pictures" / f"epoch-{epoch:04d}.png")
    run = read_run(copy)
    assert list(epoch_pictures(run, 5)) == [0, 5, 10, 15, 20]
    assert list(epoch_pictures(run, 1)) == [20]
    assert list(epoch_pictures(run, 100)) == list(range(21))


# In a real browser


class Visit:
    """A page on a screen, and everything that the browser says about it."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light", script: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script
        )
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state()


@pytest.mark.parametrize("name", ["one", "three"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_a_browser_shows_it_without_a_word(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    visit = Visit(browser, pages[name], width, scheme)
    assert visit.said == []
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
    told = plot.locator(".readout").inner_text()
    assert told.split() == [
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
    assert visit.said == []
    visit.context.close()


def test_without_scripts_nothing_is_missing(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["one"], script=False)
    shown = visit.page.locator(".flip figure:visible")
    assert "epoch 2" in shown.inner_text()
    visit.page.locator(".flip label", has_text=re.compile("^0$")).click()
    assert shown.count() == 1
    assert "epoch 0" in shown.inner_text()
    assert visit.page.locator("svg.chart").count() >= 8
    visit.context.close()


def test_on_paper_it_is_dark_on_white(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["three"], scheme="dark")
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert visit.page.pdf(format="A4").startswith(b"%PDF")
    visit.context.close()
