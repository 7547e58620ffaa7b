"""One training step of the presets "paper" and "reference" against a slow version written from the paper's text.

The slow version has its own Mix Block, blending, losses and moving average, with loops over images and positions, in
float64. It takes from the library only the weights and the draws of lam and partners.
"""

import copy
import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch
from torch import Tensor, nn

from automix import AutoMix, create_model
from automix.core.draws import step_generator
from automix.evaluation.profiling import count_parameters, extra_parameters
from automix.methods.automix.pairs import Pairs
from automix.networks.head import SecondHead

# --- the paper's step, written out


@dataclass
class Encoder:
    """A network and its two linear heads."""

    network: HandWritten
    clean: nn.Linear
    mixed: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        return self.network.body(self.network.stem(x))

    def answer(self, x: Tensor, head: nn.Linear) -> Tensor:
        pooled = self.features(x).mean(dim=(2, 3))
        return torch.stack([head.weight @ image + head.bias for image in pooled])


def slow_mask(weights: dict[str, Tensor], z_i: Tensor, z_j: Tensor, lam: Tensor, size: int) -> Tensor:
    """Eq. 5 and 6 for one pair: the mask s_i, (size, size), by loops over positions; the value comes from z_j."""
    w_p, b_p = weights["w_p.weight"].flatten(1), weights["w_p.bias"]
    w_z, b_z = weights["w_z.weight"].flatten(), weights["w_z.bias"]
    side = z_i.shape[-1]

    def positions(z: Tensor, share: Tensor) -> list[Tensor]:
        return [torch.cat([z[:, row, col], share.reshape(1)]) for row in range(side) for col in range(side)]

    first, second = positions(z_i, lam), positions(z_j, 1 - lam)
    keys = [w_p @ place + b_p for place in second]
    values = torch.stack([(w_z @ place + b_z).squeeze() for place in second])
    cells = []
    for place in first:
        query = w_p @ place + b_p
        scores = torch.stack([query @ key for key in keys]) / math.sqrt(len(query))
        share = scores.exp() / scores.exp().sum()
        s_j = 1 / (1 + torch.exp(-(share * values).sum()))
        cells.append(1 - s_j)
    step = size // side
    grid = torch.stack(cells).reshape(side, side)
    return torch.stack([torch.stack([grid[row // step, col // step] for col in range(size)]) for row in range(size)])


def slow_masks(weights: dict[str, Tensor], z: Tensor, pairs: Pairs, size: int, margin: float) -> Tensor:
    if min(float(pairs.lam), 1 - float(pairs.lam)) <= margin:
        return torch.ones(len(z), size, size, dtype=z.dtype) * pairs.lam
    partners = pairs.index.tolist()
    return torch.stack([slow_mask(weights, z[i], z[j], pairs.lam, size) for i, j in enumerate(partners)])


def slow_mix(x: Tensor, masks: Tensor, index: Tensor) -> Tensor:
    """Eq. 4."""
    return torch.stack([masks[i] * x[i] + (1 - masks[i]) * x[j] for i, j in enumerate(index.tolist())])


def slow_mce(logits: Tensor, y: Tensor, pairs: Pairs) -> Tensor:
    """Eq. 2, averaged over the batch."""
    total = torch.zeros((), dtype=logits.dtype)
    for i, j in enumerate(pairs.index.tolist()):
        log_p = logits[i] - logits[i].exp().sum().log()
        total = total - pairs.lam * log_p[y[i]] - (1 - pairs.lam) * log_p[y[j]]
    return total / len(y)


def slow_loss(
    q: Encoder, k: Encoder, block: dict[str, Tensor], x: Tensor, y: Tensor, pairs: tuple[Pairs, Pairs],
    *, progress: float, margins: tuple[float, float],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Eq. 7 and 8 by Algorithm 1; also the student's masks."""
    pairs_q, pairs_k = pairs
    z = k.features(x).detach()
    s_q = slow_masks(block, z, pairs_q, x.shape[-1], margins[0]).detach()
    l_mce_cls = slow_mce(q.answer(slow_mix(x, s_q, pairs_q.index), q.mixed), y, pairs_q)
    l_ce = F.cross_entropy(q.answer(x, q.clean), y)
    s_k = slow_masks(block, z, pairs_k, x.shape[-1], margins[1])
    l_mce_gen = slow_mce(k.answer(slow_mix(x, s_k, pairs_k.index), k.mixed), y, pairs_k)
    gaps = torch.stack([(pairs_k.lam - mask.mean()).abs() - 0.1 for mask in s_k])
    l_lambda = 0.1 * (1 - progress) * torch.where(gaps > 0, gaps, 0 * gaps).mean()
    return l_ce + l_mce_cls + l_mce_gen + l_lambda, s_q


def slow_momentum(progress: float, hold: float) -> float:
    """0.999 until `hold`, then on the half cosine wave that rises from 0.999 to 1 over the whole training."""
    wave = 0.0 if progress < hold else progress
    return 0.999 + 0.001 * (1 - math.cos(math.pi * wave)) / 2


# --- the comparison


def encoder(network: nn.Module, mixed_head: nn.Module) -> Encoder:
    assert isinstance(network, HandWritten)
    assert isinstance(mixed_head, SecondHead)
    assert isinstance(mixed_head.layer, nn.Linear)
    copied, mixed = copy.deepcopy(network), copy.deepcopy(mixed_head.layer)
    return Encoder(copied, copied.head, mixed)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_steps_equal_the_slow_version(preset: str, seed: int) -> None:
    """Two steps: loss, masks, every gradient, and the teacher after each."""
    x, y = batch(5, height=8, width=8)
    x = x.double()
    task = AutoMix(HandWritten(), layer="body", preset=preset, seed=seed).double()
    assert task.teacher is not None
    assert task.mixed_head is not None
    assert isinstance(task.teacher_mixed_head, SecondHead)
    with torch.no_grad():  # masks that are not flat, heads that differ
        for parameter in (*task.mix_block.parameters(), *task.mixed_head.parameters()):
            parameter.add_(0.5 * torch.randn_like(parameter))
    reference = preset == "reference"
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
    for step, progress in enumerate((0.0, 0.4)):
        generator = step_generator(seed, step)
        pairs = (task.draw(x, generator), task.draw(x, generator))
        q, k = encoder(task.student, task.mixed_head), encoder(task.teacher, task.teacher_mixed_head)
        assert k.network.training == reference
        block = {name: value.detach().clone().requires_grad_() for name, value in task.mix_block.named_parameters()}
        margins = (0.08 if reference else 0.0, 0.0)
        expected, masks = slow_loss(q, k, block, x, y, pairs, progress=task.progress, margins=margins)
        expected.backward()

        optimizer.zero_grad()
        loss = task(x, y).loss
        loss.backward()
        torch.testing.assert_close(loss, expected)
        if not reference:  # `mix` runs the teacher in eval mode
            found = copy.deepcopy(task).mix(x, y, lam=pairs[0].lam, index=pairs[0].index).mask.squeeze(1)
            torch.testing.assert_close(found, masks)
            assert masks.std() > 0.01
        for name, parameter in q.network.named_parameters():
            torch.testing.assert_close(task.student.get_parameter(name).grad, parameter.grad)
        for name, parameter in q.mixed.named_parameters():
            torch.testing.assert_close(task.mixed_head.layer.get_parameter(name).grad, parameter.grad)
        for name, value in block.items():
            torch.testing.assert_close(task.mix_block.get_parameter(name).grad, value.grad)
            assert value.grad is not None
            assert name == "w_p.bias" or value.grad.abs().sum() > 0
        assert all(parameter.grad is None for parameter in task.teacher.parameters())

        optimizer.step()
        task.update(progress)
        m = slow_momentum(progress, 0.1 if reference else 0.0)
        for name, before in k.network.named_parameters():
            now, student = task.teacher.get_parameter(name), task.student.get_parameter(name)
            torch.testing.assert_close(now.data, m * before + (1 - m) * student)
        for name, before in k.mixed.named_parameters():
            now, student = task.teacher_mixed_head.layer.get_parameter(name), task.mixed_head.layer.get_parameter(name)
            torch.testing.assert_close(now.data, m * before + (1 - m) * student)
        mean = "stem.1.running_mean"
        statistics = k.network.get_buffer(mean)  # moved by the slow version's two passes of the teacher, if at all
        if not reference:
            statistics = m * statistics + (1 - m) * task.student.get_buffer(mean)
        torch.testing.assert_close(task.teacher.get_buffer(mean), statistics)


# --- Table 11, its column of parameters in millions


@pytest.mark.parametrize(
    ("model", "layer", "paper"),
    [
        ("resnet18", 1, 11.38),
        ("resnet18", 2, 11.39),
        ("resnet18", 3, 11.44),
        ("resnet18", 4, 11.64),
        ("resnext50_32x4d", 3, 24.84),
        ("resnext50_32x4d", 4, 27.99),
        ("resnext50_32x4d", "act1", 23.80),
        ("resnext50_32x4d", 1, 23.86),
    ],
)
def test_parameters_of_table_11_to_the_printed_digit(model: str, layer: int | str, paper: float) -> None:
    """The paper's l1 and l2 of RX-50 are our stem and stage 1."""
    network = create_model(model, num_classes=200, image_size=64)
    task = AutoMix(network, layer=layer, preset="paper")
    assert round((count_parameters(network.parameters()) + extra_parameters(task)) / 1e6, 2) == paper


# --- the second head


def test_the_head_for_clean_images_is_deployed() -> None:
    x, _ = batch()
    task = AutoMix(HandWritten(), layer="body", preset="paper")
    assert task.teacher is not None
    assert isinstance(task.teacher_mixed_head, SecondHead)
    with torch.no_grad():
        task.teacher_mixed_head.layer.get_parameter("bias").add_(1.0)
    deployed = task.deploy()
    torch.testing.assert_close(deployed(x), task.teacher(x))
    torch.testing.assert_close(task.predict_mixed(x), task.teacher(x) + 1)
    assert deployed.state_dict().keys() == HandWritten().state_dict().keys()


def test_without_the_loss_on_clean_images_there_is_one_head() -> None:
    """Rows of Table 10 without CE: the head for clean images would learn nothing."""
    task = AutoMix(HandWritten(), layer="body", preset="paper", aux_loss="none")
    assert task.mixed_head is None
    assert [group["name"] for group in task.param_groups(lr=0.1)] == ["student", "mix_block"]
    with pytest.raises(ValueError, match="mixed_head must be False with aux_loss='none'"):
        AutoMix(HandWritten(), layer="body", preset="paper", aux_loss="none", mixed_head=True)
