"""The command line as a person meets it: every wrong word answered in one line, before any image is read."""

import re
import time
from pathlib import Path

import pytest

import automix
from automix.cli import main as cli
from automix.cli.train import read_arguments


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
        ("trian shapes", "command 'trian' is unknown: accepted are train, .*did you mean 'train'"),
        ("train", "DATA is missing: accepted is a dataset's name"),
        ("train shapse", "'shapse' is unknown, did you mean 'shapes'"),
        ("train no/such/folder", "no/such/folder"),
        ("train shapes --method cutmx", "method 'cutmx' is unknown: accepted are .*did you mean 'cutmix'"),
        ("train shapes --model resnet19", "model 'resnet19' is unknown: accepted are timm's names .*resnet18"),
        ("train shapes --recipe cifr", "recipe 'cifr' is unknown: accepted are .*did you mean 'cifar'"),
        ("train shapes --layer 7", "layer=7: accepted for ResNet are 1 to 4"),
        ("train shapes --method vanilla --layer 3", "vanilla has no option 'layer'"),
        ("train shapes --alpha 0", "alpha=0.0: accepted is a number > 0"),
        ("train shapes --method-options.alpha -1", "alpha=-1: accepted is a number > 0"),
        ("train shapes --method mixup --method-options.gama 1", "mixup has no option 'gama': accepted are alpha"),
        ("train shapes --epochs 0", "epochs=0: accepted is a whole number >= 1"),
        ("train shapes --epochs ten", "epochs=ten: accepted is a whole number"),
        ("train shapes --clip-grad x", "clip_grad=x: accepted is a number or null"),
        ("train shapes --classes 2.5", "classes=2.5: accepted is a whole number or null"),
        (
            "train shapes --batch-sise 3",
            r"--batch-sise is unknown \(did you mean --batch-size\?\): automix train --help lists",
        ),
        ("train --epochs 3 shapes", "'shapes' stands in the wrong place: accepted is automix train DATA"),
        ("train shapes --out", "--out: expected one argument"),
        ("train shapes --lr -1", "lr=-1.0: accepted is a number > 0"),
        ("train shapes --classes 0", "classes=0: accepted is a number >= 1"),
        ("train shapes --classes 13", "classes=13: accepted are 1 to 12"),
        ("train shapes --per-class 1000000", "per_class=1000000: accepted are 1 to"),
        ("train shapes --batch-size 1000000", r"batch_size must be in \[1, "),
        ("train shapes --batch-size 100 --accumulate 3", "batch_size must be a multiple of 3"),
        ("mix a.png b.png --size 100000", "size=100000: accepted is a number from 8 to 1024"),
        ("train shapes --model-options.num_classes 3", "model_options.num_classes: the number of classes"),
        ("train shapes --model-options.chanels 3", "model resnet18: .*chanels"),
        ("train shapes --weights none.safetensors", "weights=none.safetensors: no such file"),
        ("train shapes --device cuda:7", "device=cuda:7: .*accepted here are cpu"),
        ("train shapes --precision fp16 --device cpu", "precision=fp16: accepted on the CPU are"),
        ("train shapes --precision half", "precision=half: accepted is one of auto, float32, bf16, fp16"),
        ("train shapes --wandb", "wandb: Weights & Biases is not installed"),
        ("train --config none.yaml", "config none.yaml: no such file"),
        ("train --resume --out none", "none/config.yaml: no such file"),
        ("predict none a.png", "none: no such file or folder"),
        ("export none", "none: no such file or folder"),
        ("mix none", "1 image: accepted are 2 or more, or a run folder"),
        ("mix none none --method automix", "method 'automix' needs a network: accepted is a run folder"),
        ("mix none none --method cutmx", "method 'cutmx' is unknown"),
        ("mix none.png none.png", "none.png: No such file"),
        ("recipes cifr", "recipe 'cifr' is unknown"),
        ("models zzz", "no model's name fits 'zzz'"),
    ],
)
def test_a_wrong_command_line_gets_one_line_within_a_second(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm  # noqa: F401  (start-up does not count)

    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    error = fail(arguments, capsys)
    seconds = time.perf_counter() - start
    assert re.search(message, error), error
    assert seconds < 1
    assert list(tmp_path.iterdir()) == []  # nothing was begun


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: shapes\nlearning_rate: 1\n", "--learning_rate is unknown"),
        ("data: shapes\nepochs: many\n", "epochs=many: accepted is a whole number"),
        ("- a\n- b\n", "accepted are lines of the form name: value"),
        ("data: [shapes\n", "cannot be read as YAML"),
        ("data: !!python/object/apply:os.system ['touch hacked']\n", "cannot be read as YAML"),
    ],
)
def test_a_wrong_config_file_gets_one_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text)
    assert message in fail("train --config c.yaml", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_flags_win_over_the_file_and_the_file_over_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: shapes\nrecipe: cifar\nlr: 0.05\nseed: 3\n")
    config, resume, overwrite = read_arguments(["--seed", "4", "--config", str(path), "--no-flip", "--resume"])
    settings = config.settings
    assert (config.data, config.seed, settings.lr, settings.epochs, settings.flip) == ("shapes", 4, 0.05, 800, False)
    assert (resume, overwrite) == (True, False)


def test_another_recipe_than_the_file_s_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: shapes\nrecipe: cifar\n")
    with pytest.raises(ValueError, match=r"--recipe deit: .* was made with 'cifar'"):
        read_arguments(["--config", str(path), "--recipe", "deit"])


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    line = "shapes --recipe deit --method-options.gamma 0.2 --model-options.channels [8,8] --classes 5 --lr 0.01 --ema"
    config, _, _ = read_arguments(line.split())
    config.save(tmp_path / "config.yaml")
    again, _, _ = read_arguments(["--config", str(tmp_path / "config.yaml")])
    assert again == config


def test_every_setting_has_a_flag_with_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.run(["train", "--help"])
    text = capsys.readouterr().out
    for phrase in ("--batch-size", "Images in a step, over all processes", "--ema, --no-ema", "recipe quick"):
        assert phrase in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("methods", ["automix\t", "cutmix\tCutMix (Yun et al., 2019)"]),
        ("recipes", ["rsb-a2\t", "quick\t"]),
        ("recipes rsb-a2", ["optimizer\tlamb", "automix train", "Expected"]),
        ("datasets", ["cifar100\t100\t", "shapes\t12\t"]),
        ("models", ["wrn_28_8\t", "resnet18\t"]),
        ("models resnet1*", ["resnet18\n"]),
        ("--version", ["automix 0."]),
        ("--help", ["usage: automix COMMAND", "train"]),
    ],
)
def test_lists(arguments: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
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
    needs_a_network = {"alignmix", "attentivemix", "automix", "comixup", "patchup", "puzzlemix", "stylemix", "supermix"}
    assert (code != 0) == (method in needs_a_network | {"transmix"})
    assert (tmp_path / "mixed.png").exists() == (code == 0)
    assert code == 0 or f"method '{method}' needs a network" in capsys.readouterr().err
