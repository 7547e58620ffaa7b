"""What the evaluators of one call share: the classifier, its images, its predictions and the mixers."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from automix.core.normalization import normalize
from automix.data.registry import DATASETS
from automix.evaluation.cam import NoCamError, cam
from automix.evaluation.corruptions.accuracy import SEVERITIES
from automix.evaluation.inputs import EvaluationInputs
from automix.evaluation.mixers import Mixer, method_mixer, mixes_pairs, task_mixer
from automix.evaluation.predictions import Predictions, predict_logits
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.samples import BATCH
from automix.tasks.image_cache import with_cache

MIDDLE = 3  # of the severities 1 to 5
COMPARED = ("mixup", "cutmix")  # mixers beside the run's own


@dataclass(frozen=True)
class Mixers:
    """Mixers by name, and notes on them."""

    by_name: dict[str, Mixer]
    notes: list[str] = field(default_factory=list)


@dataclass
class Session:
    """What the evaluators of one call share.

    Attributes:
        inputs: The classifier and its test images.
        batch_size: Images per forward pass.
        corrupted: A folder in the layout of CIFAR-C or ImageNet-C; corrupted images are generated if not given.
        squeeze: Squeeze images into a square for the localization, instead of cropping the center.
        track: Progress display.
        severities: Severities of the corruptions; chosen by the data if not given.
    """

    inputs: EvaluationInputs
    batch_size: int = BATCH
    corrupted: Path | None = None
    squeeze: bool = False
    track: Track = no_progress
    severities: tuple[int, ...] | None = None

    @property
    def chosen_severities(self) -> tuple[int, ...]:
        """The severities that are given, or all five; of a folder of one's own the middle one."""
        if self.severities is not None:
            return self.severities
        return SEVERITIES if self.corrupted is not None or self.inputs.data in DATASETS else (MIDDLE,)

    @property
    def classifier_and_samples(self) -> tuple[Any, Any]:
        """The first two arguments of the evaluators."""
        return self.inputs.classifier, self.inputs.samples

    @property
    def options(self) -> dict[str, Any]:
        """The options that all evaluators have."""
        return {"batch_size": self.batch_size, "track": self.track}

    def with_images(self, count: int) -> "Session":
        """Copy the session for some of its images, without a progress display.

        Args:
            count: How many images, of as many classes as possible.

        Returns:
            The copy. It shares the mixers, if they are loaded.
        """
        inputs = replace(self.inputs, samples=self.inputs.samples.first(count))
        copy = replace(self, inputs=inputs, track=no_progress)
        if "mixers" in vars(self):
            copy.mixers = self.mixers
        return copy

    @cached_property
    def predictions(self) -> Predictions:
        """Logits and labels, computed once."""
        return predict_logits(*self.classifier_and_samples, **self.options)

    @cached_property
    def has_cam(self) -> bool:
        """Whether the network has class activation maps, tried on one image."""
        x, y = next(self.inputs.samples.batches(1, self.inputs.device))
        try:
            cam(self.inputs.classifier, x, y.unsqueeze(1))
        except NoCamError:
            return False
        return True

    @cached_property
    def mixers(self) -> Mixers:
        """Mixup, CutMix, and the mixer of the run."""
        mixers = {name: method_mixer(name) for name in COMPARED}
        run = self.inputs.run
        if run is None or not run.has_checkpoint:
            return Mixers(mixers)
        from automix.training.load import load_task

        task, card, config = load_task(run.path)
        task = task.to(self.inputs.device)
        x, _ = next(self.inputs.samples.batches(2, self.inputs.device))
        if len(x) == 2 and not mixes_pairs(task, normalize(x, card.mean, card.std)):
            return Mixers(mixers, [f"{config.method} is left out: it does not mix pairs of images"])
        # one batch: all lams of a batch follow each other
        mixers[config.method] = task_mixer(with_cache(task, batches=1), card.mean, card.std)
        if self.inputs.which == "best":
            return Mixers(mixers, [f"{config.method} mixes as after the last epoch, not as after the best one"])
        return Mixers(mixers)
