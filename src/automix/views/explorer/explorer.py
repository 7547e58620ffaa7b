"""Mix a pair of images by any method at any lam, and classify the mixed image.

    explorer = open_explorer("runs/x")
    pair = explorer.pair(explorer.examples[0], explorer.examples[1])
    mixed = explorer.mix(pair, "automix", 0.3)      # or one line that says why the method cannot
    results = explorer.classify(mixed)              # student and teacher: top-2 classes and their activation maps

Features, saliency and attention depend on the pair alone and are computed once: a new lam costs the mixing and one
forward pass of each network. The same pair, method and lam always give the same image.
"""

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from automix.core.errors import one_line
from automix.core.normalization import denormalize, normalize
from automix.core.target import Mixed
from automix.core.validation import check_range
from automix.data.image_set import resize_and_crop
from automix.evaluation.heatmaps import class_maps, resize_maps
from automix.methods import check_method, create_task, methods
from automix.networks.modes import eval_mode
from automix.runs.classifier import Card
from automix.tasks.hidden_task import HiddenTask
from automix.tasks.image_cache import with_cache
from automix.tasks.task import Task
from automix.views.explorer.pair import Classification, MixedImage, Pair, Picture

CACHED_PAIRS = 8
TOP = 2  # classes: ideally those of the two images
PARTNER = torch.tensor([1, 0])
CAM_METHODS = (("cam", 4), ("grad_cam", 4), ("grad_cam", 3))  # method and layer; the first that the network allows

NEEDS_NETWORK = "needs a network; open one with: automix explore RUN"
NEEDS_TRAINING = "learns to mix; open a run that was trained with it: automix explore RUN"
ONE_IMAGE = "changes single images and mixes no pairs"
INSIDE = "mixes inside the network; shown is how it mixes the input"


@dataclass(eq=False)
class Explorer:
    """Networks, example images and the methods to mix them with.

    Attributes:
        name: What was opened.
        card: Classes, image size and normalization of the networks.
        examples: Images to choose from.
        networks: Networks by name. The last one is the classifier, which saliency methods use; there may be none.
        task: The task of the run, as training left it.
        method: The method of the run, or the one to show first.
        notes: What the user should know, one sentence each.
    """

    name: str
    card: Card
    examples: Sequence[Picture]
    networks: Mapping[str, nn.Module] = field(default_factory=dict)
    task: Task | None = None
    method: str = "mixup"
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._lock = threading.RLock()  # hooks and caches serve one request at a time
        self._tasks: dict[str, Task | str] = {}
        self._cam_methods = {name: list(CAM_METHODS) for name in self.networks}
        self._cam_errors: dict[str, str] = {}
        self._cached_pair = functools.lru_cache(maxsize=CACHED_PAIRS)(self._make_pair)
        self._mean, self._std = torch.tensor(self.card.mean), torch.tensor(self.card.std)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.card.classes if self.networks else ()

    @property
    def classifier(self) -> str | None:
        """Name of the network that is deployed: the teacher if there is one."""
        return list(self.networks)[-1] if self.networks else None

    def read(self, image: Any, caption: str) -> Picture:
        """Prepare an image as test images are prepared.

        Args:
            image: PIL image, RGB.
            caption: Text below it.

        Returns:
            The picture, without a label.
        """
        fitted = resize_and_crop(image, image.size, self.card.image_size, self.card.crop)
        return Picture(torch.from_numpy(np.array(fitted)).permute(2, 0, 1), caption)

    def pair(self, first: Picture, second: Picture) -> Pair:
        """Make a pair of two images; the last few pairs are kept.

        Args:
            first: The image that lam is the weight of.
            second: Its partner.

        Returns:
            The pair.
        """
        return self._cached_pair(first, second)

    def _make_pair(self, first: Picture, second: Picture) -> Pair:
        pixels = torch.stack([first.pixels, second.pixels]).float() / 255
        x = normalize(pixels, self._mean, self._std)
        labels = [first.label, second.label]
        if self.networks and None in labels:
            with self._lock:
                predicted = self._logits(list(self.networks.values())[-1], x).argmax(dim=1).tolist()
            labels = [own if own is not None else guess for own, guess in zip(labels, predicted, strict=True)]
        y = [position if label is None else label for position, label in enumerate(labels)]
        return Pair((first, second), x, torch.tensor(y))

    # --- mixing

    def mix(self, pair: Pair, method: str, lam: float) -> MixedImage | str:
        """Mix a pair.

        Args:
            pair: The pair.
            method: One of `methods()`.
            lam: Weight of the first image, in [0, 1].

        Returns:
            The mixed image, or one line that says why the method cannot mix the pair.
        """
        check_range("lam", lam, 0, 1)
        with self._lock:
            task = self._task(method)
            if isinstance(task, str):
                return task
            try:
                mixed = task.mix(pair.x, pair.y, lam=lam, index=PARTNER)
            except (ValueError, RuntimeError) as error:
                return one_line(error)
        if _is_one_image(mixed):
            return ONE_IMAGE
        pixels = denormalize(mixed.x[0], self._mean, self._std).clamp(0, 1)
        note = INSIDE if isinstance(task, HiddenTask) else ""
        return MixedImage(mixed.x[:1], pixels, mixed.mask[0].float(), _share(mixed), note)

    def mix_all(self, pair: Pair, lam: float) -> dict[str, MixedImage | str]:
        """Mix a pair by every method.

        Args:
            pair: The pair.
            lam: Weight of the first image, in [0, 1].

        Returns:
            For each method, what `mix` returns.
        """
        return {name: self.mix(pair, name, lam) for name in self.methods()}

    def methods(self) -> list[str]:
        """List all methods, that of the run first."""
        return sorted(methods(), key=lambda name: name != self.method)

    def _task(self, method: str) -> Task | str:
        check_method(method)
        if method not in self._tasks:
            made = self._make_task(method)
            self._tasks[method] = made if isinstance(made, str) else with_cache(made, CACHED_PAIRS)
        return self._tasks[method]

    def _make_task(self, method: str) -> Task | str:
        """The task of a method, or why there is none."""
        if self.task is not None and method == self.method:
            return self.task
        network = nn.Identity() if self.classifier is None else self.networks[self.classifier]
        try:
            task = create_task(method, network)
        except (ValueError, RuntimeError) as error:
            return one_line(error) if self.networks else NEEDS_NETWORK
        if task.learns_to_mix:
            return NEEDS_TRAINING
        if not self.networks and any(getattr(task, name) is not None for name in task.image_functions):
            return NEEDS_NETWORK
        return task

    # --- classifying

    def classify(self, mixed: MixedImage) -> list[Classification]:
        """Classify a mixed image by every network.

        Args:
            mixed: The mixed image.

        Returns:
            The two most probable classes for each network, with their class activation maps.
        """
        with self._lock:
            return [self._classify(name, network, mixed.x) for name, network in self.networks.items()]

    def classify_batch(self, mixed: Sequence[MixedImage]) -> list[Classification]:
        """Classify several mixed images in one pass of the classifier, without maps.

        Args:
            mixed: The mixed images.

        Returns:
            One result for each; none without a network.
        """
        if self.classifier is None or not mixed:
            return []
        with self._lock:
            logits = self._logits(self.networks[self.classifier], torch.cat([one.x for one in mixed]))
        return [_top_classes(self.classifier, row) for row in logits]

    def _classify(self, name: str, network: nn.Module, x: Tensor) -> Classification:
        while self._cam_methods[name]:
            try:
                return self._with_maps(name, network, x, *self._cam_methods[name][0])
            except (ValueError, RuntimeError) as error:
                self._cam_methods[name].pop(0)  # the network does not allow it, whatever the image
                self._cam_errors[name] = f"no class activation maps: {one_line(error)}"
        return replace(_top_classes(name, self._logits(network, x)[0]), note=self._cam_errors[name])

    def _with_maps(self, name: str, network: nn.Module, x: Tensor, cam_method: str, layer: int) -> Classification:
        if cam_method == "cam":  # maps of all classes come from the same pass as the logits
            every = torch.arange(len(self.classes)).unsqueeze(0)
            maps, logits = class_maps(network, x, every, cam_method, layer)
            result = _top_classes(name, logits[0])
            maps = maps[0, list(result.classes)]
        else:
            result = _top_classes(name, self._logits(network, x)[0])
            maps = class_maps(network, x, torch.tensor([result.classes]), cam_method, layer)[0][0]
        return replace(result, maps=resize_maps(maps, (x.shape[2], x.shape[3])))

    def _logits(self, network: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad(), eval_mode(network):
            return network(x)


def _is_one_image(mixed: Mixed) -> bool:
    """Whether the label is still that of the first image; a label with rows stands for many images."""
    return mixed.target.y_b is mixed.target.y_a and mixed.target.y_a.ndim == 1


def _share(mixed: Mixed) -> float:
    if mixed.target.y_a.ndim != 1:
        return float(mixed.mask[0].float().mean())
    return float(mixed.target.lam.reshape(-1)[0])


def _top_classes(network: str, logits: Tensor) -> Classification:
    top = logits.float().softmax(dim=0).topk(min(TOP, len(logits)))
    return Classification(network, tuple(top.indices.tolist()), tuple(top.values.tolist()))
