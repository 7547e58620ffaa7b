"""TransMix: the attention is timm's own, the label the paper's, and only networks with a class token are taken."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from conftest import HandWritten, batch
from timm.models.swin_transformer import window_reverse
from torch import Tensor, nn

import automix
from automix.core import label_by_attention
from automix.core.draws import step_generator
from automix.methods.transmix import transmix
from automix.networks.attention import watch_attention, watch_class_token
from automix.tasks.task import Task


def vit(name: str = "vit_tiny_patch16_224", **options: Any) -> Any:
    torch.manual_seed(3)
    settings = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 3, **options}
    model = timm.create_model(name, num_classes=5, **settings)
    with torch.no_grad():  # freshly made attention is almost even: nothing to tell apart
        for block in model.blocks:
            block.attn.qkv.weight.mul_(20)
    return model


def by_the_book(model: Any, x: Tensor) -> Tensor:
    """The class token's row of the matrix that timm's unfused attention multiplies the values with: (N, patches)."""
    seen: list[Tensor] = []
    model.blocks[-1].attn.fused_attn = False
    handle = model.blocks[-1].attn.attn_drop.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(x)
    handle.remove()
    model.blocks[-1].attn.fused_attn = True
    return seen[0].detach()[:, :, 0, model.num_prefix_tokens :].mean(dim=1)


MODELS: dict[str, Callable[[], Any]] = {
    "vit": vit,
    "normed": lambda: vit(qk_norm=True),
    "registers": lambda: vit(reg_tokens=4, no_embed_class=True),
    "distilled": lambda: vit("deit_tiny_distilled_patch16_224"),
    "deit": lambda: vit("deit_tiny_patch16_224"),
}


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_timms(name: str) -> None:
    model = MODELS[name]()
    x, _ = batch(4, 32, 32)
    with watch_class_token(model, x) as attentions:
        model(x)
    expected = by_the_book(model, x)
    assert expected.std() > 0.01
    torch.testing.assert_close(attentions[0].flatten(1), expected)
    assert not model.blocks[-1].attn.qkv._forward_hooks


def test_attention_of_images_that_are_not_square() -> None:
    model = vit(img_size=(16, 40))
    x, y = batch(3, 16, 40)
    with watch_class_token(model, x) as attentions:
        model(x)
    assert attentions[0].shape == (3, 2, 5)
    flexible = vit(dynamic_img_size=True)
    with watch_class_token(flexible, x) as attentions:
        flexible(x)
    assert attentions[0].shape == (3, 2, 5)
    automix.create_task("transmix", flexible)(x, y).loss.backward()


def test_label_by_hand() -> None:
    """A box of 8 x 16 out of 16 x 16 px; the 2 x 2 patches draw 4, 3, 2 and 1 tenths of the attention."""
    x, y = torch.zeros(2, 3, 16, 16), torch.tensor([0, 1])
    mixed = automix.cutmix(x, y, index=torch.tensor([1, 0]), lam=0.5)
    mask = torch.ones(2, 1, 16, 16)
    mask[:, :, 8:] = 0  # the lower half is the partner's
    mixed = automix.Mixed(x, automix.MixedTarget(y, y.flip(0), torch.tensor(0.5)), mask)
    attention = torch.tensor([[[0.4, 0.3], [0.2, 0.1]], [[2.0, 0.0], [0.0, 6.0]]])
    lam = label_by_attention(mixed, attention).target.lam
    torch.testing.assert_close(lam, torch.tensor([(0.5 + 0.7) / 2, (0.5 + 0.25) / 2]))


def test_even_attention_leaves_the_area() -> None:
    """Patches of one pixel: the attention's share is the area's."""
    x, y = batch(6, 12, 20)
    plain = transmix(x, y, generator=step_generator(0, 0), per_sample=True)
    even = transmix(x, y, attention=torch.full((6, 12, 20), 0.1), generator=step_generator(0, 0), per_sample=True)
    torch.testing.assert_close(even.target.lam, plain.target.lam)
    assert torch.equal(even.x, plain.x)
    cut = automix.cutmix(x, y, generator=step_generator(0, 0), per_sample=True)
    assert torch.equal(plain.target.lam, cut.target.lam)


def test_the_loss_by_hand() -> None:
    model = vit()
    x, y = batch(4, 32, 32)
    out = automix.create_task("transmix", model, switch=1.0)(x, y)
    cut = automix.cutmix(x, y, generator=step_generator(0, 0))
    grid = by_the_book(model, cut.x).unflatten(1, (4, 4))
    inside = cut.mask[:, 0, ::8, ::8]  # the first pixel of each patch
    lam = (cut.target.lam + (grid * inside).sum(dim=(1, 2)) / grid.sum(dim=(1, 2))) / 2
    assert (lam - cut.target.lam).abs().max() > 0.01
    expected = automix.MixedTarget(y, cut.target.y_b, lam).cross_entropy(model(cut.x))
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(out.metrics["lam"], lam.mean())


def test_one_pass_a_step_and_no_gradient_through_the_label() -> None:
    model = vit()
    passes: list[int] = []
    model.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    x, y = batch(4, 32, 32)
    out = automix.create_task("transmix", model, switch=1.0)(x, y)
    assert passes == [4]
    out.loss.backward()
    gradient = model.blocks[-1].attn.qkv.weight.grad.clone()
    model.zero_grad()
    cut = automix.cutmix(x, y, generator=step_generator(0, 0))
    with watch_class_token(model, x) as attentions:
        logits = model(cut.x)
    assert not attentions[0].requires_grad
    label_by_attention(cut, attentions[0]).target.cross_entropy(logits).backward()
    torch.testing.assert_close(model.blocks[-1].attn.qkv.weight.grad, gradient)


def test_the_teacher_labels_nothing_but_shows() -> None:
    x, y = batch(4, 32, 32)
    task = automix.create_task("transmix", vit(), ema=True, one_hot_loss=True)
    out = task(x, y)
    assert set(out.metrics) >= {"loss_mixed", "loss_clean"}
    index = torch.tensor([1, 2, 3, 0])
    shown = task.mix(x, lam=0.6, index=index)
    grid = by_the_book(task.classifier, shown.x).unflatten(1, (4, 4))
    torch.testing.assert_close(shown.target.lam, label_by_attention(shown_as_cutmix(shown), grid).target.lam)


def shown_as_cutmix(mixed: automix.Mixed) -> automix.Mixed:
    area = mixed.mask.mean(dim=(1, 2, 3))
    return automix.Mixed(mixed.x, automix.MixedTarget(mixed.target.y_a, mixed.target.y_b, area), mixed.mask)


def test_bf16_autocast() -> None:
    x, y = batch(4, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        low = automix.create_task("transmix", vit())(x, y)
    torch.testing.assert_close(
        low.metrics["lam"], automix.create_task("transmix", vit())(x, y).metrics["lam"], atol=0.02, rtol=0
    )


def swin(**options: Any) -> Any:
    torch.manual_seed(3)
    settings = {"depths": (2, 2), "embed_dim": 12, "num_heads": (2, 3), "patch_size": 4, "drop_path_rate": 0, **options}
    model = timm.create_model("swin_tiny_patch4_window7_224", num_classes=5, **settings)
    with torch.no_grad():
        for block in model.layers[-1].blocks:
            block.attn.qkv.weight.mul_(30)
            block.attn.relative_position_bias_table.normal_()
    return model


def windows_by_the_book(model: Any, x: Tensor) -> Tensor:
    """What each patch gets of the matrices that timm's unfused attention multiplies the values with, by timm's code."""
    block, seen, sizes = model.layers[-1].blocks[-1], [], []
    block.attn.fused_attn = False
    handles = [
        block.attn.attn_drop.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])),
        block.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape[1:3])),
    ]
    model(x)
    for handle in handles:
        handle.remove()
    block.attn.fused_attn = True
    (height, width), (rows, columns) = sizes[0], block.window_size
    gets = seen[0].detach().mean(dim=(1, 2)).view(-1, rows, columns, 1)
    padded = (-(-height // rows) * rows, -(-width // columns) * columns)
    maps = window_reverse(gets, block.window_size, *padded)[:, :height, :width, 0]
    return torch.roll(maps, block.shift_size, dims=(1, 2))


@pytest.mark.parametrize(
    "options",
    [
        {"img_size": 32, "window_size": 4},  # one window is the map
        {"img_size": 64, "window_size": 4},  # four windows, shifted
        {"img_size": 48, "window_size": 4},  # padded
    ],
    ids=str,
)
def test_swins_attention_is_timms(options: dict[str, Any]) -> None:
    model = swin(**options)
    x, y = batch(4, options["img_size"], options["img_size"])
    model.eval()
    with watch_attention(model, x) as attentions:
        model(x)
    expected = windows_by_the_book(model, x)
    assert expected.std() > 0.01
    torch.testing.assert_close(attentions[0], expected)
    out = automix.create_task("transmix", model, switch=1.0)(x, y)
    out.loss.backward()
    cut = automix.cutmix(x, y, generator=step_generator(0, 0))
    lam = label_by_attention(cut, windows_by_the_book(model, cut.x)).target.lam
    torch.testing.assert_close(out.metrics["lam"], lam.mean())


def test_a_fifth_of_the_batches_is_mixup() -> None:
    task = automix.create_task("transmix", vit(depth=1), mixup_alpha=0.3)
    x, y = batch(2, 32, 32)
    kinds, passes = [], []
    task.student.register_forward_pre_hook(lambda module, inputs: passes.append(inputs[0]))
    for step in range(100):
        task(x, y)
        generator = step_generator(0, step)
        kinds.append(bool(torch.rand((), generator=generator) >= 0.8))
        mix, alpha = (automix.mixup, 0.3) if kinds[-1] else (automix.cutmix, 1.0)
        assert torch.equal(passes[-1], mix(x, y, alpha, generator=generator).x)
        task.update(0.0)
    assert 8 < sum(kinds) < 33


def other(name: str, **options: Any) -> Callable[[], Task]:
    return lambda: automix.create_task("transmix", timm.create_model(name, num_classes=5, **options))


SMALL = {"img_size": 32, "patch_size": 8, "depth": 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: automix.create_task("transmix", HandWritten()),
            ".*class token.*got HandWritten",
        ),
        (other("resnet10t"), ".*class token.*got ResNet"),
        (lambda: automix.create_task("transmix", vit(), switch=2.0), r"switch must be in \[0, 1\], got 2"),
        (lambda: automix.create_task("transmix", vit(), mixup_alpha=0.0), "mixup_alpha must be .*0"),
        (
            other("vit_tiny_patch16_224", global_pool="avg", **SMALL),
            ".*class token.*got VisionTransformer",
        ),
        (other("vit_tiny_patch16_224", patch_drop_rate=0.5, **SMALL), ".*patch_drop_rate=0"),
        (
            other("eva02_tiny_patch14_224", global_pool="token", img_size=28, depth=2),
            ".*last block.*got Eva",
        ),
        (
            lambda: transmix(*batch(), attention=torch.rand(6, 16)),
            r"attention .*\(6, h, w\), got \(6, 16\)",
        ),
    ],
)
def test_wrong_models_and_attention_are_refused(call: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)
