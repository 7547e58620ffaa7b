"""Random configurations and command lines, a few hundred: each is accepted, or refused in one line.

tests/faults/test_fuzz.py tries ten thousand.
"""

from pathlib import Path
from typing import Any

import pytest
from fuzz_examples import command_lines, config_files, flat_configs
from fuzzing import examples, judge, judge_config, judge_file, place
from hypothesis import given


@pytest.fixture(scope="module", autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with place(tmp_path_factory.mktemp("fuzz")):
        yield


@examples(200)
@given(flat_configs)
def test_any_values_are_a_configuration_or_a_line(values: dict[Any, Any]) -> None:
    judge_config(values)


@examples(50)
@given(config_files)
def test_any_file_is_a_configuration_or_gets_a_line(content: str) -> None:
    judge_file(content)


@examples(50)
@given(command_lines)
def test_any_command_line_works_or_gets_a_line(arguments: list[str]) -> None:
    judge(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "x" * 5000], "automix: [Errno 36] File name too long"),
        (["train", "shapes", "--out", "a\n\x1b[31mb", "--epochs", "0"], "automix: epochs=0"),
        (["train", "a\n\x1b[31mb"], "automix: data 'a\\n\\x1b[31mb' is unknown"),
        (["train", "shapes", "--epochs="], "automix: epochs=: accepted is a whole number"),
        (["train", "shapes", "--epoch", "3"], "automix: --epoch is unknown (did you mean --epochs?)"),
        (["train", "shapes", "--method=mixup", "--method-options", "{alpha: [1]}"], "automix: alpha=[1]: accepted is"),
        (["train", "shapes", "--method=mixup", "--method-options.alpha", "x"], "automix: alpha=x: accepted is"),
        (["train", "shapes", "--seed", "9" * 30], "automix: seed="),
        (["train", "shapes", "--checkpoint-minutes", "1" + "0" * 400], "automix: a number is too large"),
        (["train", "shapes", "--device", "meta"], "automix: device=meta: "),
        (["train", "shapes", "--model-options", "{channels: []}"], "automix: model resnet18: "),
        (["train", "shapes", "--method-options.seed", "3"], "automix: method_options.seed: "),
    ],
)  # fmt: skip
def test_what_once_crashed(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from automix.cli import main as cli

    assert cli.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_what_once_crashed_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("a: &a [1, *a]\n", "- " * 400, "data: !!timestamp x\n", "data: shapes\nconfig: {a: 1}\n"):
        assert judge_file(content) == 2
    Path("run/config.yaml").rename("kept.yaml")
    Path("run/config.yaml").write_text("data: 3\nepochs: [1]\n")
    try:
        assert judge(["mix", "run"]) == 2
    finally:
        Path("kept.yaml").rename("run/config.yaml")
