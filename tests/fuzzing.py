"""The folder in which random configurations and command lines (fuzz_examples.py) run, and the check of the answers.

Everything happens in a folder of its own that holds a trained run, images and files that are broken in known ways.
Training and exporting are left out at the last moment, after every check.
"""

import contextlib
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from PIL import Image

from automix.cli import main as cli
from automix.data import draw_shapes
from automix.deploy.exporting import export_path
from automix.runs.config import TrainConfig
from automix.training.build import check_buildable
from automix.training.hardware import choose_device, choose_precision
from automix.training.prepare import check_environment, check_folder, check_place

LONGEST_LINE = 2000  # of an answer, in characters


def examples(count: int) -> settings:
    """So many random examples, the same ones in every run."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


# --- the folder -------------------------------------------------------------------------------------------------------


def make_files(folder: Path) -> None:
    """Make what command lines can name: a run, a configuration, images, and a broken one of each."""
    drawn = draw_shapes(16, 16)
    for number, image in enumerate(drawn.images):
        target = folder / "photos" / ("train" if number < 8 else "test") / "ab"[number % 2]
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(target / f"{number % 8 // 2}.png")
    line = "--model wrn_10_1 --method mixup --epochs 1 --batch-size 4 --workers 0 --out run"
    assert cli.run(["train", "photos", *line.split()]) == 0
    shutil.copy(folder / "run" / "config.yaml", folder / "good.yaml")
    (folder / "broken.yaml").write_text("data: [shapes\n")
    (folder / "broken.png").write_bytes(b"\x89PNG no image")
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "empty").mkdir()
    (folder / "empty.yaml").touch()
    (folder / "broken.safetensors").write_bytes(b"\xff" * 64)


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[None]:
    """Work in `folder`, with files in it, and neither train nor export nor serve a page there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_files(folder)
        patch.setattr("automix.training.train", check_instead_of_training)
        patch.setattr("automix.deploy.exporting.export", check_instead_of_exporting)
        patch.setattr("automix.views.explorer.server.serve", lambda *_: None)
        yield


def check_instead_of_training(config: TrainConfig, *, resume: bool, overwrite: bool, display: object) -> dict[str, Any]:
    """Do what `automix.training.train` does before it builds a network; `check_network` below builds some."""
    check_place(config)
    check_environment(config, resumed=check_folder(config, resume=resume, overwrite=overwrite))
    device = choose_device(config.device)
    choose_precision(config.precision, config.settings.mixed_precision, device)
    if config.model_options or config.method_options:
        check_buildable(config, config.settings.train_size or 32)
    return {}


def check_instead_of_exporting(model: object, card: object, path: Path, format: str) -> float:
    """Do what `automix.deploy.export` does before it exports."""
    path = export_path(path, format)
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder; accepted is an existing one")
    return 0.0


# --- the checks -------------------------------------------------------------------------------------------------------


def check_command_line(arguments: list[str]) -> int:
    """Run a command line: accepted, or refused in one line with nothing begun. Returns the exit code, 0 or 2."""
    before = set(Path().rglob("*"))
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        cli.main(arguments)
    code, answer = left.value.code or 0, err.getvalue()
    made = set(Path().rglob("*")) - before
    remove(made)
    assert code in (0, 2), f"exit code {code}: {answer}"
    lines = answer.splitlines()
    assert all(line.startswith("automix: ") for line in lines), answer
    assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in lines), answer
    if code == 2 and arguments:
        assert made == set(), f"refused, but began {made}"
        # predict names every image that it cannot read
        assert len(lines) == 1 or arguments[0] == "predict", answer
        assert "Traceback" not in answer
    return int(code)


def remove(paths: set[Path]) -> None:
    for path in sorted(paths, reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


def check_file(content: str) -> int:
    """Train by a configuration file."""
    file = Path("file.yaml")
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    try:
        return check_command_line(["train", "--config", str(file)])
    finally:
        file.unlink()


def check_values(values: dict[Any, Any]) -> int:
    """Make a configuration from values of any type, as a run's file may hold them."""
    return accepted_or_refused(lambda: TrainConfig.from_flat(values))


def check_network(values: dict[str, Any]) -> int:
    """Make the configuration, and build its network and task without memory."""
    return accepted_or_refused(lambda: check_buildable(TrainConfig.from_flat({"data": "shapes", **values}), 32))


def accepted_or_refused(make: Callable[[], object]) -> int:
    """Return 0 if the library accepts it, 2 for a ValueError with a message or a path that cannot be."""
    try:
        make()
    except (ValueError, OSError) as error:
        line = str(error)
    else:
        return 0
    assert line.strip(), "a refusal without a word"
    return 2
