"""AdAutoMix (Qin et al., 2024): AutoMix of three images, whose block makes easy and hard samples by turns.

Each of the K images has a map m_i from the attention of its own features to those of the others, and the masks are the
softmax over the K maps:

    P_i = softmax( sum over j != i of (W_Q z_i)^T (W_K z_j) / sqrt(d) )        m_i = P_i W_V z_i        z = concat(z, w)
    s = U( softmax over i of (m_i + b_i) )                                     b is ours: mean(s_i) = w_i

The step is AutoMix's, with other losses. S says how much the teacher still sees of the images:

    student:              CE(f_q(x)) + MCE(f_q(x_q))                             K = 2
                          CE(f_q(x)) / 2 + MCE(f_q(Mixup of K)) / 2 + MCE(f_q(x_q))    K > 2
    block, odd steps:     MCE(f_k(x_k))
    block, even steps:    - beta MCE(f_k(x_k)) + (1 - beta) S                    cosine="minimize"
                          - beta MCE(f_k(x_k)) - (1 - beta) S                    cosine="maximize"
    S = mean of sum_i w_i cos( f_k(x_k), f_k(x_i) )

The authors' code adds S to a loss that is minimized, so that mixed samples are driven away from their images. In their
text S shall keep the meaning of the images, which is the other sign. The default is the code's.

Two additions are AutoMix's of the preset "tuned". With `exact_mean` the means of the masks are solved for (see
exact_mean.py), without which nothing ties them to the weights of the labels. With `normalize` the maps are normalized,
and the attention does not start uniform. ``exact_mean=False, normalize=False`` is the block as published.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import as_map, at_least_float32, blend_many, chain_members
from automix.core.criteria import Criterion
from automix.core.draws import draw_dirichlet, draw_index
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_choice, check_range
from automix.methods.automix.masks import partition
from automix.methods.automix.mixing import mix_images
from automix.methods.automix.pairs import Pairs
from automix.methods.automix.task import DEFAULT_LAYER, AutoMix, StudentLosses
from automix.networks.feature_tap import find_tap

__all__ = ["AdAutoMix", "AdMixBlock", "create_task"]

Cosine = Literal["minimize", "maximize"]


class AdMixBlock(nn.Module):
    """Predict the masks of K images from their feature maps.

    Args:
        channels: Channels of the feature maps.
        exact_mean: Solve for the means of the masks, which then are the weights of the images.
        normalize: Normalize the map of each image, and start with queries and keys of unit variance.
    """

    attention = True  # as of a Mix Block that is not a random grid
    num_classes = None  # it knows no classes

    def __init__(self, channels: int, *, exact_mean: bool = True, normalize: bool = True) -> None:
        super().__init__()
        self.channels = channels
        self.exact_mean = exact_mean
        self.normalize = normalize
        embedded = max(1, channels // 2)
        self.w_q, self.w_k = (nn.Conv2d(channels + 1, embedded, 1) for _ in range(2))
        self.w_v = nn.Conv2d(channels + 1, 1, 1)
        for convolution in (self.w_q, self.w_k, self.w_v):
            nn.init.normal_(convolution.weight, std=(channels + 1) ** -0.5 if normalize else 0.01)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    @property
    def value_weight(self) -> Tensor:
        """The weights that give the value, which every step trains."""
        return self.w_v.weight

    def forward(
        self,
        z_i: Tensor,
        z_j: Tensor,
        lam: Tensor,
        size: tuple[int, int],
        *,
        labels: tuple[Tensor, Tensor] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Compute the mask s_i of pairs, called as `MixBlock` is.

        Args:
            z_i: Feature maps of the first images, ``(N, C, h, w)``.
            z_j: Feature maps of their partners.
            lam: Share of the first image, ``()`` or ``(N,)``.
            size: Height and width of the images.
            labels: Not used; the block knows no classes.
            generator: Not used; the block draws nothing.

        Returns:
            The masks, ``(N, 1, *size)``.
        """
        members = torch.arange(2 * len(z_i), device=z_i.device).reshape(2, -1)
        weights = torch.stack([lam, 1 - lam], dim=-1).to(z_i.device)
        return self.masks(torch.cat([z_i, z_j]), members, weights, size)[:, :1]

    def masks(
        self, z: Tensor, members: Tensor, weights: Tensor, size: tuple[int, int], labels: Tensor | None = None
    ) -> Tensor:
        """Compute the masks of mixtures of K images, in float32 at least, also under autocast.

        Args:
            z: Feature maps of the batch, ``(N, C, h, w)``.
            members: Positions of the images of each mixture, ``(K, M)``.
            weights: Weights of the images, ``(K,)`` or ``(M, K)``.
            size: Height and width of the images.
            labels: Not used; the block knows no classes.

        Returns:
            The masks, ``(M, K, *size)``, which sum to 1 over K.
        """
        weights = weights.expand(members.shape[1], -1)
        with torch.autocast(z.device.type, enabled=False):
            logit = self._attend(z.to(self.value_weight), members, weights)
            return partition(logit, weights, size, "bilinear", exact_mean=self.exact_mean)

    def _attend(self, z: Tensor, members: Tensor, weights: Tensor) -> Tensor:
        """The maps m_i, (M, K, h, w)."""
        count, height, width = len(members), *z.shape[-2:]
        z = F.group_norm(z, 1) if self.normalize else z
        channel = as_map(weights.T.flatten()).to(z).expand(-1, 1, height, width)
        z = torch.cat([z[members.flatten()], channel], dim=1)
        query, key, value = (
            at_least_float32(embed(z)).reshape(count, -1, embed.out_channels, height * width).transpose(0, 1)
            for embed in (self.w_q, self.w_k, self.w_v)
        )  # (M, K, d, positions)
        # the sum over j != i of q_i k_j is q_i times the sum of all other keys
        others = key.sum(dim=1, keepdim=True) - key
        similarity = query.transpose(2, 3) @ others / math.sqrt(query.shape[2])
        maps = similarity.softmax(dim=-1) @ value.transpose(2, 3)  # (M, K, positions, 1)
        return maps.reshape(-1, count, height, width)


class AdAutoMix(AutoMix):
    """Train a network with AdAutoMix; `deploy` returns the teacher.

    Args:
        model: The network to train.
        layer: The stage, 1 to 4, whose feature map feeds the block, or the name of a submodule.
        images: How many images are mixed into one, 2 to 4; several numbers, such as ``(2, 3)``, to draw one of them in
            each step.
        alpha: Weights are draws of Beta(alpha, alpha) divided by their sum; for two images `lam` is one such draw.
        beta: Weight of the adversarial loss in even steps, in [0, 1]; the cosine similarity has the rest.
        cosine: "minimize" the similarity of mixed samples and their images, as the authors' code does, or "maximize"
            it, as their text suggests.
        exact_mean: Solve for the means of the masks, which then are the weights of the labels; published: False.
        normalize: Normalize the feature maps; published: False.
        lam_margin: Masks of the student's samples are flat where one image has a weight of at least ``1 - lam_margin``.
        mixed_head: A second head for mixed images, in student and teacher.
        mix_share: Share of each batch that the block mixes for the student, in (0, 1]; the other images stay clean, in
            the same pass.
        per_sample: Draw weights for every sample instead of once for the batch.
        block_lr: Learning rate of the block, as a multiple of the student's; 0 freezes it.
        momentum: Momentum of the teacher at the start of the training, in [0, 1); it rises to 1 along a cosine.
        mix_until: Mix until this part of the training, in [0, 1]; the rest is plain training on clean images.
        mix_fade: From this part of the training on, the probability that a batch is mixed falls linearly, to 0 at
            `mix_until`.
        channels: Channels of the feature map; found by a trial run if not given.
        criterion: ``criterion(logits, target)``; chosen by the labels if not given.
        seed: Seed of all draws.
        total_steps: Number of optimizer steps of the whole training; if given, `update` needs no `progress`.
        low_memory: Back-propagate each loss term as soon as it is computed; see `Task`.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: int | str = DEFAULT_LAYER,
        *,
        images: int | Sequence[int] = 3,
        alpha: float = 1.0,
        beta: float = 0.3,
        cosine: Cosine = "minimize",
        exact_mean: bool = True,
        normalize: bool = True,
        lam_margin: float = 0.03,
        mixed_head: bool = True,
        mix_share: float = 1.0,
        per_sample: bool = False,
        block_lr: float = 1.0,
        momentum: float = 0.999,
        mix_until: float = 1.0,
        mix_fade: float | None = None,
        channels: int | None = None,
        criterion: Criterion | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        low_memory: bool = False,
    ) -> None:
        check_range("beta", beta, 0, 1)
        check_choice("cosine", cosine, get_args(Cosine))
        if momentum is None:
            raise AutomixError("momentum must be in [0, 1), got None: the student must not learn the adversarial loss")
        tap = find_tap(model, layer, channels)
        block: Any = AdMixBlock(tap.channels, exact_mean=exact_mean, normalize=normalize)
        super().__init__(
            model,
            layer,
            preset="paper",
            mix_block=block,
            channels=tap.channels,
            criterion=criterion,
            seed=seed,
            total_steps=total_steps,
            low_memory=low_memory,
            images=images if isinstance(images, int) else tuple(images),
            alpha=alpha,
            lam_margin=lam_margin,
            mixed_head=mixed_head,
            mix_share=mix_share,
            per_sample=per_sample,
            block_lr=block_lr,
            momentum=momentum,
            mix_until=mix_until,
            mix_fade=mix_fade,
        )
        self.beta = beta
        self.cosine = cosine

    def extra_repr(self) -> str:
        """Return the options that are AdAutoMix's own, for ``repr``."""
        block, settings = self.mix_block, self.settings
        return (
            f"images={settings.images}, alpha={settings.alpha}, beta={self.beta}, cosine={self.cosine!r}, "
            f"exact_mean={block.exact_mean}, normalize={block.normalize}, lam_margin={settings.lam_margin}"
        )

    def draw_weights(self, x: Tensor, images: int, generator: torch.Generator) -> Tensor:
        """Draw weights as the authors do: draws of Beta(alpha, alpha) divided by their sum.

        Args:
            x: The images to mix.
            images: Number of images in a mixture.
            generator: Source of randomness.

        Returns:
            Weights with sum 1, ``(K,)`` or ``(N, K)``.
        """
        shape = (len(x), images, 2) if self.settings.per_sample else (images, 2)
        betas = draw_dirichlet(x, shape, self.settings.alpha, generator)[..., 0]
        return betas / betas.sum(dim=-1, keepdim=True)

    def student_losses(self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator) -> StudentLosses:
        losses, logits, target = self.mixed_losses(x, y, mixed, generator)
        losses = self.release(losses) | self.clean_term(x, y)
        if mixed.target.more:
            losses["loss_clean"] = losses["loss_clean"] / 2
            losses = self.release(losses)
            plain, plain_target = self._plain_mixture(x, y, len(mixed.target.labels), generator)
            losses["loss_mixup"] = self.loss(self.run_student_mixed(plain), plain_target) / 2
        return losses, logits, target

    def _plain_mixture(
        self, x: Tensor, y: Tensor, images: int, generator: torch.Generator
    ) -> tuple[Tensor, MixedTarget]:
        """Mixup of K images, with weights drawn as for the block."""
        weights = self.draw_weights(x, images, generator)
        members = chain_members(draw_index(x, generator=generator), images)
        target = MixedTarget.of([y[of_image] for of_image in members], weights)
        return blend_many(x, members, weights.reshape(-1, images, 1, 1)), target

    def generation_losses(
        self, x: Tensor, y: Tensor, z: Tensor, pairs: Pairs, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Compute the block's terms: of easy samples in odd steps, of hard ones in even steps.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            z: Their feature maps.
            pairs: What to mix.
            generator: Source of randomness.

        Returns:
            The terms by name.
        """
        mixed = mix_images(self.mix_block, x, y, z, pairs, margin=self.settings.block_margin, generator=generator)
        logits = self.predict_mixed(mixed.x)
        loss = self.loss(logits, mixed.target)
        if self.step % 2:
            return {"loss_generation": loss}
        similarity = self._similarity(x, logits, pairs.index, mixed.target)
        sign = 1 if self.cosine == "minimize" else -1
        return {"loss_generation": -self.beta * loss, "loss_cosine": sign * (1 - self.beta) * similarity}

    def _similarity(self, x: Tensor, logits: Tensor, index: Tensor, target: MixedTarget) -> Tensor:
        """S: the cosine of the logits of a mixed sample and of each of its images, weighted by the images' weights."""
        with torch.no_grad():
            clean = at_least_float32(self.predict_mixed(x[: len(logits)]))
        members = chain_members(index, len(target.labels))
        cosines = [F.cosine_similarity(at_least_float32(logits), clean[of_image]) for of_image in members]
        return (target.weights.to(cosines[0]) * torch.stack(cosines, dim=1)).sum(dim=1).mean()


OWN_TEACHER = True
"""AdAutoMix has a momentum teacher, whether ``ema`` is given or not (see `has_own_teacher`)."""

OPTION_SOURCES = (AdAutoMix,)
"""Where the options are that `create_task` passes on (see `option_sources`)."""


def create_task(model: nn.Module, *, ema: bool = True, **options: Any) -> AdAutoMix:
    """Build the AdAutoMix task.

    Args:
        model: The network to train.
        ema: Has no effect; accepted as by every task. AdAutoMix has its momentum teacher anyway.
        **options: Options of `AdAutoMix`.

    Returns:
        The task.
    """
    return AdAutoMix(model, **options)
