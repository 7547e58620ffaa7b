"""AutoMix without labels: the Mix Block learns from agreement between views instead of classes.

Each image is a class of its own. With k(x) the teacher's embedding of x, of unit length, and two views a and b of the
same images, the logits of a mixed sample are its similarities to the clean second views of the batch:

    x_mix = s * a_i + (1 - s) * a_j                                                 Eq. 4
    p     = softmax_n( k(x_mix) . k(b_n) / temperature )
    L     = - lam log p_i - (1 - lam) log p_j                                       l_MCE, gradient to phi alone

A mask that hides one of the two images makes the sample agree with the other one only. As in AutoMix, the mixed views
for the encoder carry no graph, and the momentum teacher takes no gradient.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import mask_spread
from automix.core.distributed import rank_and_world
from automix.core.draws import draw_cycle, draw_index, draw_lam, step_generator
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_alpha, check_range
from automix.methods.automix.block_file import without_classes
from automix.methods.automix.make_block import open_block
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.mixing import mix_images
from automix.methods.automix.pairs import Pairs
from automix.networks.feature_tap import find_tap
from automix.networks.outputs import logits_of
from automix.networks.teacher import follow, make_teacher, momentum_at


@dataclass(frozen=True)
class MixedViews:
    """Two mixed views of a batch, which carry no graph, and the loss of the Mix Block.

    Attributes:
        a: The first views, each mixed with that of its partner, ``(N, C, H, W)``.
        b: The second views, mixed with the same partners and the same `lam`, by masks of their own.
        target: Positions in the batch as labels: ``target.cross_entropy(similarities)`` for similarities ``(N, N)`` of
            mixed to clean embeddings; ``target.lam`` and ``target.y_b`` are weights and partners for any other loss.
        loss: The Mix Block's loss, to be added to the encoder's; None if the block is frozen.
        metrics: Detached scalars by name.
    """

    a: Tensor
    b: Tensor
    target: MixedTarget
    loss: Tensor | None
    metrics: dict[str, Tensor]


class AutoMixUnlabeled(nn.Module):
    """Mix views of unlabeled images by masks that are learned from agreement.

    It is called with two augmented views of the same images, as contrastive methods and distillation have them::

        mixer = automix.AutoMixUnlabeled(encoder)
        optimizer = torch.optim.SGD(mixer.param_groups(lr=0.1), momentum=0.9)
        mixed = mixer(a, b)
        z, z_b = (F.normalize(encoder(x)) for x in (mixed.a, b))
        loss = mixed.target.cross_entropy(z @ z_b.T / 0.2) + mixed.loss
        loss.backward(); optimizer.step()
        mixer.update(progress)

    Args:
        encoder: The network to train, images to embeddings ``(N, D)``.
        layer: The stage, 1 to 4, whose feature map feeds the Mix Block, or the name of a submodule.
        mix_block: A Mix Block that was trained before, as in `AutoMix`; used without its class vectors.
        channels: Channels of the feature map; found by a trial run if not given.
        alpha: ``lam ~ Beta(alpha, alpha)``.
        momentum: Momentum of the teacher at the start of the training, in [0, 1); it rises to 1 along a cosine.
        temperature: Divides the similarities in the Mix Block's loss.
        lam_margin: Pairs with ``min(lam, 1 - lam) <= lam_margin`` are mixed as by Mixup.
        block_lr: Learning rate of the Mix Block, as a multiple of the encoder's; 0 freezes the block and leaves out the
            passes for its loss.
        block_share: Share of each batch that the Mix Block learns from.
        seed: Seed of all draws.
    """

    def __init__(
        self,
        encoder: nn.Module,
        layer: int | str = 3,
        *,
        mix_block: MixBlock | Path | str | None = None,
        channels: int | None = None,
        alpha: float = 2.0,
        momentum: float = 0.999,
        temperature: float = 0.2,
        lam_margin: float = 0.08,
        block_lr: float = 0.3,
        block_share: float = 0.25,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_alpha(alpha)
        check_range("momentum", momentum, 0, 1, bounds="[)")
        check_range("temperature", temperature, 0, bounds="()")
        check_range("lam_margin", lam_margin, 0, 0.5)
        check_range("block_lr", block_lr, 0)
        check_range("block_share", block_share, 0, 1, bounds="(]")
        self.tap = find_tap(encoder, layer, channels)
        self.student = encoder
        self.teacher = make_teacher(encoder)
        if mix_block is None:
            self.mix_block = MixBlock(self.tap.channels)
        else:
            self.mix_block = without_classes(open_block(mix_block, encoder, layer, self.tap.channels))
        if block_lr == 0:
            self.mix_block.requires_grad_(False)
        self.alpha = alpha
        self.momentum = momentum
        self.temperature = temperature
        self.lam_margin = lam_margin
        self.block_lr = block_lr
        self.block_share = block_share
        self.seed = seed
        self.step = 0
        self._calls = 0  # since the last update

    def forward(self, a: Tensor, b: Tensor) -> MixedViews:
        """Mix two views of a batch.

        Args:
            a: The first views of the images, ``(N, C, H, W)``.
            b: The second views of the same images, of the same shape.

        Returns:
            The mixed views, their target and the Mix Block's loss.
        """
        positions = torch.arange(len(a), device=a.device)
        check_batch(a, positions)
        if a.shape != b.shape:
            raise AutomixError(f"a and b must be views of the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
        rank, world = rank_and_world()
        generator = step_generator(self.seed, self.step, part=self._calls * world + rank, stream="unlabeled")
        self._calls += 1
        lam = draw_lam(a, self.alpha, generator=generator)
        target = MixedTarget(positions, index := draw_index(a, generator=generator), lam)
        with torch.no_grad():
            z_a, z_b = (self.tap(self.teacher, view) for view in (a, b))
            mixed_a, mixed_b = (self._mix(view, z, lam, index) for view, z in ((a, z_a), (b, z_b)))
        metrics = {"lam": lam.mean(), "mask_spread": mask_spread(mixed_a.mask).mean()}
        loss = None
        if any(parameter.requires_grad for parameter in self.mix_block.parameters()):
            loss = self._agreement_loss(a, b, z_a, generator)
            metrics["loss_generation"] = loss.detach()
        return MixedViews(mixed_a.x, mixed_b.x, target, loss, metrics)

    def _agreement_loss(self, a: Tensor, b: Tensor, z_a: Tensor, generator: torch.Generator) -> Tensor:
        """l_MCE with the images of the batch as classes, on samples of their own draw of lam and partners."""
        count = max(min(2, len(a)), math.ceil(self.block_share * len(a)))
        lam = draw_lam(a, self.alpha, generator=generator)
        index = draw_cycle(a[:count], generator=generator)
        mixed = self._mix(a[:count], z_a[:count], lam, index)
        with torch.no_grad():
            clean = self._embed(b)
        return mixed.target.cross_entropy(self._embed(mixed.x) @ clean.T / self.temperature)

    def _embed(self, x: Tensor) -> Tensor:
        embedding = logits_of(self.teacher(x))
        if embedding.ndim != 2:
            raise AutomixError(f"encoder must return embeddings (N, D), got shape {tuple(embedding.shape)}")
        return F.normalize(embedding.float(), dim=1)

    def _mix(self, x: Tensor, z: Tensor, lam: Tensor, index: Tensor) -> Mixed:
        """Eq. 4; the labels are positions in the batch."""
        positions = torch.arange(len(x), device=x.device)
        return mix_images(self.mix_block, x, positions, z, Pairs(lam, index), margin=self.lam_margin)

    @torch.no_grad()
    def mix(self, x: Tensor, *, lam: float | Tensor = 0.5, index: Tensor | None = None) -> Mixed:
        """Mix images as the block would now, to look at them.

        Args:
            x: Images, ``(N, C, H, W)``.
            lam: Share of the first image, a number or ``(N,)``.
            index: Partners, a permutation of ``range(N)``; drawn if not given.

        Returns:
            The mixed images, positions as their target, and the mask that was applied.
        """
        share = draw_lam(x, self.alpha, lam=lam)
        index = draw_index(x, index=index, generator=step_generator(self.seed, self.step, stream="unlabeled"))
        return self._mix(x, self.tap(self.teacher, x), share, index)

    def update(self, progress: float) -> None:
        """Let the teacher follow the encoder (Eq. 12); call after every optimizer step.

        Args:
            progress: Part of the training that is done, in [0, 1].
        """
        check_range("progress", progress, 0, 1)
        follow(self.teacher, self.student, momentum_at(self.step, progress, self.momentum))
        self.step += 1
        self._calls = 0

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """List everything that is trained: the encoder, and the Mix Block at `block_lr` times the rate.

        Args:
            lr: Learning rate of the encoder.
            **options: Further entries of each group, such as ``weight_decay``.

        Returns:
            Parameter groups, each with a ``name``.
        """
        parts = (("encoder", self.student, lr), ("mix_block", self.mix_block, self.block_lr * lr))
        return [{"name": name, "params": list(part.parameters()), "lr": rate, **options} for name, part, rate in parts]

    def train(self, mode: bool = True) -> "AutoMixUnlabeled":
        """Set the training mode; the teacher stays in eval mode.

        Args:
            mode: True to train, False to evaluate.

        Returns:
            The module.
        """
        super().train(mode)
        self.teacher.eval()
        return self

    def get_extra_state(self) -> Tensor:
        """Return the step as a tensor, which every safe file format can hold."""
        return torch.tensor([self.step])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the step.

        Args:
            state: What `get_extra_state` returned.
        """
        self.step, self._calls = int(state[0]), 0
