"""The code of every page: Python blocks are run, and every `automix ...` command line names what exists.

A page's Python blocks run in order in one namespace and in a temporary folder. Names that a reader would have already
(`model`, `loader`, a trained run in `runs/x`) are small stand-ins, defined here once. A block that cannot run here has
``<!-- not run: reason -->`` on the line above it.
"""

import importlib
import re
import shlex
import shutil
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cyclopts
import pytest
import timm
import torch
from conftest import HandWritten, batch
from torch.utils.data import DataLoader, TensorDataset

import automix
from automix.cli import main as cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")])
BLOCK = re.compile(
    r"^(?:[ ]*<!-- not run: (?P<reason>.+?) -->\n)?(?P<indent>[ ]*)```python\n(?P<code>.*?)^(?P=indent)```",
    flags=re.DOTALL | re.MULTILINE,
)
CLASSES, SIZE = 100, 32
TINY_RUN = (
    "--model-options.layers [1,1,1,1] --model-options.channels [8,8,8,8] --per-class 4 --epochs 1 --batch-size 24"
)


@dataclass(frozen=True)
class Block:
    """A Python block of a page: its code, and why it is not run (empty if it is)."""

    code: str
    reason: str


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(textwrap.dedent(match["code"]), match["reason"] or "") for match in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# --- stand-ins -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of AutoMix on drawn images, one epoch of a tiny network."""
    out = tmp_path_factory.mktemp("trained") / "run"
    assert cli.run(["train", "shapes", *TINY_RUN.split(), "--out", str(out)]) == 0
    return out


@pytest.fixture
def folder(trained: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page runs: a few runs and a folder of images."""
    for seed, name in enumerate(("x", "a-0", "a-1", "a-2")):
        run = shutil.copytree(trained, tmp_path / "runs" / name)
        settings = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(settings.replace("\nseed: 0\n", f"\nseed: {seed}\n"))
    shutil.copytree(photos, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small_network(num_classes: int = CLASSES) -> torch.nn.Module:
    small = {"layers": (1, 1, 1, 1), "channels": (4, 4, 8, 8)}
    return automix.create_model("resnet18", num_classes=num_classes, image_size=SIZE, **small)


def common_names() -> dict[str, Any]:
    """What a reader of any page has: a network, batches of images, a loop's settings."""
    x, y = batch(8, SIZE, SIZE, num_classes=10)
    data = TensorDataset(x, y)
    model = small_network()
    return {
        "automix": automix,
        "torch": torch,
        "timm": timm,
        "Path": Path,
        "model": model,
        "mine": HandWritten(CLASSES),
        "helper": small_network(),
        "teacher": small_network(),
        "data": data,
        "loader": DataLoader(data, 4),
        "train_loader": DataLoader(data, 4),
        "test_loader": DataLoader(data, 4),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "device": torch.device("cpu"),
        "accumulate": 2,
        "total": 20,
        "total_steps": 20,
        "x": x,
        "y": y,
        "z": torch.randn(8, 6, 4, 4),
        "saliency": torch.rand(8, SIZE, SIZE),
        "attention": torch.rand(8, 4, 4),
        "g": torch.Generator().manual_seed(0),
        "generator": torch.Generator().manual_seed(0),
    }


def stylemix_names() -> dict[str, Any]:
    """The two networks of AdaIN, with random weights, as modules and as files."""
    from test_stylemix import save_random, small

    Path("adain").mkdir()
    save_random(Path("adain"))
    x, y = batch(2, SIZE, SIZE, CLASSES)
    return {**small(), "x": x, "y": y}


def hugging_face_names() -> dict[str, Any]:
    """A tiny ResNet of transformers in a folder, and a dataset of dictionaries."""
    for package in ("lightning", "transformers", "accelerate"):
        pytest.importorskip(package)
    import lightning
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], num_labels=CLASSES)
    ResNetForImageClassification(config).save_pretrained("tiny-resnet")
    x, y = batch(8, SIZE, SIZE, CLASSES)
    items = [{"pixel_values": image, "labels": label} for image, label in zip(x, y, strict=True)]
    return {"lightning": lightning, "name": "tiny-resnet", "items": items}


OWN_NAMES: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/integrations.md": hugging_face_names,
    "docs/methods/stylemix.md": stylemix_names,
}
"""Stand-ins of single pages; those of docs/evaluate need none."""


# --- Python ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=name_of)
def test_python_of_the_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *args, **options: create(*args, **options | {"pretrained": False}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {} if page.parent.name == "evaluate" else common_names() | OWN_NAMES.get(name_of(page), dict)()
        for number, block in enumerate(blocks_of(page)):
            if not block.reason:
                exec(compile(block.code, f"{name_of(page)}, block {number + 1}", "exec"), names)


def test_blocks_that_are_not_run_are_few() -> None:
    not_run = {name_of(page): [block.reason for block in blocks_of(page) if block.reason] for page in PAGES}
    assert {page: reasons for page, reasons in not_run.items() if reasons} == {
        "CONTRIBUTING.md": ["a signature to fill in"],
        "docs/evaluate/detection.md": ["needs Pascal VOC"],
        "docs/fsdp.md": ["needs several processes"],
        "docs/scaling.md": ["needs a GPU"],
        "docs/tune.md": ["takes half an hour"],
    }


DOTTED = re.compile(r"(?<![\w./-])automix(?:\.[A-Za-z_]\w*)+")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_in_the_text_exist(page: Path) -> None:
    """Every `automix.x.y` in inline code is a module or can be reached by attributes."""
    codes = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    for name in {name for code in codes for name in DOTTED.findall(code)}:
        found: Any = automix
        path = "automix"
        for part in name.split(".")[1:]:
            path = f"{path}.{part}"
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)


# --- the command line ------------------------------------------------------------------------------------------------

SHELL = re.compile(r"^```(?:bash|sh|shell|)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    (automix .+)$", flags=re.MULTILINE)
INLINE = re.compile(r"`(automix [a-z]+ [^`]+)`")
PLACEHOLDERS = ("[--", "...")


def command_lines(page: Path) -> list[list[str]]:
    """The words after ``automix`` of every command on a page that has no placeholders for flags."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in SHELL.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += [*INDENTED.findall(text), *INLINE.findall(text)]
    found = [re.sub(r"\s+#\s.*$", "", line).strip() for line in lines]
    found = [line.replace("--help-all", "--help") for line in found]  # what the command line makes of it
    found = [re.sub(r"^torchrun .*?-m (?=automix )", "", line) for line in found]
    commands = [
        line for line in found if line.startswith("automix ") and not any(mark in line for mark in PLACEHOLDERS)
    ]
    return [shlex.split(line)[1:] for line in commands]


WITH_COMMANDS = [page for page in PAGES if page.parent.name != "lab" and command_lines(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_commands_of_the_page_parse(page: Path) -> None:
    """Commands and flags exist and values have the right types; nothing is run."""
    for words in command_lines(page):
        try:
            cli._app(words).parse_args(words, exit_on_error=False, print_error=False)
        except cyclopts.MissingArgumentError:  # a sentence about some flags alone
            continue
        except cyclopts.CycloptsError as error:
            pytest.fail(f"automix {shlex.join(words)}: {error}")


def test_a_wrong_command_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nautomix train shapes --epoch 3  # a flag that does not exist\n```\n")
    assert command_lines(page) == [["train", "shapes", "--epoch", "3"]]
    with pytest.raises(pytest.fail.Exception, match="--epoch"):
        test_commands_of_the_page_parse(page)
