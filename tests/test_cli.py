"""The command line: wrong words are refused in one line before any image is read, and settings are put together."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from method_data import NEED_A_NETWORK

import automix
from automix.cli import main as cli
from automix.cli._flags import read_options
from automix.core.errors import AutomixError
from automix.evaluation.suite import EVALUATORS
from automix.methods import has_own_teacher
from automix.runs.config import TrainConfig
from automix.training.signals import Stopped


def fail(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command line gets."""
    assert cli.run(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("automix: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian shapes", "command.*train, predict.*'trian'.*'train'"),
        ("train", "DATA"),
        ("train shapse", "'shapse'.*'shapes'"),
        ("train no/such/folder", "no/such/folder"),
        ("train shapes --method cutmx", "method.*'cutmx'.*'cutmix'"),
        ("train shapes --model resnet19", "model.*'resnet19'.*resnet18"),
        ("train shapes --recipe cifr", "recipe.*'cifr'.*'cifar'"),
        ("train shapes --preset quick", "preset.*tuned.*fast.*paper"),
        ("train shapes --method mixup --preset fast", "preset.*automix.*mixup"),
        ("train shapes --layer 7", "layer.*1.*4"),
        ("train shapes --method vanilla --layer 3", "vanilla.*'layer'"),
        ("train shapes --alpha 0", "alpha.*> 0"),
        ("train shapes --method-options.alpha -1", "alpha.*> 0"),
        ("train shapes --method mixup --method-options.gama 1", "mixup.*'gama'.*alpha"),
        ("train shapes --method mixup --method-options.mixuntil 1", "mixup.*'mixuntil'.*'mix_until'.*ema.*mix_until"),
        ("train shapes --method augmix --method-options.js_weigth 1", "augmix.*'js_weigth'.*'js_weight'"),
        ("train shapes --method mixup --method-options.ema true", "method_options.ema.*--ema"),
        ("methods cutmx", "method.*'cutmx'.*'cutmix'"),
        ("train shapes --epochs 0", "epochs.*>= 1"),
        ("train shapes --epochs ten", "--epochs.*integer.*'ten'"),
        ("train shapes --epochs 2.5", "--epochs.*integer.*'2.5'"),
        ("train shapes --classes 2.5", "--classes.*2.5"),
        ("train shapes --clip-grad x", "--clip-grad.*x"),
        ("train shapes --batch-sise 3", "--batch-sise.*--batch-size"),
        ("train shapes digits", "'digits'.*automix train --help"),
        ("train shapes --out", "--out"),
        ("train shapes --lr 1 --lr 2", "--lr"),
        ("train shapes --lr -1", "lr.*> 0"),
        ("train shapes --classes 0", "classes.*1"),
        ("train shapes --classes 13", "classes.*1.*12"),
        ("train shapes --per-class 1000000", "per_class.*1.*420"),
        ("train shapes --batch-size 1000000", "batch_size.*5040"),
        ("train shapes --batch-size 100 --accumulate 3", "batch_size.*3"),
        ("mix a.png b.png --size 100000", "size.*8.*1024"),
        ("mix a.png b.png --out mixed.xyz", "out.*[.]png.*mixed.xyz"),
        ("train shapes --model-options.num_classes 3", "model_options.num_classes"),
        ("train shapes --model-options.chanels 3", "model resnet18: .*chanels"),
        ("train shapes --weights none.safetensors", "none.safetensors"),
        ("train shapes --device cuda:7", "device.*cuda:7.*cpu"),
        ("train shapes --precision fp16 --device cpu", "precision.*fp16"),
        ("train shapes --precision half", "--precision.*auto.*float32.*bf16.*fp16"),
        ("train shapes --wandb", "wandb.*installed"),
        ("train shapes --mlflow", "mlflow.*installed"),
        ("train --config none.yaml", "none.yaml"),
        ("train --resume --out none", "none/config.yaml"),
        ("predict none a.png", "none"),
        ("predict none", "IMAGE"),
        ("predict", "RUN"),
        ("predict none a.png --top 1.5", "--top.*integer"),
        ("export none", "none"),
        ("export none --format pt", "--format.*onnx.*torchscript"),
        ("report", "RUN"),
        ("mix", "SOURCE"),
        ("mix none", "2 images"),
        ("mix none none --method automix", "'automix' needs a network"),
        ("mix none none --method cutmx", "method.*'cutmx'"),
        ("mix none.png none.png", "none.png: No such file"),
        ("recipes cifr", "recipe.*'cifr'"),
        ("models zzz", "'zzz'"),
    ],
)
def test_wrong_command_lines_are_refused_in_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = fail(arguments, capsys)
    assert re.search(message, error), error
    assert list(tmp_path.iterdir()) == []  # nothing was begun


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: shapes\nlearning_rate: 1\n", "learning_rate"),
        ("data: shapes\nepochs: many\n", "epochs.*many"),
        ("data: shapes\nresume: true\n", "c.yaml: resume"),
        ("- a\n- b\n", "c.yaml: .*name: value"),
        ("data: [shapes\n", "c.yaml: .*YAML"),
        ("data: !!python/object/apply:os.system ['touch hacked']\n", "c.yaml: .*YAML"),
    ],
)
def test_wrong_config_files_are_refused_in_one_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text)
    assert re.search(message, fail("train --config c.yaml", capsys))
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


# --- settings from flags, files and recipes ---------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `automix train` passes to `training.train`, which does nothing here."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("automix.training.train", lambda config, **others: calls.append({"config": config, **others}))
    return calls


def test_flags_override_the_file_which_overrides_the_recipe(tmp_path: Path, parsed: list[dict[str, Any]]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: shapes\nrecipe: cifar\nlr: 0.05\nseed: 3\nmodel_options: {layers: [1, 1, 1, 1]}\n")
    flags = "--no-flip --resume --model-options.channels [8,8,8,8] --alpha null"
    cli.execute(["train", "--seed", "4", "--config", str(path), *flags.split()])
    config, settings = parsed[0]["config"], parsed[0]["config"].settings
    assert (config.data, config.seed, settings.lr, settings.epochs, settings.flip) == ("shapes", 4, 0.05, 800, False)
    assert config.model_options == {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}
    assert config.alpha is None
    assert (parsed[0]["resume"], parsed[0]["overwrite"]) == (True, False)


def test_the_data_may_stand_anywhere(parsed: list[dict[str, Any]]) -> None:
    for line in ("shapes --epochs 3", "--epochs 3 shapes", "--epochs=3 --data shapes"):
        cli.execute(["train", *line.split()])
    assert [(call["config"].data, call["config"].settings.epochs) for call in parsed] == [("shapes", 3)] * 3


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-3", 1e-3), ("true", True), ("null", None), ("[1,2]", [1, 2]), ("adain", "adain"), ("no", "no")],
)
def test_options_are_json_or_words(text: str, value: Any) -> None:
    assert read_options({"x": text}) == {"x": value}


def test_options_have_hyphens_as_flags_do() -> None:
    assert read_options({"mix-until": "0.7"}) == {"mix_until": 0.7}


def test_the_preset_is_a_flag_and_the_recipe_decides_it_otherwise(parsed: list[dict[str, Any]]) -> None:
    for line in ("shapes", "shapes --preset fast", "shapes --recipe cifar", "shapes --recipe cifar --preset tuned"):
        cli.execute(["train", *line.split()])
    assert [call["config"].settings.preset for call in parsed] == ["tuned", "fast", "paper", "tuned"]


def test_another_recipe_than_that_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: shapes\nrecipe: cifar\n")
    with pytest.raises(AutomixError, match=r"recipe.*'cifar'.*'deit'"):
        cli.execute(["train", "--config", str(path), "--recipe", "deit"])


def test_a_config_survives_its_file(tmp_path: Path, parsed: list[dict[str, Any]]) -> None:
    line = "shapes --recipe deit --method-options.gamma 0.2 --model-options.channels [8,8] --classes 5 --lr 0.01 --ema"
    cli.execute(["train", *line.split()])
    parsed[0]["config"].save(tmp_path / "config.yaml")
    cli.execute(["train", "--config", str(tmp_path / "config.yaml")])
    assert parsed[1]["config"] == parsed[0]["config"]


# --- help and lists ---------------------------------------------------------------------------------------------------


def test_every_setting_has_a_flag_with_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in TrainConfig.flat_names():
        assert "--" + name.replace("_", "-") in text or name == "data"
    for phrase in ("Images in a step, over all processes.", "--ema --no-ema", "recipe quick", "[default: 0.0005]"):
        assert phrase in text
    assert text.index("--method STR") < text.index("--preset CHOICE") < text.index("--model STR")


def test_the_short_help_of_train_has_what_matters_first_with_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    shown = ["DATA --data", "--method STR", "--model STR", "--minutes FLOAT", "--epochs INT", "--out STR", "--help-all"]
    assert sorted(shown, key=text.index) == shown
    assert "[default: 30; 1500 steps or more for photographs]" in text
    assert "[default: resnet18; tf_efficientnet_lite0 for photographs]" in text
    for hidden in ("--crop-scale", "--weight-decay", "--checkpoint-minutes"):
        assert hidden not in text


def test_the_help_names_the_defaults_that_photographs_get() -> None:
    from automix.cli.train import Flags
    from automix.training.defaults import DEFAULT_MODEL, FINETUNE, STEPS

    notes = {name: str(flag.__metadata__[-1].show_default) for name, flag in Flags.__annotations__.items()}
    assert f"{DEFAULT_MODEL} for photographs" in notes["model"]
    assert f"{FINETUNE} for photographs" in notes["recipe"]
    assert f"{STEPS} steps or more for photographs" in notes["epochs"]


def test_alone_it_shows_the_first_five_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    text = capsys.readouterr().out
    assert re.findall(r"^  automix (\w+)", text, re.MULTILINE) == list(cli.FIRST_COMMANDS)
    assert len(cli.FIRST_COMMANDS) == 5
    assert "automix --help" in text


@pytest.mark.parametrize("method", automix.methods())
def test_methods_lists_options_that_train_takes(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["methods", method]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line.startswith("--")]
    flags = {flag for flag, _, meaning in rows if meaning.endswith(".")}
    assert len(flags) == len(rows)  # each once, each with a meaning
    assert {"--method-options.mix_until", "--method-options.mix_share"} <= flags
    assert ("--ema" in flags) != has_own_teacher(method)


@pytest.mark.parametrize("method", ["mixup", "puzzlemix", "augmix", "patchup", "alignmix"])
def test_options_can_be_set_to_their_defaults(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    from automix.training.build import check_buildable

    cli.run(["methods", method])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line.startswith("--method-options.")]
    given = {flag.split(".")[1]: default.lower() for flag, default, _ in rows if default and "objects" not in flag}
    options = read_options(given)
    assert options["mix_until"] == 1.0
    check_buildable(TrainConfig(data="shapes", method=method, method_options=options), image_size=32)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: automix {command}")
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_of_evaluate_names_every_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["evaluate", "--help"])
    text = capsys.readouterr().out
    assert [name for name in EVALUATORS if name not in text] == []


QUICK = [
    "",
    "--help",
    "--version",
    "trian",
    *(f"{name} --help" for name in cli.COMMANDS if name != "detect"),
    "train --nonsense 3",
    "train shapes --epochs x",
    "train shapes --lr -1",
    "train shapes --method mixxup",
    "train shapes --recipe nothing",
    "evaluate runs/x --images q",
    "bench",
    "recipes",
]


@pytest.mark.parametrize("arguments", QUICK)
def test_help_does_not_import_torch(arguments: str) -> None:
    code = f"import sys; from automix.cli.main import run; run({arguments.split()}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("arguments", ["--help", "--version", "recipes"])
def test_a_closed_pipe_is_no_error(arguments: str) -> None:
    """As in `automix models | head`, where `head` ends first."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "automix", *arguments.split()]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=buffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["--debug models", "models --debug"])
def test_debug_shows_the_traceback_of_a_bug(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_list(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("timm.list_models", fail_to_list)
    assert cli.run(["models"]) == 1
    line = capsys.readouterr().err
    assert re.fullmatch("automix: KeyError: 'a bug'.*--debug.*\n", line)
    assert cli.run(arguments.split()) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert "in fail_to_list" in error
    assert error.endswith(line)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (AutomixError("x must be in (0, 1],\ngot 3"), 2, "automix: x must be in (0, 1], got 3\n"),
        (ValueError("not ours"), 1, "automix: ValueError: not ours"),
        (FileNotFoundError(2, "No such file", "a"), 2, "automix: [Errno 2] No such file: 'a'\n"),
        (OSError(28, "No space left on device"), 1, "automix: [Errno 28] No space left on device\n"),
        (MemoryError(), 1, "automix: not enough memory"),
        (KeyboardInterrupt(), 130, "automix: interrupted\n"),
        (Stopped("stopped", 15), 143, "automix: stopped\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exceptions_end_in_one_line_and_an_exit_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_list(*_: object) -> None:
        raise error

    monkeypatch.setattr("timm.list_models", fail_to_list)
    assert cli.run(["models"]) == code
    line = capsys.readouterr().err
    assert line.startswith(message)
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("methods", ["automix\t", "cutmix\tCutMix (Yun et al., 2019)"]),
        ("recipes", ["rsb-a2\t", "quick\t"]),
        ("recipes rsb-a2", ["optimizer\tlamb", "automix train", "Expected"]),
        ("datasets", ["cifar100\t100\t", "shapes\t12\t"]),
        ("models", ["wrn_28_8\t", "resnet18\t", "zoo:tf_efficientnet_lite0-birds\t"]),
        ("models resnet1*", ["resnet18\n"]),
        ("models vit", ["vit_tiny_patch16_224\n", "convit_tiny\n"]),
        ("bench --list", ["experiment\tcells\truns\tabout\n", "replica\t"]),
        ("--version", ["automix 0."]),
        ("--help", ["Usage: automix COMMAND", "train", "--debug"]),
    ],
)
def test_listing_commands(arguments: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments.split()) == 0
    text = capsys.readouterr().out
    for word in words:
        assert word in text


@pytest.mark.parametrize("method", automix.methods())
def test_mix_draws_every_method_or_says_that_it_needs_a_network(
    method: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [str(path) for path in sorted((photos / "test").rglob("*.png"))[:3]]
    code = cli.run(["mix", *images, "--method", method, "--size", "16", "--out", str(tmp_path / "mixed.png")])
    assert (code != 0) == (method in NEED_A_NETWORK)
    assert (tmp_path / "mixed.png").exists() == (code == 0)
    assert code == 0 or f"method '{method}' needs a network" in capsys.readouterr().err
