"""The folder of a training run: the only module that knows which file lies where in it.

config.yaml              all settings; `automix train --config` repeats the run
checkpoint.safetensors   everything --resume needs; checkpoint-previous.safetensors is there in case it is damaged
last.safetensors         the classifier after the last epoch, complete by itself
best.safetensors         the one with the highest test accuracy: chosen on test data, so never a result to report
mix_block.safetensors    AutoMix's Mix Block, to start another training from
metrics.jsonl            a record every so many steps and after every epoch; tensorboard/ has the same
skipped.json             the files left out with --bad-data skip, and why
pictures/                mixed samples and their masks, by epoch and over time
summary.json             the result; a run that has it is finished
evaluation/              what `automix evaluate` measured; evaluation-best/ on best.safetensors,
                         evaluation-student/ on a student beside its teacher
report.html              what `automix report` wrote
.lock                    held by the process that trains

Reading a run checks values, never the environment: the folder may have been copied to another machine, its data moved,
and the weights it started from deleted.
"""

import errno
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from torch import nn

from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.methods.automix.block_file import FILE_NAME as MIX_BLOCK
from automix.runs.checkpoint import Checkpoint, damaged_path, previous_path, read_checkpoint
from automix.runs.classifier import Card, read_classifier
from automix.runs.config import TrainConfig, read_config
from automix.runs.metrics import Metrics, Network, deployed_network, read_metrics

Which = Literal["last", "best"]

EXPORTED = "model.safetensors"
"""The classifier in a folder that `automix export --format timm` wrote."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)  # of a file system that has none


def load_classifier(path: Path | str, which: Which = "last") -> tuple[nn.Module, Card]:
    """Load a trained classifier from a run folder, from a classifier's file, or from an export for timm.

    Args:
        path: The folder of a run, a file that `save_classifier` wrote, or a folder of ``automix export --format timm``.
        which: In a run folder, the weights after the last epoch or those with the highest test accuracy.

    Returns:
        The classifier on the CPU in eval mode, and the card to use it by. It takes normalized images; wrap it in
        `WithNormalization` for pixels in [0, 1].

    Raises:
        AutomixError: There is no classifier, or its file is damaged.
    """
    path = Path(path)
    file = RunFolder(path).classifier(which) if path.is_dir() else path
    if path.is_dir() and not file.is_file() and (path / EXPORTED).is_file():
        file = path / EXPORTED
    if not file.is_file():
        where = f"{path}: no {file.name} in it" if path.is_dir() else f"{path}: no such file or folder"
        raise AutomixError(f"{where}; give a run folder or a classifier's safetensors file")
    return read_classifier(file)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a training run, and the files in it.

    Attributes:
        path: The folder; it need not exist.
    """

    path: Path

    # --- what lies where

    @property
    def config(self) -> Path:
        """All settings, as YAML."""
        return self.path / "config.yaml"

    @property
    def checkpoint(self) -> Path:
        """The latest state of the training."""
        return self.path / "checkpoint.safetensors"

    @property
    def checkpoints(self) -> tuple[Path, Path, Path]:
        """The latest checkpoint, the one before it, and a damaged one that was replaced."""
        return self.checkpoint, previous_path(self.checkpoint), damaged_path(self.checkpoint)

    def classifier(self, which: Which = "last") -> Path:
        """Name the file of a trained classifier.

        Args:
            which: The weights after the last epoch, or those with the highest test accuracy.

        Returns:
            The path; the file need not exist.
        """
        if which not in ("last", "best"):
            raise AutomixError(f"which must be one of last, best; got {which!r}")
        return self.path / f"{which}.safetensors"

    @property
    def mix_block(self) -> Path:
        """The Mix Block of a run of AutoMix."""
        return self.path / MIX_BLOCK

    @property
    def metrics(self) -> Path:
        """The log: a JSON record a line."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """The result of a finished run."""
        return self.path / "summary.json"

    @property
    def skipped(self) -> Path:
        """The list of files that were left out with `bad_data="skip"`."""
        return self.path / "skipped.json"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's events."""
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        """The page that `automix report` writes."""
        return self.path / "report.html"

    @property
    def export_stem(self) -> Path:
        """Where `automix export` writes, without a suffix."""
        return self.path / "classifier"

    @property
    def pictures(self) -> Path:
        """The folder of mixed samples."""
        return self.path / "pictures"

    def epoch_picture(self, epoch: int) -> Path:
        """Name the picture of mixed samples after an epoch.

        Args:
            epoch: Number of epochs done; 0 is before the first step.

        Returns:
            The path; the file need not exist.
        """
        return self.pictures / f"epoch-{epoch:04d}.png"

    def epoch_pictures(self) -> dict[int, Path]:
        """List the pictures of mixed samples.

        Returns:
            The files that exist, by epoch in ascending order.
        """
        found = {path.stem.removeprefix("epoch-"): path for path in self.pictures.glob("epoch-*.png")}
        return {int(digits): found[digits] for digits in sorted(found) if digits.isdecimal()}

    @property
    def mask_history(self) -> Path:
        """The picture of the same mixed samples over the training."""
        return self.pictures / "over-time.png"

    @property
    def evaluation(self) -> Path:
        """The folder of what was measured on the deployed network."""
        return self.path / "evaluation"

    def evaluation_of(self, network: Network) -> Path:
        """Name the folder of what was measured on one network of a finished run.

        Args:
            network: A student beside its teacher has a folder of its own.

        Returns:
            The path; the folder need not exist.
        """
        is_beside = network == "student" and deployed_network(self.summary()) == "teacher"
        return self.path / "evaluation-student" if is_beside else self.evaluation

    def evaluation_of_weights(self, which: Which) -> Path:
        """Name the folder of what was measured on some weights of the deployed network.

        Args:
            which: The weights with the highest test accuracy have a folder of their own.

        Returns:
            The path; the folder need not exist.
        """
        return self.path / "evaluation-best" if which == "best" else self.evaluation

    @property
    def samples(self) -> Path:
        """The mixed samples from which a study draws its figures."""
        return self.evaluation / "samples.safetensors"

    def detector(self, data: str) -> Path:
        """Name the folder of a detector that was fine-tuned on this run's classifier.

        Args:
            data: Name of the detection dataset.

        Returns:
            The path; the folder need not exist.
        """
        return self.path / f"detect-{data}"

    # --- what is in the files

    @property
    def is_run(self) -> bool:
        """Whether there is a run in the folder, finished or not."""
        return self.config.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run has trained to its end."""
        return self.summary_file.is_file()

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any(path.exists() for path in self.checkpoints[:2])

    def read_values(self) -> dict[str, Any]:
        """Read config.yaml without interpreting it.

        Returns:
            The settings by name, those of the recipe included.
        """
        return read_config(self.config)

    def read_config(self) -> TrainConfig:
        """Read the settings of the run.

        Returns:
            The configuration; its `out` is this folder, wherever the run was trained.
        """
        return replace(TrainConfig.from_flat(self.read_values()), out=str(self.path))

    def read_checkpoint(self) -> Checkpoint:
        """Read the latest checkpoint, or the one before it where the latest is damaged.

        Returns:
            The state of the training.
        """
        if not self.has_checkpoint:
            raise AutomixError(f"{self.path}: no {self.checkpoint.name} in it; give the folder of a run that saved one")
        return read_checkpoint(self.checkpoint)

    def load_classifier(self, which: Which = "last") -> tuple[nn.Module, Card]:
        """Load the run's classifier.

        Args:
            which: The weights after the last epoch, or those with the highest test accuracy.

        Returns:
            The classifier on the CPU in eval mode, and the card to use it by.
        """
        return load_classifier(self.path, which)

    def read_metrics(self) -> Metrics:
        """Read the log.

        Returns:
            Its records; none where there is no log.
        """
        return read_metrics(self.metrics)

    def summary(self) -> dict[str, Any]:
        """Read the result of a finished run.

        Returns:
            The last accuracies, the median of the last epochs, steps, seconds and precision, by name.
        """
        try:
            found = json.loads(self.summary_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AutomixError(
                f"{self.path}: no {self.summary_file.name} in it; give the folder of a finished run"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise AutomixError(f"{self.summary_file}: cannot be read ({one_line(error)})") from None
        if not isinstance(found, dict):
            raise AutomixError(f"{self.summary_file}: cannot be read (no object)")
        return found

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the result, which marks the run as finished.

        Args:
            summary: Values that JSON has, by name.
        """
        write_text(self.summary_file, json.dumps(summary, indent=2) + "\n")

    # --- who may write

    def check_resumable(
        self,
        now: dict[str, Any],
        read_before: Callable[[], dict[str, Any]],
        may_change: Collection[str],
        *,
        resume: bool,
        overwrite: bool,
    ) -> bool:
        """Refuse to write over a run, or to continue one with other settings.

        Args:
            now: The settings, by name.
            read_before: Reads the settings of the run in the folder; called where there is one to continue.
            may_change: Names of the settings in which the two may differ.
            resume: Continue a run in the folder.
            overwrite: Start over in the folder of a run.

        Returns:
            Whether there is a checkpoint to continue from.

        Raises:
            AutomixError: The folder is a file, holds a run, or holds a run with other settings.
        """
        self._check_place()
        if not self.config.exists() or overwrite:
            return False
        if not resume:
            raise AutomixError(f"{self.path}: holds a run already; use --resume, --overwrite or another --out")
        if not self.has_checkpoint:
            return False
        before = read_before()
        for name in now:
            if name not in may_change and before[name] != now[name]:
                raise AutomixError(
                    f"{self.path}: was trained with {name}={before[name]}, got {name}={now[name]}; "
                    "resume with the same settings, or use another --out"
                )
        return True

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else; in a folder without a run, nothing at all."""
        if not self.config.exists():
            return
        files = [*self.checkpoints, self.classifier("last"), self.classifier("best"), self.mix_block, self.metrics,
                 self.summary_file, self.skipped, self.mask_history, *self.epoch_pictures().values(), self.report,
                 *self.tensorboard.glob("events.*"), *self.evaluation.glob("*"),
                 *self.path.glob(f"{self.evaluation.name}-student/*"),
                 *self.evaluation_of_weights("best").glob("*")]  # fmt: skip
        for path in files:
            path.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one training process; the system releases it when the process ends, however it ends.

        Yields:
            Nothing; the lock is held inside the `with` block.

        Raises:
            AutomixError: Another process holds it.
        """
        self._check_place()
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise AutomixError(f"{self.path}: another process is training in this folder; use another --out") from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                raise
            warnings.warn(f"{self.path}: cannot be locked ({one_line(error)}); start no second run in it", stacklevel=2)
        try:
            yield
        finally:
            if missing and [path.name for path in self.path.iterdir()] == [".lock"]:  # the run never began
                (self.path / ".lock").unlink()
                for path in missing:
                    path.rmdir()
            lock.release()

    def _check_place(self) -> None:
        if self.path.exists():
            if not self.path.is_dir():
                raise AutomixError(f"{self.path}: is a file; give --out a folder")
            return
        try:
            os.stat(self.path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise AutomixError(f"{self.path}: a loop of links; give --out a folder") from None
        except ValueError:  # a null character, or one that no file name can have
            raise AutomixError(f"{str(self.path)!r} cannot be the name of a folder; give --out another one") from None
        if self.path.is_symlink():
            raise AutomixError(f"{self.path}: a link to nothing; give --out a folder")
