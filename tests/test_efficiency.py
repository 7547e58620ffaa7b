"""The cost of a network and of a method's training step: hand-worked counts, a clock of our own, a known peak."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import HandWritten
from timm import create_model
from torch import Tensor, nn

import automix
from automix.evaluation import efficiency, profiling
from automix.evaluation.efficiency import evaluate_efficiency
from automix.evaluation.profiling import (
    count_macs,
    count_parameters,
    extra_parameters,
    peak_memory,
    ratios,
    time_interleaved,
)
from automix.runs.classifier import Card, WithNormalization

CPU = torch.device("cpu")


class TwoLayers(nn.Module):
    """A convolution 3 x 3 with stride 2 from 3 to 8 channels, and a linear layer: both with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.convolution(x).relu().mean(dim=(2, 3)))


def small() -> nn.Module:
    options: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}
    return automix.create_model("resnet18", num_classes=5, image_size=16, **options)


def cost(model: nn.Module, method: str, **options: Any) -> dict[str, float]:
    return evaluate_efficiency(
        model, num_classes=5, image_size=16, batch_size=6, steps=1, method=method, **options
    ).values


def test_counts_of_two_layers_worked_out_by_hand() -> None:
    values = cost(TwoLayers(), "vanilla")
    assert values["parameters_m"] == (3 * 8 * 9 + 8 + 8 * 5 + 5) / 1e6
    assert values["gmacs"] == (8 * 8 * (3 * 8 * 9) + 8 * 5) / 1e9  # at 16 px the map has 8 x 8 places
    assert values["extra_parameters_m"] == 0


def test_attention_is_counted_too() -> None:
    """One head over 16 patches and a class token: the published counts of DeiT contain both matrix products."""
    options: dict[str, Any] = {"depth": 1, "embed_dim": 8, "num_heads": 1, "img_size": 16, "patch_size": 4}
    model = create_model("deit_tiny_patch16_224", num_classes=5, **options)
    tokens, width = 17, 8
    patches = 16 * (3 * 4 * 4) * width
    attention = tokens * width * 3 * width + 2 * tokens * tokens * width + tokens * width * width
    mlp = 2 * tokens * width * 4 * width
    assert count_macs(model, 5, 16) == patches + attention + mlp + width * 5


@pytest.mark.parametrize(
    ("name", "parameters_m", "gmacs"), [("resnet18", 11.69, 1.82), ("deit_tiny_patch16_224", 5.72, 1.26)]
)
def test_known_networks_have_their_known_counts(name: str, parameters_m: float, gmacs: float) -> None:
    """timm's tables."""
    network = create_model(name)
    assert count_parameters(network.parameters()) / 1e6 == pytest.approx(parameters_m, abs=0.005)
    assert count_macs(network, 1000, 224) / 1e9 == pytest.approx(gmacs, abs=0.01)


def test_extra_parameters_are_the_mix_blocks_not_the_teachers() -> None:
    task = automix.create_task("automix", small())
    assert task.teacher is not None
    block = count_parameters(task.mix_block.parameters())  # type: ignore[union-attr]
    assert extra_parameters(task) == block > 0
    assert extra_parameters(automix.create_task("mixup", small(), ema=True)) == 0
    assert cost(small(), "automix")["extra_parameters_m"] == block / 1e6


def test_the_memory_ratio_of_plain_training_is_one() -> None:
    assert cost(small(), "vanilla")["memory_ratio"] == 1


def test_a_teacher_and_a_mix_block_need_more_memory_than_mixup() -> None:
    values = {name: cost(small(), name)["memory_ratio"] for name in ("mixup", "automix")}
    assert 1 < values["mixup"] < values["automix"]


class Clock:
    """A clock that runs only during steps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def works(self, *seconds: float) -> Callable[[Tensor, Tensor], None]:
        """A step that takes so long, one time after the other, and the last one from then on."""
        left = list(seconds)

        def step(x: Tensor, y: Tensor) -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return step


def test_time_is_compared_within_rounds_and_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(profiling, "device_clock", lambda device: clock)
    order: list[str] = []

    def noted(name: str, step: Callable[[Tensor, Tensor], None]) -> Callable[[Tensor, Tensor], None]:
        return lambda x, y: (order.append(name), step(x, y))[1]  # type: ignore[func-returns-value]

    busy = 10.0  # the third round is five times as slow for both
    steps = {
        "plain": noted("plain", clock.works(99.0, 99.0, 2.0, 5 * 2.0, 2.0)),
        "mixing": noted("mixing", clock.works(77.0, 77.0, 6.0, 5 * 6.0, 7.0)),
    }
    seconds = time_interleaved(steps, torch.zeros(1), torch.zeros(1), rounds=3)
    assert seconds == {"plain": [2.0, busy, 2.0], "mixing": [6.0, 30.0, 7.0]}
    assert ratios(seconds["mixing"], seconds["plain"]) == [3.0, 3.0, 3.5]
    assert order == ["plain", "mixing"] * 5


def test_the_ratio_is_the_median_over_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"plain": [1.0, 2.0, 1.0], "mixing": [3.0, 4.0, 9.0]}
    monkeypatch.setattr(efficiency, "time_interleaved", lambda *_, **__: seconds)
    values = evaluate_efficiency(TwoLayers(), num_classes=5, image_size=8, method="mixup").values
    assert values["step_ratio"] == 3


def test_steps_that_mix_and_steps_that_do_not_count_by_their_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, turns = Clock(), []

    def timed(task: automix.Task, progress: float = 0.0) -> Callable[[Tensor, Tensor], None]:
        turns.append((task.mix_until, progress))
        return clock.works({0: 2.0, 1: 5.0, 2: 3.0}[len(turns) - 1])  # plain, mixing, ending

    monkeypatch.setattr(profiling, "device_clock", lambda device: clock)
    monkeypatch.setattr(efficiency, "training_step", timed)
    monkeypatch.setattr(efficiency, "peak_memory", lambda *_: None)
    options = {"layer": "body", "mix_until": 0.8}
    evaluation = evaluate_efficiency(HandWritten(5), num_classes=5, image_size=8, method_options=options)
    assert turns == [(1.0, 0.0), (0.8, 0.0), (0.8, 1.0)]
    assert evaluation.values["step_ratio"] == pytest.approx(0.8 * 2.5 + 0.2 * 1.5)
    assert "2.50 while it mixes, for 80% of a training" in evaluation.notes


def test_the_peak_is_the_most_that_is_held_at_once() -> None:
    megabyte = 2**18  # float32

    def run() -> None:
        first = torch.zeros(megabyte)  # 1
        second = torch.zeros(3 * megabyte)  # 4
        del first  # 3
        third = torch.zeros(megabyte // 2)  # 3.5
        del second, third
        torch.zeros(2 * megabyte)  # 2

    assert peak_memory(run, CPU) == 4 * 2**20


def test_the_peak_includes_what_autograd_keeps() -> None:
    x = torch.randn(1000, requires_grad=True)  # 4,000 bytes

    def run() -> None:
        x.exp().sin().exp()

    with torch.no_grad():
        assert peak_memory(run, CPU) == 2 * 4000
    assert peak_memory(run, CPU) == 3 * 4000  # the first is still there, for the backward pass, when the third is made


def test_memory_of_other_devices_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peak_memory(lambda: None, torch.device("mps")) is None
    monkeypatch.setattr(efficiency, "peak_memory", lambda *_: None)
    evaluation = evaluate_efficiency(TwoLayers(), num_classes=5, image_size=8, method="mixup", steps=1)
    assert "memory_ratio" not in evaluation.values
    assert any("peak memory on cpu is not known" in note for note in evaluation.notes)
    assert evaluation.pictures["efficiency"]().size == (720, 228)


def test_the_network_is_found_inside_its_normalization() -> None:
    card = Card(
        model="resnet18",
        model_options={},
        classes=tuple("abcde"),
        image_size=16,
        train_size=16,
        mean=(0.5, 0.5, 0.5),
        std=(0.2, 0.2, 0.2),
    )
    network = small()
    inside, bare = cost(WithNormalization(network, card), "automix"), cost(network, "automix")
    assert {**inside, "step_ratio": 0} == {**bare, "step_ratio": 0}


def test_values_and_notes_come_with_a_picture() -> None:
    evaluation = evaluate_efficiency(small(), num_classes=5, image_size=16, batch_size=6, steps=2, method="mixup")
    assert list(evaluation.values) == ["parameters_m", "extra_parameters_m", "gmacs", "step_ratio", "memory_ratio"]
    assert evaluation.notes[0] == "mixup beside vanilla: batches of 6 at 16 px, 2 steps, on cpu"
    assert evaluation.pictures["efficiency"]().size == (720, 228)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "^steps.*1"),
        ({"image_size": 0}, "^image_size.*1"),
        ({"num_classes": 0}, "^num_classes.*1"),
        ({"method_options": {"beta": 1}}, "mixup.*'beta'.*alpha"),
    ],
)
def test_wrong_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_efficiency(TwoLayers(), **{"num_classes": 5, "image_size": 8, "method": "mixup", **options})


def test_an_unknown_method_is_refused_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency, "count_macs", lambda *_: pytest.fail("counted before the check"))
    with pytest.raises(ValueError, match=r"method.*automax.*automix"):
        evaluate_efficiency(TwoLayers(), num_classes=5, image_size=8, method="automax")
