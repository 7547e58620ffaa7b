"""The parts of the engine: optimizer, schedule, loss, precision, checkpoints."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten
from safetensors.torch import save_file

import automix
from automix.core.target import MixedTarget
from automix.core.tensor_files import read_tensors, write_tensors
from automix.runs import checkpoint
from automix.runs.recipes import Recipe, find_recipe
from automix.training.build import build_optimizer, build_schedule, choose_criterion
from automix.training.hardware import choose_device, choose_precision


def make_task(**options: Any) -> automix.Task:
    return automix.AutoMix(HandWritten(), layer="body", **options)


def test_sgd_is_plain_momentum_with_decay_on_everything() -> None:
    recipe = find_recipe("cifar")
    optimizer = build_optimizer(recipe, make_task())
    assert type(optimizer) is torch.optim.SGD
    assert {group["name"]: group["lr"] for group in optimizer.param_groups} == {"student": 0.1, "mix_block": 0.03}
    for group in optimizer.param_groups:
        assert (group["momentum"], group["weight_decay"]) == (0.9, 1e-4)
        assert not group["nesterov"]


@pytest.mark.parametrize(("recipe", "kind"), [("deit", "AdamW"), ("rsb-a2", "Lamb")])
def test_the_others_leave_vectors_undecayed(recipe: str, kind: str) -> None:
    task = make_task()
    optimizer = build_optimizer(find_recipe(recipe), task)
    assert type(optimizer).__name__ == kind
    seen = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (find_recipe(recipe).weight_decay if parameter.ndim > 1 else 0)
            seen += 1
    assert seen == sum(parameter.requires_grad for parameter in task.parameters())


def test_the_schedule_by_hand() -> None:
    """Linear warm-up over 2 epochs of 5 steps, then a cosine over all 50 steps from 0.1 to 0.02."""
    recipe = replace(Recipe(), epochs=10, lr=0.1, lr_floor=0.02, warmup_epochs=2)
    optimizer = build_optimizer(recipe, make_task(block_lr=1.0))
    schedule = build_schedule(recipe, optimizer, steps_per_epoch=5)

    def at(step: int) -> float:
        schedule.step_update(step)
        assert len({group["lr"] for group in optimizer.param_groups}) == 1
        return float(optimizer.param_groups[0]["lr"])

    assert at(0) == pytest.approx(1e-6)
    assert at(5) == pytest.approx(0.1 / 2, rel=1e-4)
    for step in (10, 25, 49):
        assert at(step) == pytest.approx(0.02 + 0.08 * (1 + math.cos(math.pi * step / 50)) / 2)
    assert at(25) == pytest.approx(0.06)  # whatever was asked before


def test_the_losses_of_the_recipes() -> None:
    logits, y_a, y_b = torch.randn(4, 5), torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 3, 4])
    target = MixedTarget(y_a, y_b, torch.tensor([0.9, 0.7, 0.5, 0.1]))
    smooth = choose_criterion(replace(Recipe(), label_smoothing=0.1))(logits, target)
    parts = [F.cross_entropy(logits, y, label_smoothing=0.1, reduction="none") for y in (y_a, y_b)]
    torch.testing.assert_close(smooth, (target.lam * parts[0] + (1 - target.lam) * parts[1]).mean())
    present = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]).float()
    weighted = choose_criterion(replace(Recipe(), balance="loss"), (4, 1, 1, 1, 1))(logits, target)
    weights = torch.tensor([8 / 20, 8 / 5, 8 / 5, 8 / 5, 8 / 5])
    torch.testing.assert_close(weighted, target.cross_entropy(logits, class_weights=weights))
    drawn = choose_criterion(replace(Recipe(), balance="sampling"), (4, 1, 1, 1, 1))(logits, target)
    torch.testing.assert_close(drawn, target.cross_entropy(logits))
    bce = choose_criterion(find_recipe("rsb-a2"))(logits, target)  # beyond 0.2 a class counts as there
    torch.testing.assert_close(bce, F.binary_cross_entropy_with_logits(logits, present))


def test_precision_follows_recipe_and_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = choose_device("cpu")
    for fast in (False, True):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda fast=fast: fast)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert choose_precision("auto", True, cpu) == ("bf16" if fast else "float32")
        assert choose_precision("auto", False, cpu) == "float32"
        assert choose_precision("bf16", False, cpu) == "bf16"


def saved(folder: Path, facts: dict[str, Any]) -> tuple[Path, automix.Task, torch.optim.Optimizer]:
    """A checkpoint after one step of LAMB, which keeps a step count among its options."""
    task = make_task()
    optimizer = build_optimizer(find_recipe("rsb-a2"), task)
    task(torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])).loss.backward()
    optimizer.step()
    task.update(0.25)
    path = folder / "checkpoint.safetensors"
    checkpoint.save_checkpoint(path, task, optimizer, torch.amp.GradScaler("cpu", enabled=False), facts)
    return path, task, optimizer


def load(path: Path) -> tuple[automix.Task, torch.optim.Optimizer, dict[str, Any]]:
    torch.manual_seed(99)
    task = make_task()
    optimizer = build_optimizer(find_recipe("rsb-a2"), task)
    facts = checkpoint.load_checkpoint(path, task, optimizer, torch.amp.GradScaler("cpu", enabled=False))
    return task, optimizer, facts


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    path, task, optimizer = saved(tmp_path, {"step": 7, "best": {"top1": 12.5}})
    again, other, facts = load(path)
    assert facts == {"step": 7, "best": {"top1": 12.5}}
    assert (again.step, again.progress) == (1, 0.25)
    for name, value in task.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    before, after = optimizer.state_dict(), other.state_dict()
    assert [{**group, "betas": list(group["betas"])} for group in before["param_groups"]] == after["param_groups"]
    for number, state in before["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(after["state"][number][name]))


def change_header(path: Path, **changes: Any) -> None:
    tensors, metadata = read_tensors(path)
    write_tensors(path, tensors, {"automix": json.dumps(json.loads(metadata["automix"]) | changes)})


def test_other_conditions_are_said_once(tmp_path: Path) -> None:
    path, _, _ = saved(tmp_path, {})
    change_header(path, environment={**checkpoint.environment(), "threads": 77})
    with pytest.warns(UserWarning, match=r"resumed under other conditions \(threads 77 -> \d+\)") as said:
        load(path)
    assert len(said) == 1


def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path, _, _ = saved(tmp_path, {})
    content = path.read_bytes()
    change_header(path, format=2)
    with pytest.raises(ValueError, match="format 2 is newer"):
        load(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(
        ValueError, match=r"checkpoint\.safetensors: not a safetensors file, or damaged .*no checkpoint-previous"
    ):
        load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="was not written by automix"):
        load(path)
