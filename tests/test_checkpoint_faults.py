"""What the fault suite (tests/faults) does at length, in seconds: damaged files, leftovers, signals, NaN, fp16."""

import json
import multiprocessing
import os
import platform
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.runs import CHECKPOINT, DAMAGED, PREVIOUS, configure, digest
from faults.test_not_finite import PLACES, stops_before_the_update
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from automix.core.accuracy import topk_correct
from automix.core.files import remove_leftovers, write_atomically
from automix.core.tensor_files import CHECKSUM, DamagedError, is_whole, read_tensors, write_tensors
from automix.runs.checkpoint import environment, read_checkpoint
from automix.runs.folder import RunFolder
from automix.training import NotFiniteError, Silent, Stopped, loop, train
from automix.training.loop import measure_accuracy, not_finite
from automix.training.run import Run, check_classes
from automix.training.signals import catch_signals

TENSORS = {"a": torch.arange(12.0).view(3, 4), "b": torch.tensor([7])}


# --- files with a checksum -------------------------------------------------------------------------------------------


def test_tensors_and_texts_come_back_and_other_tools_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_tensors(path, TENSORS, {"automix": 'a "text" with\nlines'})
    tensors, metadata = read_tensors(path)
    assert metadata == {"automix": 'a "text" with\nlines'}
    assert all(tensors[name].equal(value) for name, value in TENSORS.items())
    assert load_file(path).keys() == TENSORS.keys()
    with safe_open(path, framework="pt") as file:
        assert len(file.metadata()[CHECKSUM]) == 8


def test_every_single_bit_counts(tmp_path: Path) -> None:
    """Each bit of a small file, flipped in turn: noticed, or in the checksum's own name and harmless."""
    path = tmp_path / "x"
    write_tensors(path, TENSORS, {"automix": "text"})
    content = path.read_bytes()
    missed = 0
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            tensors, metadata = read_tensors(path)
        except DamagedError:
            continue
        missed += 1
        assert metadata["automix"] == "text"
        assert tensors.keys() == TENSORS.keys()
        assert all(tensors[name].equal(value) for name, value in TENSORS.items())
    assert missed <= 8 * len(CHECKSUM)


def test_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x", {"automix": "text"})
    assert read_tensors(tmp_path / "x")[1] == {"automix": "text"}
    assert is_whole(tmp_path / "x")
    assert not is_whole(tmp_path / "none")


# --- temporary files -------------------------------------------------------------------------------------------------


def dead_process() -> int:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
    child.start()
    child.join()
    assert child.pid is not None
    return child.pid


@pytest.mark.skipif(os.name != "posix", reason="whether a process lives cannot be asked")
def test_what_the_dead_left_behind_is_removed_and_nothing_else(tmp_path: Path) -> None:
    here, dead = platform.node(), dead_process()
    stale = [tmp_path / f".{dead}-{here}-{name}" for name in ("x", "y.safetensors")]
    others = [f".{os.getppid()}-{here}-x", f".{dead}-elsewhere-x", f"{dead}-{here}-x", f".{dead}", ".hidden", "x"]
    for path in [*stale, *(tmp_path / name for name in others)]:
        path.write_text("?")
    write_atomically(tmp_path / "z", lambda temporary: temporary.write_text("new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "z"])
    remove_leftovers(tmp_path / "none")


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    def full(temporary: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/x'$"):
        write_atomically(tmp_path / "x", full)


def test_the_old_file_is_kept_where_it_is_wanted(tmp_path: Path) -> None:
    path, keep = tmp_path / "new", tmp_path / "old"
    for text, kept in (("1", None), ("2", "1"), ("3", "2")):
        write_atomically(path, lambda temporary, text=text: temporary.write_text(text), keep=keep)  # type: ignore[misc]
        assert path.read_text() == text
        assert (keep.read_text() if keep.exists() else None) == kept


@pytest.mark.parametrize("links", [True, False])
def test_a_whole_file_is_at_the_path_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Killed before any of its moves, a save leaves the old file at the path, and something readable at `keep`."""
    path, keep = tmp_path / "new", tmp_path / "old"
    path.write_text("2")
    keep.write_text("1")
    replace, moments = os.replace, []

    def watch(source: Any, target: Any) -> None:
        moments.append((path.read_text(), keep.read_text()))
        replace(source, target)
        moments.append((path.read_text(), keep.read_text()))

    def refuse(*names: Any) -> None:
        raise OSError(38, "no hard links here")

    monkeypatch.setattr(os, "replace", watch)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    write_atomically(path, lambda temporary: temporary.write_text("3"), keep=keep)
    assert moments == [("2", "1"), ("2", "2"), ("2", "2"), ("3", "2")]
    monkeypatch.undo()
    keep.unlink()
    os.link(path, keep)  # as a process killed between the two moves leaves them
    write_atomically(path, lambda temporary: temporary.write_text("4"), keep=keep)
    assert (path.read_text(), keep.read_text()) == ("4", "3")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new", "old"]


# --- the checkpoint before the latest --------------------------------------------------------------------------------


class Cut(Silent):
    """Ends the run after so many steps, with nothing but the files left."""

    def __init__(self, after: int) -> None:
        self.after = after

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == self.after + 1:
            raise InterruptedError


def test_a_damaged_checkpoint_costs_one_save(photos: Path, tmp_path: Path) -> None:
    whole, cut = (configure(photos, tmp_path / name, "mixup", epochs=2) for name in ("whole", "cut"))
    train(whole)
    with pytest.raises(InterruptedError):
        train(cut, display=Cut(4))
    path = cut.folder / CHECKPOINT
    damaged = bytearray(path.read_bytes())
    damaged[-9] ^= 4
    path.write_bytes(damaged)
    word = rf"^{path}: damaged \(its checksum .*\); resuming from {PREVIOUS}, saved after step 3$"
    with pytest.warns(UserWarning, match=word) as said:
        train(cut, resume=True)
    assert len(said) == 1
    assert digest(cut.folder) == digest(whole.folder)
    assert (cut.folder / DAMAGED).read_bytes() == damaged
    path.unlink()
    assert read_checkpoint(path).facts["step"] == 5
    for file in (path, cut.folder / PREVIOUS):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"damaged .*, and so is .*previous.*--overwrite"):
        read_checkpoint(path)


def rewrite(path: Path, change: Any) -> None:
    tensors, metadata = read_tensors(path)
    header = json.loads(metadata["automix"])
    change(tensors, header)
    write_tensors(path, tensors, {"automix": json.dumps(header)})


def test_what_does_not_fit_is_named_in_one_line(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "mixup", epochs=1)
    train(config)
    path, name = config.folder / CHECKPOINT, "/task/student.fc.bias"
    content = path.read_bytes()
    changes: dict[str, Any] = {
        f"{name} is missing": lambda tensors, header: tensors.pop(name),
        "/more is unknown": lambda tensors, header: tensors.update({"/more": torch.ones(1)}),
        "student.fc.bias is missing": lambda tensors, header: (
            tensors.pop(name),
            header["tree"]["task"].pop("student.fc.bias"),
        ),
        r"student.fc.bias has shape \(9,\), in the network \(3,\)": lambda tensors, header: tensors.update(
            {name: torch.ones(9)}
        ),
        "format 3 is newer than 1": lambda tensors, header: header.update(format=3),
        "its description cannot be read": lambda tensors, header: header.pop("facts"),
    }
    for message, change in changes.items():
        path.write_bytes(content)
        rewrite(path, change)
        with pytest.raises(ValueError, match=rf"^{path}: .*{message}") as raised:
            train(config, resume=True)
        assert "\n" not in str(raised.value)


def test_other_classes_are_named() -> None:
    with pytest.raises(ValueError, match="x: has 2 classes, the data 3"):
        check_classes(Path("x"), ("a", "b"), ("a", "b", "c"))
    with pytest.raises(ValueError, match="x: has class 'b' where the data has 'c'"):
        check_classes(Path("x"), ("a", "b"), ("a", "c"))
    check_classes(Path("x"), ("a", "b"), ("a", "b"))


def test_the_contract_is_in_the_checkpoint(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "mixup", epochs=1, precision="bf16")
    train(config)
    saved = read_checkpoint(config.folder / CHECKPOINT).environment
    assert saved == {**environment(), "precision": "bf16"}
    assert saved.keys() == {"torch", "machine", "device", "precision", "threads", "processes"}
    rewrite(
        config.folder / CHECKPOINT, lambda tensors, header: header["environment"].update(processes=2, precision="fp16")
    )
    word = r"^resumed under other conditions \(precision fp16 -> bf16, processes 2 -> 1\): right, but not bit for bit"
    with pytest.warns(UserWarning, match=word) as said:
        train(config, resume=True)
    assert len(said) == 1


# --- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_before_the_first_step_a_signal_ends_the_run_at_once(number: int, code: int) -> None:
    with pytest.raises(Stopped, match="before the first step") as raised, catch_signals():
        signal.raise_signal(number)
    assert raised.value.exit_code == code


def test_the_second_ctrl_c_does_not_wait() -> None:
    with catch_signals() as stop:
        assert not stop.poll()  # a step has looked
        signal.raise_signal(signal.SIGINT)
        assert stop.poll()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("epoch", [2, 3])  # in the middle, and in the last evaluation of the run
def test_a_signal_in_an_evaluation_does_not_wait_for_its_end(
    epoch: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run leaves after the batch, and the resumed one begins with the evaluation: nothing is lost."""
    whole, broken = (configure(photos, tmp_path / name, checkpoint_minutes=60.0) for name in ("whole", "broken"))
    train(whole)
    batches = [(torch.zeros(2, 3, 16, 16), torch.zeros(2, dtype=torch.int64))] * 5
    evaluated: list[int] = []

    def count_correct(*arguments: Any) -> torch.Tensor:
        evaluated.append(1)
        if len(evaluated) == 1:
            signal.raise_signal(signal.SIGTERM)
        return topk_correct(*arguments)

    def evaluate(*arguments: Any) -> Any:
        done.append(1)
        if len(done) < epoch:
            return measure_accuracy(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "topk_correct", count_correct)
            task, _, *rest = arguments
            return measure_accuracy(task, iter(batches), *rest)

    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(loop, "measure_accuracy", evaluate)
        with pytest.raises(Stopped, match=f"stopped after step {3 * epoch} of 9") as raised:
            train(broken)
    assert raised.value.exit_code == 143
    assert len(evaluated) == 2  # student and teacher on the first of five batches
    assert len(RunFolder(broken.folder).read_metrics().of_kind("epoch")) == epoch - 1
    assert not RunFolder(broken.folder).is_finished
    train(broken, resume=True)
    assert digest(whole.folder) == digest(broken.folder)
    first, second = (RunFolder(config.folder).read_metrics().of_kind("epoch") for config in (whole, broken))
    for expected, found in zip(first, second, strict=True):
        assert expected.keys() == found.keys()
        for name in expected.keys() - {"images_per_second"}:
            assert found[name] == pytest.approx(expected[name]), name
    assert "open_epoch" not in read_checkpoint(broken.folder / CHECKPOINT).facts


# --- NaN and infinity ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:low_memory has no effect")  # because of the hook
@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_finite_stops_the_run_at_that_step(place: str, photos: Path, tmp_path: Path) -> None:
    value = random.Random(place).choice([float("nan"), float("inf")])
    stops_before_the_update(place, value, configure(photos, tmp_path / "run", checkpoint_minutes=60))


def scaler(scale: float) -> torch.amp.GradScaler:
    found = torch.amp.GradScaler("cpu", init_scale=scale)
    found.scale(torch.ones(1))  # it makes its factor when it is first used
    return found


def test_with_fp16_an_infinite_gradient_is_the_scalers_business() -> None:
    off = torch.amp.GradScaler("cpu", enabled=False)
    inf = float("inf")
    good = {"loss": 1.0, "loss_mixed": 1.0, "gradient_norm": 2.0}
    for found in (off, scaler(65536.0)):
        assert not_finite(good, found) == []
        assert not_finite({**good, "loss": inf, "loss_mixed": inf}, found) == ["loss", "loss_mixed"]
    assert not_finite({**good, "gradient_norm": inf}, off) == ["gradient_norm"]
    assert not_finite({**good, "gradient_norm": inf}, scaler(65536.0)) == []
    assert not_finite({**good, "gradient_norm": inf}, scaler(0.5)) == ["gradient_norm"]  # without any scaling too


class HalfPrecision(Silent):
    """Turns a run on the CPU, where fp16 is not offered because it is slow, into one of fp16."""

    def __init__(self, scale: float) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        self.moved: list[bool] = []
        self.scales: list[float] = []

    def begin(self, run: Run) -> None:
        run.precision, run.scaler = "fp16", self.scaler
        self.weights = [parameter.detach().clone() for parameter in run.trained_parameters]

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        self.moved.append(not all(map(torch.equal, self.weights, run.trained_parameters)))
        self.scales.append(self.scaler.get_scale())
        self.weights = [parameter.detach().clone() for parameter in run.trained_parameters]


def test_an_overflow_is_left_to_the_scaler(photos: Path, tmp_path: Path) -> None:
    """Scaled by 2 ** 20 the gradients overflow: such steps move nothing, and the factor is halved until they do."""
    half = HalfPrecision(2.0**20)
    train(configure(photos, tmp_path / "run", "mixup", lr=0.01), display=half)
    assert not half.moved[0]
    assert any(half.moved)
    assert half.scales[0] == 2.0**19
    assert half.scales[-1] == 2.0 ** (20 - half.moved.count(False))


@pytest.mark.filterwarnings("ignore:low_memory has no effect")  # because of the hook
def test_a_gradient_that_is_infinite_without_scaling_stops_an_fp16_run_too(photos: Path, tmp_path: Path) -> None:
    class Spoil(HalfPrecision):
        def begin(self, run: Run) -> None:
            super().begin(run)
            run.trained_parameters[0].register_hook(lambda gradient: gradient * float("inf"))

    spoil = Spoil(4.0)
    with pytest.raises(NotFiniteError, match=r"^step 3: gradient_norm not finite"):
        train(configure(photos, tmp_path / "run", "mixup"), display=spoil)
    assert spoil.moved == [False] * 3  # 4, 2, 1: then there is nothing left to halve
