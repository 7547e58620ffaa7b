"""Files that would run code if they were unpickled, and names that would lead out of the run's folder.

These are quick, and run with the ordinary tests.
"""

import ast
import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import automix
from automix.cli import main as cli
from automix.runs.config import TrainConfig
from automix.training import train
from automix.training.load import load_task
from faults.runs import CHECKPOINT, PREVIOUS, configure

SOURCE = Path(automix.__file__).parent


class Malice:
    """Unpickled, it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def write_pickle(path: Path, mark: Path) -> None:
    path.write_bytes(pickle.dumps({"model": Malice(mark)}))


def write_torch_file(path: Path, mark: Path) -> None:
    torch.save({"state_dict": Malice(mark)}, path)


WRITERS = {"pickle": write_pickle, "torch file": write_torch_file}


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    config = configure(photos, tmp_path_factory.mktemp("malice") / "run", epochs=1)
    train(config)
    return config


@pytest.mark.parametrize("kind", WRITERS)
def test_the_malice_would_work(kind: str, tmp_path: Path) -> None:
    """Or the tests below could not fail."""
    WRITERS[kind](tmp_path / "file", tmp_path / "mark")
    with suppress(RuntimeError):  # it is no file of torch's, as torch finds out when it is too late
        torch.load(tmp_path / "file", weights_only=False)
    assert (tmp_path / "mark").is_dir()


LINES = [
    *(
        line.replace("FILE", f"FILE{suffix}")
        for suffix in (".safetensors", ".pt", ".pth")
        for line in (
            "predict FILE IMAGE",
            "export FILE --format torchscript",
            "train DATA --out NEW --weights FILE",
            "train DATA --out NEW --model-options.checkpoint_path FILE",
        )
    ),
    "predict RUN IMAGE",
    "predict RUN IMAGE --which best",
    "export RUN --format safetensors",
    "mix RUN",
    "mix RUN IMAGE IMAGE",
    "train --resume --out RUN",
    "train DATA --out NEW --method stylemix --method-options.weights RUN",
]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("line", LINES)
def test_a_pickle_is_never_loaded(
    line: str, kind: str, trained: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All weights of a run are replaced by pickles, and every command that reads weights is tried on it."""
    run, mark = tmp_path / "run", tmp_path / "mark"
    shutil.copytree(trained.folder, run)
    for name in (
        CHECKPOINT,
        PREVIOUS,
        "last.safetensors",
        "best.safetensors",
        "encoder.safetensors",
        "decoder.safetensors",
    ):
        WRITERS[kind](run / name, mark)
    Image.new("RGB", (16, 16)).save(tmp_path / "image.png")
    words = {"RUN": run, "IMAGE": tmp_path / "image.png", "DATA": trained.data, "NEW": tmp_path / "new"}
    for word in line.split():
        if word.startswith("FILE"):
            words[word] = tmp_path / word
            WRITERS[kind](tmp_path / word, mark)
    code = cli.run([str(words.get(word, word)) for word in line.split()])
    error = capsys.readouterr().err
    assert not mark.exists()
    assert code == 2
    assert error.startswith("automix: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", WRITERS)
def test_a_runs_configuration_cannot_name_a_pickle(kind: str, trained: TrainConfig, tmp_path: Path) -> None:
    """`automix mix RUN` builds the network from the run's own config.yaml, which came with the run."""
    run, mark = tmp_path / "run", tmp_path / "mark"
    shutil.copytree(trained.folder, run)
    WRITERS[kind](tmp_path / "evil.pth", mark)
    written = run / "config.yaml"
    options = f"model_options:\n  checkpoint_path: {tmp_path / 'evil.pth'}\n"
    written.write_text(written.read_text().replace("model_options:\n", options))
    with pytest.raises(ValueError, match="checkpoint_path"):
        load_task(run)
    assert not mark.exists()


# --- the source ------------------------------------------------------------------------------------------------------


def calls(tree: ast.AST) -> Iterator[tuple[str, dict[str, str], int]]:
    """Name, keywords and line of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            keywords = {word.arg or "**": ast.unparse(word.value) for word in node.keywords}
            yield ast.unparse(node.func), keywords, node.lineno


def is_dangerous(name: str, keywords: dict[str, str]) -> bool:
    last = name.rpartition(".")[2]
    if (
        name in ("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec")
        or keywords.get("shell") == "True"
    ):
        return True
    if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"):
        return True
    if name.startswith(("pickle.", "marshal.", "shelve.", "dill.", "cloudpickle.", "joblib.")):
        return True
    if name in ("yaml.load", "yaml.load_all"):
        return "Safe" not in keywords.get("Loader", "")
    if name.startswith("yaml.") and last in ("unsafe_load", "full_load", "unsafe_load_all", "full_load_all"):
        return True
    if name == "torch.load":
        return keywords.get("weights_only") != "True"
    return keywords.get("allow_pickle", "False") != "False"


@pytest.mark.parametrize(
    ("text", "dangerous"),
    [
        ("eval(x)", True),
        ("model.eval()", False),
        ("yaml.load(x)", True),
        ("yaml.load(x, Loader=yaml.SafeLoader)", False),
        ("yaml.safe_load(x)", False),
        ("torch.load(x)", True),
        ("torch.load(x, weights_only=True)", False),
        ("np.load(x, allow_pickle=True)", True),
        ("np.load(x, allow_pickle=False)", False),
        ("subprocess.run(x, shell=True)", True),
        ("subprocess.run(x)", False),
        ("pickle.loads(x)", True),
    ],
)
def test_what_counts_as_dangerous(text: str, dangerous: bool) -> None:
    assert [is_dangerous(name, keywords) for name, keywords, _ in calls(ast.parse(text))] == [dangerous]


def test_nothing_in_the_source_executes_what_it_reads() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in SOURCE.rglob("*.py")
        for name, keywords, line in calls(ast.parse(path.read_text(encoding="utf-8")))
        if is_dangerous(name, keywords)
    ]
    assert found == []


# --- paths -----------------------------------------------------------------------------------------------------------


def everything_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "resnet18.a1/../../../outside"],
        ["--model", "../outside"],
        ["--model", "resnet18.x/y"],
        ["--method", "../outside"],
        ["--recipe", "../../outside"],
    ],
    ids=" ".join,
)
def test_a_name_in_a_configuration_is_no_path(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --out the folder is made of names; none of them may lead out of runs/."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.run(["train", "shapes", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert everything_under(tmp_path) == {"here"}


def test_a_run_writes_into_its_folder_alone(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes with the strangest names that a folder can have, and data named by a path with dots in it."""
    place = tmp_path / "here"
    (place / "data" / "deep").mkdir(parents=True)
    strange = ["..a", "a\\..\\b", "~"]
    for split in ("train", "test"):
        for old, new in zip("abc", strange, strict=True):
            shutil.copytree(photos / split / old, place / "data" / split / new)
    monkeypatch.chdir(place)
    before = everything_under(tmp_path)
    config = replace(configure(Path("data/deep/.."), Path("unused"), epochs=1), out=None)
    train(config)
    written = everything_under(tmp_path) - before
    assert written
    assert all(path.startswith("here/runs") for path in written)
    assert len(list((place / "runs").iterdir())) == 1
    assert config.folder.resolve().parent == (place / "runs").resolve()
