"""A pair of images: mixed by any method at any lam, and what the networks say of the mixed image.

    explorer = open_explorer("runs/x")
    pair = explorer.pair(explorer.examples[0], explorer.examples[1])
    blend = explorer.mix(pair, "automix", 0.3)      # or a line that says why the method cannot
    answers = explorer.ask(blend)                   # student and teacher: top 2 and where they see them

What depends on the pair alone (the features that the Mix Block compares, saliency, attention) is computed once for it:
a new lam costs the mixing and one forward pass of each network. The same pair, method and lam always give the same
image.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
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
from automix.methods.automix.task import AutoMix
from automix.networks.modes import eval_mode
from automix.runs.classifier import Card
from automix.tasks.hidden_task import HiddenTask
from automix.tasks.task import Task

TOP = 2  # classes: those of the two images, where all is well
REMEMBERED = 8  # pairs
PARTNER = torch.tensor([1, 0])
WAYS = (("cam", 4), ("grad_cam", 4), ("grad_cam", 3))  # method and layer: the first that the network allows

NEEDS_NETWORK = "needs a network: automix explore RUN, a classifier's file, or a network's name"
NEEDS_BLOCK = "needs a trained Mix Block: automix explore RUN, with a run of --method automix"
ONE_IMAGE = "changes one image at a time: the second has no part in it"
INSIDE = "mixes inside the network; this is how it mixes the input"


@dataclass(frozen=True, eq=False)
class Picture:
    """An image to choose: `pixels` (3, S, S) uint8, its class among the network's where that is known."""

    pixels: Tensor
    caption: str
    label: int | None = None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two pictures as the networks take them, (2, 3, S, S), and their classes: known, or what the network sees."""

    pictures: tuple[Picture, Picture]
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Blend:
    """A mixed image: `x` (1, 3, S, S) as networks take it, its `pixels` and `mask` (1, S, S) in [0, 1].

    `share` is that of the first image in the label, which follows lam or what the mask really shows.
    """

    x: Tensor
    pixels: Tensor
    mask: Tensor
    share: float
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """What a network says of a mixed image: its most probable classes, and a map in [0, 1] of where it sees each."""

    network: str
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    maps: Tensor | None = None  # (K, S, S)
    note: str = ""


@dataclass(eq=False)
class Explorer:
    """What is explored. The last of `networks` is the classifier that methods with a network ask; there may be none."""

    name: str
    card: Card
    examples: Sequence[Picture]
    networks: Mapping[str, nn.Module] = field(default_factory=dict)
    task: Task | None = None  # of the run, as training left it
    method: str = "mixup"  # the run's, or what is shown first
    notes: Sequence[str] = ()  # what a person should know of it

    def __post_init__(self) -> None:
        self._lock = threading.RLock()  # hooks and caches are for one at a time
        self._tasks: dict[str, Task | str] = {}
        self._ways = {name: list(WAYS) for name in self.networks}
        self._no_maps: dict[str, str] = {}
        self.pair = functools.lru_cache(maxsize=REMEMBERED)(self._pair)
        self._mean, self._std = torch.tensor(self.card.mean), torch.tensor(self.card.std)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.card.classes if self.networks else ()

    @property
    def classifier(self) -> str | None:
        """The name of the network that counts."""
        return list(self.networks)[-1] if self.networks else None

    def read(self, image: Any, caption: str) -> Picture:
        """PIL's RGB image as the test images are prepared."""
        fitted = resize_and_crop(image, image.size, self.card.image_size, self.card.crop)
        return Picture(torch.from_numpy(np.array(fitted)).permute(2, 0, 1), caption)

    def _pair(self, first: Picture, second: Picture) -> Pair:
        pixels = torch.stack([first.pixels, second.pixels]).float() / 255
        x = normalize(pixels, self._mean, self._std)
        labels = [first.label, second.label]
        if self.networks and None in labels:
            with self._lock:
                seen = self._logits(list(self.networks.values())[-1], x).argmax(dim=1).tolist()
            labels = [label if label is not None else here for label, here in zip(labels, seen, strict=True)]
        known = [position if label is None else label for position, label in enumerate(labels)]
        return Pair((first, second), x, torch.tensor(known))

    # --- mixing

    def mix(self, pair: Pair, method: str, lam: float) -> Blend | str:
        """The first image of the pair with a share of about `lam`, or the line that says why `method` cannot."""
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
        return Blend(mixed.x[:1], pixels, mixed.mask[0].float(), _share(mixed), note)

    def compare(self, pair: Pair, lam: float) -> dict[str, Blend | str]:
        """`mix` by every method."""
        return {name: self.mix(pair, name, lam) for name in self.methods()}

    def methods(self) -> list[str]:
        """All methods, that of the run first; `mix` tells which of them cannot."""
        return sorted(methods(), key=lambda name: name != self.method)

    def _task(self, method: str) -> Task | str:
        check_method(method)
        if method not in self._tasks:
            made = self._make_task(method)
            self._tasks[method] = made if isinstance(made, str) else _remembering(made)
        return self._tasks[method]

    def _make_task(self, method: str) -> Task | str:
        if self.task is not None and method == self.method:
            return self.task
        if method == "automix":
            return NEEDS_BLOCK
        network = nn.Identity() if self.classifier is None else self.networks[self.classifier]
        try:
            task = create_task(method, network)
        except (ValueError, RuntimeError) as error:
            return one_line(error) if self.networks else NEEDS_NETWORK
        if not self.networks and getattr(task, "look", None) is not None:
            return NEEDS_NETWORK
        return task

    # --- asking

    def ask(self, blend: Blend) -> list[Answer]:
        """What each network says of a mixed image, and where it sees that."""
        with self._lock:
            return [self._ask(name, network, blend.x) for name, network in self.networks.items()]

    def ask_briefly(self, blends: Sequence[Blend]) -> list[Answer]:
        """What the classifier says of several mixed images, in one pass and without maps."""
        if self.classifier is None or not blends:
            return []
        with self._lock:
            logits = self._logits(self.networks[self.classifier], torch.cat([blend.x for blend in blends]))
        return [_answer(self.classifier, row) for row in logits]

    def _ask(self, name: str, network: nn.Module, x: Tensor) -> Answer:
        while self._ways[name]:
            try:
                return self._with_maps(name, network, x, *self._ways[name][0])
            except (ValueError, RuntimeError) as error:
                self._ways[name].pop(0)  # for good: it is the network that does not allow it
                self._no_maps[name] = f"no maps of where it sees them: {one_line(error)}"
        return replace(_answer(name, self._logits(network, x)[0]), note=self._no_maps[name])

    def _with_maps(self, name: str, network: nn.Module, x: Tensor, way: str, layer: int) -> Answer:
        if way == "cam":  # of all classes, from the pass that tells which of them count
            every = torch.arange(len(self.classes)).unsqueeze(0)
            maps, logits = class_maps(network, x, every, way, layer)
            answer = _answer(name, logits[0])
            maps = maps[0, list(answer.classes)]
        else:
            answer = _answer(name, self._logits(network, x)[0])
            maps = class_maps(network, x, torch.tensor([answer.classes]), way, layer)[0][0]
        return replace(answer, maps=resize_maps(maps, (x.shape[2], x.shape[3])))

    def _logits(self, network: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad(), eval_mode(network):
            return network(x)


class Remembered:
    """A function ``f(network or task, x, ...)`` of a pair's images, computed once for each of the last pairs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.known: list[tuple[Tensor, Any]] = []

    def __call__(self, network: nn.Module, x: Tensor, *others: Any) -> Any:
        for seen, value in self.known:
            if seen is x:
                return value
        value = self.function(network, x, *others)
        self.known = [*self.known[-REMEMBERED + 1 :], (x, value)]
        return value


def _remembering(task: Any) -> Task:
    """The task, in eval mode, which looks at a pair once for all lam."""
    if isinstance(task, AutoMix):
        task.tap = Remembered(task.tap)  # type: ignore[assignment]
    if getattr(task, "look", None) is not None:
        task.look = Remembered(task.look)
    return task.eval()


def _is_one_image(mixed: Mixed) -> bool:
    """Whether the label stayed that of the first image; rows are labels of many images, mixed already."""
    return mixed.target.y_b is mixed.target.y_a and mixed.target.y_a.ndim == 1


def _share(mixed: Mixed) -> float:
    if mixed.target.y_a.ndim != 1:
        return float(mixed.mask[0].float().mean())
    return float(mixed.target.lam.reshape(-1)[0])


def _answer(network: str, logits: Tensor) -> Answer:
    likely = logits.float().softmax(dim=0).topk(min(TOP, len(logits)))
    return Answer(network, tuple(likely.indices.tolist()), tuple(likely.values.tolist()))
