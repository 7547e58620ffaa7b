"""RegMixup: its two losses against a plain computation, in one pass."""

import copy

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm

import automix
from automix.core.draws import step_generator
from automix.methods.regmixup import RegMixupTask


@pytest.mark.parametrize("low_memory", [False, True])
def test_both_losses_in_one_pass(low_memory: bool) -> None:
    """BatchNorm sees clean and mixed images together: two passes would have other statistics."""
    x, y = batch()
    model = HandWritten()
    plain = copy.deepcopy(model)
    task = automix.create_task("regmixup", model, low_memory=low_memory)
    out = task(x, y)
    out.loss.backward()
    mixed = automix.mixup(x, y, 10.0, generator=step_generator(0, 0))
    answers = plain(torch.cat([x, mixed.x]))
    lam, (clean, of_mixed) = mixed.target.lam, answers.split(6)
    assert mixed.index is not None
    parts = F.cross_entropy(of_mixed, y), F.cross_entropy(of_mixed, y[mixed.index]), F.cross_entropy(clean, y)
    expected = lam * parts[0] + (1 - lam) * parts[1] + parts[2]
    expected.backward()
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(out.metrics["loss_clean"], parts[2])
    torch.testing.assert_close(out.logits, of_mixed)
    for parameter, reference in zip(task.student.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, reference.grad)
    apart = automix.create_task("mixup", copy.deepcopy(HandWritten()), alpha=10.0, one_hot_loss=True)
    apart.student.load_state_dict(plain.state_dict())
    assert not torch.allclose(apart(x, y).loss, out.loss)


def test_without_batch_norm_it_is_mixup_with_a_clean_loss() -> None:
    x, y = batch()
    model = HandWritten(norm=group_norm)
    first = automix.create_task("regmixup", copy.deepcopy(model))
    second = automix.create_task("mixup", model, alpha=10.0, one_hot_loss=True)
    torch.testing.assert_close(first(x, y).loss, second(x, y).loss)


def test_lam_is_near_a_half() -> None:
    x, y = batch(2, 2, 2)
    lams = [automix.regmixup(x, y, generator=step_generator(0, step)).target.lam.item() for step in range(500)]
    assert scipy.stats.kstest(lams, scipy.stats.beta(10, 10).cdf).pvalue > 0.01


def test_options() -> None:
    with pytest.raises(ValueError, match=r"^one_hot_loss must be False for regmixup"):
        automix.create_task("regmixup", HandWritten(), one_hot_loss=True)
    with pytest.raises(ValueError, match=r"^mix_share must be 1"):
        automix.create_task("regmixup", HandWritten(), mix_share=0.5)
    task = automix.create_task("regmixup", HandWritten(), alpha=20.0, per_sample=True, ema=True)
    assert isinstance(task, RegMixupTask)
    assert task(*batch()).loss.isfinite()
    x, y = batch()
    transform = automix.RegMixup(num_classes=5, generator=step_generator(0, 0))
    assert torch.equal(transform(x, y)[0], automix.regmixup(x, y, generator=step_generator(0, 0)).x)
