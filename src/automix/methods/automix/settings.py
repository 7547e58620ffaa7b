"""AutoMix's settings and its presets: "tuned" (the default), "fast", "finetune", "paper", "reference" and "samix"."""

import dataclasses
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule
from automix.core.validation import unknown_name
from automix.tasks.teacher_objects import ObjectsSource

Preset = Literal["tuned", "fast", "finetune", "paper", "reference", "samix"]
AuxLoss = Literal["mixup-ramp", "joined", "clean", "mixup", "none"]
Rest = Literal["clean", "mixup-ramp"]
Upsampling = Literal["bilinear", "nearest", "bilinear-logits"]
Init = Literal["torch", "reference"]
TeacherBatchNorm = Literal["eval", "train"]

PRESETS: tuple[Preset, ...] = get_args(Preset)
"""The names of the presets."""

ImageCount = Annotated[int, Field(ge=2, le=4)]
Share = Annotated[float, Field(ge=0, le=1)]

_LAMBDA_LOSS = ("gamma", "epsilon", "variance_reward")  # used by l_lambda alone
_OF_OBJECTS = ("objects_rule", "objects_weight")  # used with objects alone


@config_dataclass
class AutoMixSettings:
    """Everything that decides how AutoMix trains. The defaults are the preset "tuned".

    `from_preset` builds the others. Where two values are named below, the first is that of "tuned" and the second the
    paper's. "fast" is "tuned" with ``aux_loss="joined"`` and ``block_share=0.15``. "finetune", for pretrained networks,
    is "tuned" with ``aux_loss="none"``, ``mix_share=0.5`` and ``mix_until=1``. "reference" is "paper" with what the
    authors' code has where the paper is silent: `reduction`, `lam_margin`, `momentum_hold` and `teacher_batch_norm`.
    "samix" is "paper" with SAMix's block and mask loss: `pair_attention`, `hidden_value`, `lam_curve` and
    `variance_reward`.
    """

    alpha: Annotated[float, Field(gt=0)] = 2.0
    """``lam ~ Beta(alpha, alpha)``; with more images, weights ``~ Dirichlet(alpha, ..., alpha)``."""
    images: ImageCount | tuple[ImageCount, ...] = 2
    """How many images the Mix Block mixes into one, 2 to 4; several numbers, such as ``(2, 3)``, to draw one of them in
    each step. More than two are mixed as masks.py says. Plain Mixup of `aux_loss` and `rest` stays with pairs."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = 0.999
    """Momentum of the teacher at the start of the training; it rises to 1 along a cosine. 0 makes the teacher a copy of
    the student, None trains student and Mix Block jointly on one loss (rows of the paper's Table 10)."""
    momentum_hold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the training in which the momentum keeps its first value; then it follows the same cosine as without
    (0, reference 0.1)."""
    momentum_warmup: bool = True
    """Limit the momentum to ``(1 + step) / (10 + step)``, which decides in the first 9,000 steps: in a short training
    the teacher would else stay near its first weights (True, paper False)."""
    teacher_batch_norm: TeacherBatchNorm = "eval"
    """"eval": the teacher runs in eval mode, and its BatchNorm statistics follow the student's. "train": in training
    mode, with the statistics of its own batches, clean and mixed ("eval", reference "train")."""
    aux_loss: AuxLoss = "mixup-ramp"
    """What the student learns beside the Mix Block's samples ("mixup-ramp", paper "clean"). "clean": the clean images
    (l_CE). "mixup": the images mixed by Mixup with the same alpha. "mixup-ramp": by Mixup with an alpha that follows
    the progress from 0, so that the images are clean at first. "joined": as "mixup-ramp", in one forward pass with the
    Mix Block's samples, which are made of a `block_share` of the batch only. "none": nothing."""
    mix_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of each batch that the Mix Block mixes for the student; `rest` says how the other images are shown, in the
    same forward pass. Not with ``aux_loss="joined"``, where `block_share` decides."""
    rest: Rest = "clean"
    """How the student sees the images that `mix_share` leaves: "clean", or "mixup-ramp", mixed by Mixup with an alpha
    that follows the progress from 0. Only with ``mix_share < 1``."""
    mix_until: Share = 0.7
    """Mix until this part of the training; the rest is plain training on clean images, and the Mix Block rests
    (0.7, paper 1)."""
    mix_fade: Share | None = None
    """From this part of the training on, the probability that a batch is mixed falls linearly, to 0 at `mix_until`. In
    the other batches images stay clean and the Mix Block rests."""
    lam_margin: Annotated[float, Field(ge=0, le=0.5)] = 0.08
    """Pairs with ``min(lam, 1 - lam) <= lam_margin`` are mixed as by Mixup: there is next to nothing to select
    (0.08, paper 0, reference 0.08). With more images, where one has a weight of at least ``1 - lam_margin``."""
    block_margin: Annotated[float, Field(ge=0, le=0.5)] = 0.08
    """`lam_margin` of the samples that the Mix Block learns from (0.08, paper 0)."""
    distinct_pairs: bool = False
    """Pair no image with itself. The authors do so for fine-grained classes."""
    per_sample: bool = False
    """Draw a `lam` for every sample instead of one for the batch."""
    objects: ObjectsSource | None = None
    """"teacher": the label of the student's mixed samples follows the visible objects, the class activation maps of the
    teacher for the images' own labels (`automix.core.objects`). The Mix Block still learns with `lam`: a label that
    follows the mask would let it hide an image at no cost. Costs a forward pass of the teacher. Not with
    ``momentum=None``, where one loss trains both."""
    objects_rule: ObjectsRule = "absolute"
    """"absolute" compares the visible areas, "relative" the visible shares of the objects. Only with `objects`."""
    objects_weight: Share = 1.0
    """Weight of the objects in the label; `lam` has the rest. Only with `objects`."""

    block_lr: Annotated[float, Field(ge=0)] = 0.3
    """Learning rate of the Mix Block, as a multiple of the student's (0.3, paper 1). 0 freezes the block: its loss and
    the teacher's pass for it are left out."""
    block_lr_floor: Annotated[float, Field(ge=0)] | None = None
    """Where the Mix Block's learning rate ends, as a multiple of the student's highest; where the student's ends, if
    None."""
    block_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of each batch that the Mix Block learns from (0.25, paper 1)."""
    gamma: Annotated[float, Field(ge=0)] = 0.1
    """Weight of l_lambda (Eq. 7) at the start; it falls linearly to 0. Only without `exact_mean`."""
    epsilon: Share = 0.1
    """Gap between `lam` and a mask's mean that l_lambda tolerates. Only without `exact_mean`."""
    variance_reward: Annotated[float, Field(ge=0)] = 0.0
    """Weight, within l_lambda, of the variance of a mask over its pixels, which is subtracted: masks become clearer
    (0, SAMix 2). Only without `exact_mean`."""

    class_vectors: bool = True
    """The Mix Block has a vector w_c for each class, so that masks follow the labels (True, paper False)."""
    normalize: bool = True
    """Normalize the feature map of each image before the attention (True, paper False)."""
    local: bool = True
    """Compare the two images at the same place, too (True, paper False)."""
    smooth: bool = True
    """Average each cell of the mask with its neighbors (True, paper False)."""
    exact_mean: bool = True
    """Solve for the mask's mean, which then is `lam` (True; paper False: l_lambda pulls it towards `lam`)."""
    upsampling: Upsampling = "bilinear"
    """How masks grow to the size of the images ("bilinear", paper "nearest"). "bilinear-logits", SAMix's: bilinear,
    before the sigmoid; only without `exact_mean`."""
    lam_embedding: bool = True
    """Append `lam` to the features as one more channel; False is an ablation of the paper."""
    attention: bool = True
    """False replaces the Mix Block by random grids, an ablation of the paper: a share `lam` of the cells, drawn at
    random, belongs to the first image."""
    reduction: Annotated[int, Field(ge=1)] = 2
    """Divides the channels of the embedding W_P (2, paper 1 by its Table 11, reference 2)."""
    init: Init = "torch"
    """Initial weights of the Mix Block: torch's, or those of the reference implementation, std 0.01 and bias 0
    ("torch", paper "reference"). With `normalize`, queries start with unit variance in either case."""
    pair_attention: bool = False
    """Query and key of the attention come from both maps, each with weights of its own (False, SAMix True)."""
    hidden_value: bool = False
    """The value of the attention has a hidden layer with BatchNorm and ReLU (False, SAMix True)."""
    lam_curve: Annotated[float, Field(ge=0)] | None = None
    """`lam` scales the feature maps along a curve with this parameter (None, SAMix 0.25 on CIFAR and 1 on CUB)."""

    mixed_head: bool = False
    """A second head for mixed images, in student and teacher; the first one learns from clean images and is deployed
    (False, paper True by its Table 11). Only with ``aux_loss="clean"``: the first head would learn nothing."""

    @classmethod
    def from_preset(cls, preset: str = "tuned", **overrides: Any) -> "AutoMixSettings":
        """Take a preset and change some of its fields.

        Args:
            preset: "tuned", "fast", "finetune", "paper", "reference" or "samix".
            **overrides: Fields with other values.

        Returns:
            The settings.
        """
        if preset not in PRESETS:
            raise AutomixError(f"preset must be one of {', '.join(PRESETS)}; got {preset!r}")
        names = [item.name for item in dataclasses.fields(cls)]
        for name in overrides:
            if name not in names:
                raise unknown_name("option of automix", name, names)
        values = {**_CHANGED[preset], **overrides}
        if isinstance(values.get("images"), list):
            values["images"] = tuple(values["images"])
        if values.get("attention") is False:
            values.setdefault("upsampling", "nearest")  # a random cell is in or out: there is nothing to interpolate
        if values.get("aux_loss", "clean") != "clean" and "mixed_head" not in overrides:
            values["mixed_head"] = False
        settings = cls(**values)
        if settings.mixed_head and settings.aux_loss != "clean":
            raise AutomixError(f"mixed_head must be False with aux_loss={settings.aux_loss!r}; use aux_loss='clean'")
        if settings.aux_loss == "joined" and settings.mix_share < 1:
            raise AutomixError(f"mix_share must be 1 with aux_loss='joined', got {settings.mix_share}")
        if settings.mix_share == 1 and "rest" in overrides:
            raise AutomixError("rest has no effect with mix_share=1: every image is mixed by the Mix Block")
        if settings.exact_mean and (idle := [name for name in _LAMBDA_LOSS if name in overrides]):
            raise AutomixError(f"{idle[0]} has no effect with exact_mean=True: use preset='paper' or exact_mean=False")
        if settings.images != 2:
            if settings.images == ():
                raise AutomixError("images must be a number from 2 to 4, or several; got none")
            if not settings.attention:
                raise AutomixError(f"images must be 2 with attention=False, got {settings.images}")
            if settings.objects is not None:
                raise AutomixError(f"objects must be None with images={settings.images}: they are for pairs")
        if settings.objects is None and (idle := [name for name in _OF_OBJECTS if name in overrides]):
            raise AutomixError(f"{idle[0]} has no effect without objects='teacher'")
        if settings.objects is not None and settings.momentum is None:
            raise AutomixError("objects must be None with momentum=None, where one loss trains student and Mix Block")
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that have an effect, as plain values.

        Returns:
            Values by name; ``from_preset("tuned", **values)`` gives the same settings.
        """
        idle = (_LAMBDA_LOSS if self.exact_mean else ()) + (("objects", *_OF_OBJECTS) if self.objects is None else ())
        idle += tuple(name for name in _ADDED if getattr(self, name) == getattr(type(self), name))
        idle += ("rest",) if self.mix_share == 1 else ()
        values = {name: value for name, value in dataclasses.asdict(self).items() if name not in idle}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def block_options(self) -> dict[str, Any]:
        """Return the fields that are options of `MixBlock`.

        Returns:
            Values by name.
        """
        return {name: getattr(self, name) for name in BLOCK_FIELDS}


BLOCK_FIELDS = (
    "normalize",
    "local",
    "smooth",
    "exact_mean",
    "upsampling",
    "lam_embedding",
    "attention",
    "reduction",
    "init",
    "pair_attention",
    "hidden_value",
    "lam_curve",
)
"""The fields of `AutoMixSettings` that are options of `MixBlock`."""

DECIDED_BY_BLOCK = (*BLOCK_FIELDS, "class_vectors")
"""The fields that a Mix Block trained before decides; `class_vectors` is its number of classes."""

_PAPER: dict[str, Any] = {
    "aux_loss": "clean",
    "mix_until": 1.0,
    "momentum_warmup": False,
    "lam_margin": 0.0,
    "block_margin": 0.0,
    "block_lr": 1.0,
    "block_share": 1.0,
    "class_vectors": False,
    "normalize": False,
    "local": False,
    "smooth": False,
    "exact_mean": False,
    "upsampling": "nearest",
    "reduction": 1,
    "init": "reference",
    "mixed_head": True,
}
_ADDED = (
    *("mix_fade", "variance_reward", "pair_attention", "hidden_value", "lam_curve"),
    *("momentum_hold", "momentum_warmup", "teacher_batch_norm", "block_lr_floor", "block_margin", "distinct_pairs"),
    *("mixed_head", "images"),
)
"""Fields that `to_dict` leaves out while they have their defaults: runs recorded without them can be resumed."""

_CHANGED: dict[str, dict[str, Any]] = {
    "tuned": {},
    "fast": {"aux_loss": "joined", "block_share": 0.15},
    "finetune": {"aux_loss": "none", "mix_share": 0.5, "mix_until": 1.0},
    "paper": _PAPER,
    "reference": _PAPER | {"momentum_hold": 0.1, "teacher_batch_norm": "train", "lam_margin": 0.08, "reduction": 2},
}
_CHANGED["samix"] = _CHANGED["paper"] | {
    "upsampling": "bilinear-logits",
    "lam_embedding": False,
    "reduction": 2,
    "pair_attention": True,
    "hidden_value": True,
    "lam_curve": 0.25,
    "variance_reward": 2.0,
}
