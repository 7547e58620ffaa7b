"""PatchUp: DropBlock's blocks, the authors' label and loss, and maps of every layout."""

from typing import Any

import pytest
import scipy.stats
import timm
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from torch import Tensor, nn

import automix
from automix.core.draws import step_generator
from automix.methods.patchup import block_mask, patchup
from automix.tasks.hidden_task import HiddenTask


def create_task(model: nn.Module, **options: Any) -> HiddenTask:
    task = automix.create_task("patchup", model, **options)
    assert isinstance(task, HiddenTask)
    return task


def test_blocks_by_hand() -> None:
    """gamma_adj = 0.5 * 25 / (9 * 9) = 0.154: two positions below it in the first channel, none in the second."""
    noise = torch.full((2, 5, 5), 0.16)
    noise[0, 1, 1] = noise[0, 4, 4] = 0.15
    blocks = block_mask(noise, torch.tensor(0.5), 3)
    assert blocks.shape == (1, 2, 5, 5)
    assert not blocks[0, 1].any()
    expected = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]])
    assert torch.equal(blocks[0, 0], expected.bool())


@pytest.mark.parametrize(("size", "block"), [((9, 6), 3), ((12, 12), 7), ((5, 4), 3), ((6, 3), 3), ((1, 1), 1)])
def test_blocks_are_all_squares_around_the_starts(size: tuple[int, int], block: int) -> None:
    """Against loops; 7 is asked for, and clipped to the largest odd side that fits."""
    height, width = size
    noise, gamma = torch.rand(4, 3, *size), torch.tensor([0.1, 0.3, 0.5, 0.9])
    ours = block_mask(noise, gamma, 7 if block != 3 or min(size) < 5 else 3)
    for n in range(4):
        threshold = float(gamma[n]) * height * width / (block**2 * (height - block + 1) * (width - block + 1))
        for c in range(3):
            for i in range(height):
                for j in range(width):
                    near = noise[
                        n,
                        c,
                        max(0, i - block // 2) : i + block // 2 + 1,
                        max(0, j - block // 2) : j + block // 2 + 1,
                    ]
                    assert bool(ours[n, c, i, j]) == bool((near < threshold).any())


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_label_and_map_follow_the_share_left_alone(kind: str) -> None:
    x, y = torch.randn(4, 3, 8, 8), torch.arange(4)
    index, noise = torch.tensor([1, 2, 3, 0]), torch.rand(3, 8, 8)
    mixed = patchup(x, y, kind=kind, block=3, index=index, noise=noise, generator=step_generator(0, 0))
    blocks = block_mask(noise, torch.tensor(0.75 if kind == "soft" else 0.5), 3)
    lam = torch._sample_dirichlet(torch.tensor([2.0, 2.0]), step_generator(0, 0))[0]
    alone = 1 - blocks.float().mean()
    assert 0.2 < alone < 0.9
    inside = lam * x + (1 - lam) * x[index] if kind == "soft" else x[index]
    torch.testing.assert_close(mixed.x, torch.where(blocks, inside, x))
    torch.testing.assert_close(mixed.target.lam, alone + (1 - alone) * lam if kind == "soft" else alone)
    torch.testing.assert_close(mixed.mask.mean(), mixed.target.lam)


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_authors_two_losses_are_one(kind: str) -> None:
    """p * l(y_a) + (1 - p) * l(y inside the blocks) is the loss on the re-weighted label."""
    x, y = torch.randn(4, 3, 8, 8), torch.arange(4)
    index, noise, lam = torch.tensor([1, 2, 3, 0]), torch.rand(3, 8, 8), torch.tensor(0.3)
    logits, rows = torch.randn(4, 4), torch.eye(4)
    mixed = patchup(x, y, kind=kind, block=3, index=index, noise=noise, lam=lam if kind == "soft" else None)
    alone = 1 - block_mask(noise, torch.tensor(0.75 if kind == "soft" else 0.5), 3).float().mean()
    inside = lam * rows + (1 - lam) * rows[index] if kind == "soft" else rows[index]
    theirs = alone * F.cross_entropy(logits, rows) + (1 - alone) * F.cross_entropy(logits, inside)
    torch.testing.assert_close(mixed.target.cross_entropy(logits), theirs)


def test_hard_takes_gamma_from_a_given_lam() -> None:
    x, y = torch.randn(400, 4, 32, 32), torch.zeros(400, dtype=torch.int64)
    lam = torch.linspace(0.5, 1, 400)
    mixed = patchup(x, y, kind="hard", lam=lam, generator=step_generator(0, 0))
    assert scipy.stats.spearmanr(lam, mixed.target.lam).statistic > 0.85
    assert torch.equal(mixed.x[-1], x[-1])
    assert mixed.target.lam[-1] == 1


def test_changed_share_is_about_gamma() -> None:
    """DropBlock's formula leaves overlaps and borders out of account: near gamma, not equal to it."""
    noise = torch.rand(500, 4, 32, 32)
    for gamma in (0.1, 0.25, 0.5):
        share = float(block_mask(noise, torch.tensor(gamma), 7).float().mean())
        assert abs(share - gamma) < 0.05


def test_the_batch_shares_its_blocks_unless_per_sample() -> None:
    x, y = torch.ones(6, 3, 16, 16), torch.arange(6)
    x[3:] = 0
    index = torch.tensor([3, 4, 5, 0, 1, 2])
    shared = patchup(x, y, kind="hard", index=index, generator=step_generator(0, 0))
    assert torch.equal(shared.x[0], shared.x[1])
    assert not torch.equal(shared.x[0, 0], shared.x[0, 1])  # each channel has its own
    assert shared.target.lam.shape == ()
    own = patchup(x, y, kind="hard", index=index, per_sample=True, generator=step_generator(0, 0))
    assert not torch.equal(own.x[0], own.x[1])
    torch.testing.assert_close(own.target.lam[:3], own.x[:3].mean(dim=(1, 2, 3)))


NETWORKS: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "swin_tiny_patch4_window7_224": {"img_size": 32, "window_size": 2, "embed_dim": 24, "depths": (1, 1, 1, 1)},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_mixes_maps_of_every_layout(name: str) -> None:
    """All channels of the map have blocks, none of which depends on the layout."""
    model = timm.create_model(name, num_classes=5, **NETWORKS[name])
    channels = model.feature_info[-4]["num_chs"]
    task = create_task(model, layers=(1,), prob=1.0, kind="hard")
    seen: list[Tensor] = []

    def record(z: Tensor, y: Tensor, **rest: Any) -> Any:
        seen.append(z)
        return patchup(z, y, **rest)

    task.mixer = record
    out = task(*batch(4, 32, 32))
    out.loss.backward()
    assert seen[0].shape[:2] == (4, channels)
    assert 0 < out.metrics["lam"] < 1


def test_layers_by_default() -> None:
    resnet = timm.create_model("resnet10t", num_classes=5)
    assert create_task(resnet).layers == [None, "act1", "layer1"]
    assert create_task(timm.create_model("efficientnet_lite0", num_classes=5)).layers == [None, "bn1", "blocks.1"]
    wide = automix.create_model("wrn_10_1", num_classes=5, image_size=32)
    assert create_task(wide).layers == [None, "stem", "group1"]


@pytest.mark.parametrize(("kind", "gamma", "prob"), [("soft", 0.75, 1.0), ("hard", 0.5, 0.7)])
def test_the_authors_settings_are_the_defaults(kind: str, gamma: float, prob: float) -> None:
    x, y = batch(4, 16, 16)
    noise = torch.rand(3, 16, 16, generator=step_generator(0, 0))
    index = torch.tensor([1, 2, 3, 0])
    options: dict[str, Any] = {"kind": kind, "index": index, "noise": noise, "block": 3}
    ours = patchup(x, y, **options, generator=step_generator(0, 1))
    assert torch.equal(ours.mask, patchup(x, y, gamma=gamma, **options, generator=step_generator(0, 1)).mask)
    share = (ours.mask < 1).float().mean()  # covered by blocks, some of which overlap
    assert 0.5 * gamma < share < 1.1 * gamma
    assert create_task(HandWritten(), layers=("stem",), kind=kind).prob == prob


def test_at_the_input_it_is_cutmix() -> None:
    x, y = batch()
    ours = create_task(HandWritten(norm=group_norm), layers=(0,), prob=1.0, kind="hard")
    theirs = automix.create_task("cutmix", ours.student)
    generator = step_generator(0, 0)
    torch.rand((), generator=generator)  # where
    assert torch.equal(ours(x, y).loss, theirs.training_step(x, y, generator).loss)
    assert torch.equal(ours.mix(x, lam=0.3).x, theirs.mix(x, lam=0.3).x)


def test_loss_by_hand() -> None:
    x, y = batch()
    task = create_task(HandWritten(norm=group_norm), layers=("stem",), prob=1.0, block=3)
    generator = step_generator(0, 0)
    torch.rand((), generator=generator)  # where
    model = task.student
    mixed = patchup(model.stem(x), y, block=3, generator=generator)  # type: ignore[operator]
    logits = model.head(model.body(mixed.x).mean(dim=(2, 3)))  # type: ignore[operator]
    torch.testing.assert_close(task(x, y).loss, mixed.target.cross_entropy(logits))


def test_a_share_of_the_batches_stays_clean() -> None:
    x, y = batch(2, 8, 8)
    task = create_task(HandWritten(norm=group_norm), layers=("stem",), block=3, kind="hard")
    clean = 0
    for _ in range(300):
        lam = task(x, y).metrics["lam"]
        clean += int(lam == 1)
        task.update(0.5)
    assert scipy.stats.binomtest(clean, 300, 0.3).pvalue > 0.01


VIT = {"img_size": 32, "patch_size": 8, "depth": 4}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: create_task(HandWritten()), "HandWritten does not describe its stages; pass layers="),
        (
            lambda: create_task(timm.create_model("vit_tiny_patch16_224", num_classes=5, **VIT)),
            r"layer 'patch_embed' must return maps \(N, C, h, w\), got \(N, 16, 192\)",
        ),
        (lambda: create_task(HandWritten(), layers=("head",)), r"layer 'head' must return .*got \(N, 5\)"),
        (lambda: create_task(HandWritten(), layers=("stem",), kind="firm"), "kind.*soft, hard"),
        (lambda: create_task(HandWritten(), layers=("stem",), block=4), "block must be odd.*4"),
        (lambda: create_task(HandWritten(), layers=("stem",), gamma=1.5), r"gamma.*\[0, 1\]"),
        (lambda: create_task(HandWritten(), layers=("stem",), prob=-1), r"prob.*\[0, 1\]"),
        (lambda: patchup(*batch(), noise=torch.rand(3, 5, 5)), r"noise .*\(3, 16, 16\).*got \(3, 5, 5\)"),
    ],
)
def test_wrong_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)
