"""What the Mix Block does, in numbers: hand-worked cases, the log, the warnings, the strip over time."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch
from PIL import Image
from test_train import configure, lines
from torch import Tensor

import automix
from automix.core.accuracy import pair_correct
from automix.core.blend import mask_spread
from automix.methods.automix import task as learned
from automix.methods.automix.diagnostics import LAMS, diagnose, mask_warnings
from automix.pictures.mask_history import add_to_history
from automix.training import Silent, train
from automix.training.loop import gradient_norms

MEAN, STD = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])


def test_first_and_second_answer_by_hand() -> None:
    y_a, y_b = torch.tensor([0, 0, 0, 0, 2]), torch.tensor([1, 1, 1, 1, 2])
    logits = torch.tensor(
        [
            [5.0, 4, 0],  # both, in order
            [4.0, 5, 0],  # both, the other way round
            [5.0, 0, 4],  # one of them first, a stranger second
            [4.0, 0, 5],  # a stranger first
            [0.0, 0, 9],  # two images of one class: not counted
        ]
    )
    top1, top2 = pair_correct(logits, y_a, y_b)
    assert top1.tolist() == [True, True, True, False]
    assert top2.tolist() == [True, True, False, False]


def test_spread_by_hand() -> None:
    masks = torch.stack([torch.full((1, 2, 2), 0.3), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])])
    torch.testing.assert_close(mask_spread(masks), torch.tensor([0.0, 0.5]))


def test_examine_measures_what_the_task_mixes_and_changes_nothing() -> None:
    task = automix.AutoMix(HandWritten(), layer="body").train()
    before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    modes = [module.training for module in task.modules()]
    x, _ = batch(8)
    y = torch.arange(8) % 5
    numbers = diagnose(task, x, y)
    index = torch.arange(8).roll(1)
    for lam in LAMS:
        mask = task.mix(x, y, lam=lam, index=index).mask
        assert numbers[f"mask_mean_at_{lam}"] == pytest.approx(mask.mean().item())
        deviations = [one.flatten().sub(one.mean()).square().mean().sqrt().item() for one in mask]
        assert numbers[f"mask_spread_at_{lam}"] == pytest.approx(sum(deviations) / 8, abs=1e-6)
    with torch.no_grad():
        logits = task.classifier((x + x[index]) / 2)
    hits = [first in (int(a), int(b)) for first, a, b in zip(logits.argmax(1).tolist(), y, y[index], strict=True)]
    assert numbers["top1_on_mixup"] == pytest.approx(100 * sum(hits) / 8)
    assert [module.training for module in task.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in task.state_dict().items())


@pytest.mark.parametrize(
    ("spread", "low", "high", "kinds"),
    [
        (0.2, 0.2, 0.8, []),
        (0.01, 0.2, 0.8, ["flat"]),
        (0.4, 0.27, 0.28, ["lam-ignored"]),
        (0.0, 0.5, 0.5, ["flat", "lam-ignored"]),
    ],
)
def test_what_is_said_about_masks(spread: float, low: float, high: float, kinds: list[str]) -> None:
    numbers = {"mask_spread_at_0.5": spread, "mask_mean_at_0.2": low, "mask_mean_at_0.8": high}
    said = mask_warnings(numbers)
    assert list(said) == kinds
    assert all("\n" not in message for message in said.values())


def test_rows_as_labels_have_nothing_to_count() -> None:
    task = automix.AutoMix(HandWritten(), layer="body")
    x, y = batch()
    assert task.diagnose(x, torch.nn.functional.one_hot(y, 5)) == ({}, {})


class Listener(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def warn(self, message: str) -> None:
        self.heard.append(message)


def test_the_log_has_the_numbers_and_a_warning_is_given_once(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned, "WARMUP_STEPS", 0)
    flat: dict[str, Any] = {"method_options": {"preset": "paper"}}
    listener = Listener()
    config = configure(photos, tmp_path / "run", **flat)
    train(config, display=listener)
    record = lines(config.folder, "epoch")[-1]
    assert {"mask_spread", "lam_gap", "mask_spread_at_0.5", "mask_mean_at_0.8", "top2_on_cutmix"} <= record.keys()
    parts = [record[f"gradient_norm_{group}"] for group in ("student", "mix_block", "mixed_head")]
    assert min(parts) > 0
    assert max(parts) < record["gradient_norm"] < sum(parts)
    warnings = lines(config.folder, "warning")
    assert [line["about"] for line in warnings] == ["flat", "lam-ignored"]
    assert listener.heard == [line["message"] for line in warnings]
    again = Listener()
    train(config, resume=True, display=again)
    assert again.heard == []


def test_methods_without_a_mix_block_are_not_examined(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "mixup")
    train(config)
    assert not [
        name for name in lines(config.folder, "epoch")[-1] if name.startswith(("mask", "top", "gradient_norm_"))
    ]
    assert not lines(config.folder, "warning")


def test_gradient_norms_of_parts_make_up_the_whole() -> None:
    task = automix.AutoMix(HandWritten(), layer="body")
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1))
    task(*batch()).loss.backward()
    norms = gradient_norms(optimizer)
    gradients = [p.grad.flatten() for p in task.parameters() if p.grad is not None]
    torch.testing.assert_close(norms["gradient_norm"], torch.cat(gradients).norm())
    block = torch.cat([p.grad.flatten() for p in task.mix_block.parameters() if p.grad is not None])
    torch.testing.assert_close(norms["gradient_norm_mix_block"], block.norm())


def draw(path: Path, task: automix.Task, x: Tensor, column: int) -> None:
    add_to_history(path, task, x, torch.arange(len(x)), MEAN, STD, column=column, columns=3, name=f"epoch {column}")


def test_a_strip_keeps_its_columns_and_draws_over_what_is_drawn_again(tmp_path: Path) -> None:
    task = automix.AutoMix(HandWritten(), layer="body")
    x, _ = batch(4)
    path = tmp_path / "strip.png"
    draw(path, task, x, 0)
    with Image.open(path) as opened:
        first = opened.convert("RGB")
    draw(path, task, x, 2)
    with Image.open(path) as opened:
        second = opened.convert("RGB")
    assert first.size == second.size
    width = (first.width - 28) // 4
    left = (0, 0, 14 + 2 * width, first.height)
    assert first.crop(left).tobytes() == second.crop(left).tobytes()
    assert first.crop((14 + 3 * width, 0, *first.size)).getcolors() == [
        (first.height * (first.width - 14 - 3 * width), (255, 255, 255))
    ]
    assert len(second.crop((14 + 3 * width, 0, *first.size)).getcolors(10**6) or ()) > 2
    draw(path, task, x, 2)
    with Image.open(path) as opened:
        assert opened.convert("RGB").tobytes() == second.tobytes()
