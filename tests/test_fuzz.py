"""Random configurations and command lines, a few hundred: each is accepted, or refused in one line.

tests/faults/test_fuzz.py tries ten thousand.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from fuzz_examples import command_lines, config_files, flat_configs
from fuzzing import check_command_line, check_file, check_values, examples, sandbox
from hypothesis import given

from automix.cli import main as cli


@pytest.fixture(scope="module", autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with sandbox(tmp_path_factory.mktemp("fuzz")):
        yield


@examples(200)
@given(flat_configs)
def test_random_values_are_accepted_or_refused_in_one_line(values: dict[Any, Any]) -> None:
    check_values(values)


@examples(50)
@given(config_files)
def test_random_files_are_accepted_or_refused_in_one_line(content: str) -> None:
    check_file(content)


@examples(50)
@given(command_lines)
def test_random_command_lines_are_accepted_or_refused_in_one_line(arguments: list[str]) -> None:
    check_command_line(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x" * 5000], "File name too long"),
        (["shapes", "--out", "a\n\x1b[31mb", "--epochs", "0"], "epochs"),
        (["a\n\x1b[31mb"], r"'a\\n\\x1b\[31mb'"),
        (["shapes", "--epochs="], "--epochs.*integer"),
        (["shapes", "--epoch", "3"], "--epoch.*--epochs"),
        (["shapes", "--method=mixup", "--method-options", "{alpha: [1]}"], "--method-options"),
        (["shapes", "--method=mixup", "--method-options.alpha", "x"], "alpha.*x"),
        (["shapes", "--method=mixup", "--method-options.alpha", "[1]"], r"alpha.*\[1\]"),
        (["shapes", "--method-options.a.b", "1"], ""),
        (["shapes", "--seed", "9" * 30], "seed.*922337203685477580[78]"),
        (["shapes", "--lr", "1" + "0" * 400], "lr.*inf"),
        (["shapes", "--device", "meta"], "device.*meta"),
        (["shapes", "--model-options.channels", "[]"], "model resnet18: "),
        (["shapes", "--method-options.seed", "3"], "method_options.seed"),
    ],
)
def test_command_lines_that_once_crashed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.match(f"automix: .*{message}", error), error
    assert error.count("\n") == 1


def test_names_of_files_may_have_bytes_that_are_no_text() -> None:
    assert check_command_line(["export", "run", "--out", "\udcff.png"]) == 0


def test_files_that_once_crashed() -> None:
    for content in ("a: &a [1, *a]\n", "- " * 400, "data: !!timestamp x\n", "data: shapes\nconfig: {a: 1}\n"):
        assert check_file(content) == 2
    Path("run/config.yaml").rename("kept.yaml")
    Path("run/config.yaml").write_text("data: 3\nepochs: [1]\n")
    try:
        assert check_command_line(["mix", "run"]) == 2
    finally:
        Path("kept.yaml").rename("run/config.yaml")
