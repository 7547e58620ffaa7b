"""Labels by attention: TransMix's rule and MixPro's, by hand, and with every method that has a mask for each pair."""

import math
from typing import Any

import pytest
import timm
import torch
from conftest import batch

import automix
from automix.core import label_by_attention
from automix.core.draws import step_generator
from automix.networks import watch_attention

WITH_MASK = ["attentivemix", "cutmix", "fmix", "gridmix", "mixup", "mixup_or_cutmix", "puzzlemix", "resizemix"]
WITH_MASK += ["saliencymix", "smoothmix", "supermix", "transmix"]


def vit() -> Any:
    torch.manual_seed(3)
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 3}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=5, **sizes)
    with torch.no_grad():  # freshly made attention is almost even: nothing to tell apart
        for block in model.blocks:
            block.attn.qkv.weight.mul_(20)
    return model


def halves(classes: torch.Tensor, **options: Any) -> automix.Mixed:
    """Two images of 16 x 16 px whose lower halves are their partner's."""
    mask = torch.ones(2, 1, 16, 16)
    mask[:, :, 8:] = 0
    target = automix.MixedTarget(classes, classes.flip(0), torch.tensor(0.5), **options)
    return automix.Mixed(torch.zeros(2, 3, 16, 16), target, mask)


ATTENTION = torch.tensor([[[0.4, 0.3], [0.2, 0.1]], [[2.0, 0.0], [0.0, 6.0]]])  # 0.7 and 0.25 on the upper half


def test_the_progressive_label_by_hand() -> None:
    """Predictions (1/2, 1/2, 0) and (0, 0, 1) of labels (1/2, 1/2, 0): cosines 1 and 0."""
    logits = torch.tensor([[50.0, 50.0, 0.0], [0.0, 0.0, 50.0]])
    lam = label_by_attention(halves(torch.tensor([0, 1])), ATTENTION, "progressive", logits=logits).target.lam
    torch.testing.assert_close(lam, torch.tensor([0.7, 0.5]))
    # (3/5, 0, 2/5) and (1/2, 1/4, 1/4): cosines 0.3 / (sqrt(0.52) sqrt(0.5)) and 0.375 / (sqrt(0.375) sqrt(0.5))
    logits = torch.tensor([[0.6, 1e-30, 0.4], [0.5, 0.25, 0.25]]).log()
    lam = label_by_attention(halves(torch.tensor([0, 1])), ATTENTION, "progressive", logits=logits).target.lam
    first, second = 0.3 / math.sqrt(0.26), 0.375 / math.sqrt(0.1875)
    expected = [first * 0.7 + (1 - first) * 0.5, second * 0.25 + (1 - second) * 0.5]
    torch.testing.assert_close(lam, torch.tensor(expected))


def test_multi_label_rows_are_compared_with_the_sigmoid() -> None:
    """Rows (1, 1) and (1, 0) mixed half and half are (1, 1/2); sigmoids (1/2, 1/2): a cosine of 3 / sqrt(10)."""
    mixed = halves(torch.tensor([[1, 1], [1, 0]]))
    lam = label_by_attention(mixed, ATTENTION, "progressive", logits=torch.zeros(2, 2)).target.lam
    trust = 3 / math.sqrt(10)
    torch.testing.assert_close(lam, torch.tensor([0.5 + 0.2 * trust, 0.5 - 0.25 * trust]))


@pytest.mark.parametrize("rule", ["half", "progressive"])
@pytest.mark.parametrize("name", WITH_MASK)
def test_a_step_with_every_mask(name: str, rule: Any) -> None:
    """One pass of the student, whose loss is that of the new label; images and draws are those of the plain task."""
    own: dict[str, dict[str, Any]] = {
        "gridmix": {"patch_weight": 0.0},
        "transmix": {"switch": 1.0},
        "supermix": {"fast": True},
    }
    options = own.get(name, {})
    x, y = batch(4, 32, 32)
    task: Any = automix.create_task(name, vit(), attention_label=rule, **options)
    mixed = task.draw_mixed(x, y, step_generator(0, 0))
    with watch_attention(task.student, x) as attentions:
        logits = task.student(mixed.x)
    expected = label_by_attention(mixed, attentions[0], rule, logits=logits).target
    passes: list[torch.Tensor] = []
    task.student.register_forward_hook(lambda module, inputs, output: passes.append(inputs[0]))
    out = task(x, y)
    assert torch.equal(passes[-1], mixed.x)
    torch.testing.assert_close(out.loss, expected.cross_entropy(logits))
    torch.testing.assert_close(out.metrics["lam"], expected.lam.mean())
    out.loss.backward()
    changed = (expected.lam - mixed.target.lam).abs().max() > 1e-3
    assert changed == (name not in ("mixup", "mixup_or_cutmix") or len(mixed.mask.unique()) > 1)


def test_no_gradient_through_the_label() -> None:
    mixed = halves(torch.tensor([0, 1]))
    logits = torch.randn(2, 3, requires_grad=True)
    lam = label_by_attention(mixed, ATTENTION.requires_grad_(), "progressive", logits=logits).target.lam
    assert not lam.requires_grad


def test_clean_images_of_a_batch_stay_clean() -> None:
    x, y = batch(6, 32, 32)
    task = automix.create_task("cutmix", vit(), attention_label="progressive", mix_share=0.5, pairing="other-class")
    rows: list[torch.Tensor] = []

    def criterion(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        rows.append(target)
        return torch.nn.functional.cross_entropy(logits, target)

    task.criterion = criterion
    y = torch.tensor([0, 1, 2, 3, 4, 0])
    task(x, y)
    torch.testing.assert_close(rows[0][3:].argmax(dim=1), y[3:])
    torch.testing.assert_close(rows[0].amax(dim=1) == 1, torch.tensor([False] * 3 + [True] * 3))


def test_looking_at_it_needs_no_step() -> None:
    x, y = batch(4, 32, 32)
    task = automix.create_task("fmix", vit(), attention_label="progressive")
    task.eval()
    shown = task.mix(x, y, lam=0.6, index=torch.tensor([1, 2, 3, 0]))
    with watch_attention(task.student, x) as attentions:
        logits = task.student(shown.x)
    plain = automix.Mixed(shown.x, automix.MixedTarget(y, shown.target.y_b, shown.mask.mean(dim=(1, 2, 3))), shown.mask)
    expected = label_by_attention(plain, attentions[0], "progressive", logits=logits).target.lam
    torch.testing.assert_close(shown.target.lam, expected, atol=2e-3, rtol=0)  # lam of FMix is the mean to a pixel
    assert task.step == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: automix.create_task("cutmix", vit(), attention_label="area"), "attention_label"),
        (
            lambda: automix.create_task("cutmix", vit(), attention_label="half", objects="teacher"),
            "objects must be None",
        ),
        (lambda: automix.create_task("gridmix", vit(), attention_label="half"), "attention_label .* gridmix"),
        (lambda: automix.create_task("recursivemix", vit(), omega=0, attention_label="half"), "attention_label"),
        (lambda: automix.create_task("comixup", vit(), attention_label="half"), "attention_label .* comixup"),
        (lambda: automix.create_task("pixmix", vit(), attention_label="half"), "attention_label .* pixmix"),
        (
            lambda: automix.create_task(
                "cutmix", timm.create_model("resnet10t", num_classes=5), attention_label="half"
            ),
            "labels by attention need .*got ResNet",
        ),
        (
            lambda: automix.create_task("mixup", vit(), images=3, attention_label="half")(*batch(4, 32, 32)),
            "labels by attention are those of pairs, got 3 images",
        ),
        (
            lambda: label_by_attention(halves(torch.tensor([0, 1])), ATTENTION, "progressive"),
            "logits must be given",
        ),
        (lambda: label_by_attention(halves(torch.tensor([0, 1])), torch.rand(2, 4)), r"attention .*\(2, h, w\)"),
        (lambda: label_by_attention(halves(torch.tensor([0, 1])), ATTENTION, "all"), "rule must be one of"),  # type: ignore[arg-type]
    ],
)
def test_wrong_combinations_are_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)
