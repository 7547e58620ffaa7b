"""What a search has found: the configurations with their scores, the winner, and how sure it is. tuning.json has it."""

import json
import math
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.runs.folder import RunFolder
from automix.studies.tuning.candidates import CANDIDATES
from automix.training.build import build_data
from automix.training.distributed import World

FILE = "tuning.json"
PLAIN = tuple(candidate.name for candidate in CANDIDATES if candidate.is_plain)


@dataclass(frozen=True)
class Configuration:
    """A configuration that was tried.

    Attributes:
        number: Its number in the search.
        candidate: Name of the method.
        title: The method as tables call it.
        lr: The learning rate.
        alpha: The alpha; None for the recipe's.
        scores: Accuracy on the held-out images in percent, by epochs of the run.
        seconds: Time of all its runs.
        state: "complete" (trained to the full length), "stopped" (others were better), "failed", or "waiting".
        runs: Folders of its finished runs, by epochs.
    """

    number: int
    candidate: str
    title: str
    lr: float
    alpha: float | None
    scores: dict[int, float]
    seconds: float
    state: str
    runs: dict[int, str]

    @property
    def epochs(self) -> int:
        """The length of its longest run; 0 if none is finished."""
        return max(self.scores, default=0)

    @property
    def score(self) -> float:
        """The accuracy of its longest run."""
        return self.scores.get(self.epochs, 0.0)

    @property
    def is_plain(self) -> bool:
        """Whether it mixes nothing."""
        return self.candidate in PLAIN

    @property
    def label(self) -> str:
        """The configuration in a few words."""
        alpha = "" if self.alpha is None else f", alpha {self.alpha:g}"
        return f"{self.title}, lr {self.lr:g}{alpha}"


@dataclass(frozen=True)
class Margin:
    """How far the winner is ahead of another configuration on the same held-out images.

    Attributes:
        other: The other configuration, in a few words.
        points: Difference of the accuracies, in percentage points.
        error: Its standard error over the images, in points.
        images: Number of held-out images.
        epochs: Length of the two runs.
    """

    other: str
    points: float
    error: float
    images: int
    epochs: int

    @property
    def is_noise(self) -> bool:
        """Whether the difference is less than two standard errors."""
        return abs(self.points) <= 2 * self.error

    @property
    def text(self) -> str:
        """The margin in one line."""
        verdict = "within noise" if self.is_noise else "more than noise"
        length = f"after {self.epochs} epoch{'s' if self.epochs > 1 else ''}"
        return f"{self.points:+.1f} ± {self.error:.1f} points against {self.other}, {length}: {verdict}"


@dataclass(frozen=True)
class TuneRecord:
    """The result of a search.

    Attributes:
        data: The dataset.
        minutes: Time that was given.
        seconds: Time that was taken.
        epochs: Lengths of the runs, by level.
        images: Number of held-out images.
        configurations: All configurations that were tried.
        winner: Number of the winner; None if no run is finished.
        margins: The winner against the best plain training, and against the next best configuration.
        last: The last training, on all training images: its folder, epochs and test accuracy; empty before it is done.
    """

    data: str
    minutes: float
    seconds: float
    epochs: tuple[int, ...]
    images: int
    configurations: tuple[Configuration, ...]
    winner: int | None = None
    margins: tuple[Margin, ...] = ()
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def ranking(self) -> list[Configuration]:
        """The configurations, the winner first: longer runs before shorter ones, then by accuracy."""
        return sorted(self.configurations, key=lambda one: (-one.epochs, -one.score, one.number))

    def conclusions(self) -> list[str]:
        """Say what was found.

        Returns:
            A few lines: the winner, how sure it is, and its last training.
        """
        winner = next((one for one in self.configurations if one.number == self.winner), None)
        if winner is None:
            return ["no run is finished"]
        error = self.standard_error(winner.score)
        lines = [f"winner: {winner.label}: {winner.score:.1f} ± {error:.1f} % of {self.images} held-out images after "
                 f"{winner.epochs} epochs"]  # fmt: skip
        lines += [f"  {margin.text}" for margin in self.margins]
        if winner.is_plain:
            lines.append("plain training is recommended: nothing that mixes was ahead of it")
        elif any(margin.is_noise for margin in self.margins):
            lines.append("a longer search, or more images, would tell the configurations apart more surely")
        if self.last:
            lines.append(f"trained on all training images for {self.last['epochs']} epochs: "
                         f"{self.last['test_top1']:.2f} % of the test images")  # fmt: skip
        taken, given = (timedelta(seconds=round(seconds)) for seconds in (self.seconds, 60 * self.minutes))
        tried = sum(bool(one.scores) for one in self.configurations)
        return [*lines, f"{tried} configurations in {taken} of {given}"]

    def standard_error(self, score: float) -> float:
        """Estimate how sure an accuracy is.

        Args:
            score: An accuracy on the held-out images, in percent.

        Returns:
            Its standard error over the images, in percentage points.
        """
        share = score / 100
        return 100 * math.sqrt(max(share * (1 - share), 0.0) / max(self.images, 1))

    def save(self, folder: Path) -> None:
        """Write the record.

        Args:
            folder: The folder of the search.
        """
        write_text(folder / FILE, json.dumps(asdict(self), indent=2) + "\n")


def read_record(folder: Path) -> TuneRecord:
    """Read the record of a search.

    Args:
        folder: The folder of the search.

    Returns:
        The record.
    """
    try:
        values = json.loads((folder / FILE).read_text(encoding="utf-8"))
        values["configurations"] = tuple(_configuration(one) for one in values["configurations"])
        values["margins"] = tuple(Margin(**margin) for margin in values["margins"])
        return TuneRecord(**{**values, "epochs": tuple(values["epochs"])})
    except FileNotFoundError:
        raise AutomixError(f"{folder}: no {FILE} in it; give the folder of a search of automix tune") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutomixError(f"{folder / FILE}: cannot be read ({one_line(error)})") from None


def _configuration(values: dict[str, Any]) -> Configuration:
    """JSON has texts for the numbers of epochs."""
    by_epochs = {name: {int(epochs): one for epochs, one in values[name].items()} for name in ("scores", "runs")}
    return Configuration(**{**values, **by_epochs})


def held_out_hits(run: Path) -> Tensor:
    """Classify the held-out images of a finished run.

    Args:
        run: The run folder.

    Returns:
        Whether each image was classified right, ``(N,)`` bool, in the order of the images.
    """
    model, _ = RunFolder(run).load_classifier()
    loader = build_data(RunFolder(run).read_config(), World()).loader
    with torch.inference_mode():
        return torch.cat([model(x).argmax(dim=1) == y for x, y in loader.test_batches()])


def paired_margin(winner: Tensor, other: Tensor, label: str, epochs: int) -> Margin:
    """Compare two classifiers on the same images.

    The standard error is that of the mean of the differences, image by image: images that both classify right, or both
    wrong, add nothing to it.

    Args:
        winner: Whether the winner classified each image right, ``(N,)`` bool.
        other: The same of the other one.
        label: What the other one is called.
        epochs: Length of the two trainings.

    Returns:
        The margin.
    """
    differences = winner.double() - other.double()
    error = differences.std().item() / math.sqrt(len(differences)) if len(differences) > 1 else float("inf")
    return Margin(label, 100 * differences.mean().item(), 100 * error, len(differences), epochs)
