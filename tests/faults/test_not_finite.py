"""NaN and infinity, put where they would do harm: the run stops before the update at that very step."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from automix.runs.config import TrainConfig
from automix.training import NotFiniteError, Silent, train
from automix.training.run import Run
from faults.conftest import Record
from faults.runs import CHECKPOINT, configure, digest

AT = 4  # of nine steps


class Spoil(Silent):
    """Saves once AT steps are done, and then lets `inject` put `value` into a part of the run."""

    def __init__(self, inject: Callable[[Run, float], None], value: float) -> None:
        self.inject, self.value = inject, value

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == AT:
            run.save_checkpoint()
            self.run = run
            self.file = run.folder.checkpoint.read_bytes()
            self.weights = [parameter.detach().clone() for parameter in run.task.parameters()]
            self.inject(run, self.value)


def into_loss(run: Run, value: float) -> None:
    run.task.criterion = lambda logits, rows: torch.nn.functional.cross_entropy(logits, rows) * value


def into_one_gradient(run: Run, value: float) -> None:
    """Of the mix block alone: the loss is as finite as ever."""
    mix_block: Any = run.task.mix_block

    def spoil(gradient: Tensor) -> Tensor:
        first = torch.zeros_like(gradient)
        first.view(-1)[0] = value
        return gradient + first

    next(mix_block.parameters()).register_hook(spoil)


def into_one_pixel_of_one_mask(run: Run, value: float) -> None:
    mix_block: Any = run.task.mix_block

    def spoil(module: Any, given: Any, mask: Tensor) -> Tensor:
        pixel = torch.zeros_like(mask)
        pixel[-1, 0, 0, 0] = value
        return mask + pixel

    mix_block.register_forward_hook(spoil)


PLACES = {
    "loss": (into_loss, "loss_mixed"),
    "gradient": (into_one_gradient, "gradient_norm_mix_block"),
    "mask": (into_one_pixel_of_one_mask, "loss_generation"),
}


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_the_run_stops_at_that_very_step(
    place: str, value: float, photos: Path, tmp_path: Path, record: Record
) -> None:
    whole, spoilt = (configure(photos, tmp_path / name, checkpoint_minutes=60) for name in ("whole", "spoilt"))
    stops_before_the_update(place, value, spoilt)
    train(whole)
    train(spoilt, resume=True)  # the bad value was there once: from the checkpoint on it goes as if it had not been
    same = digest(spoilt.folder) == digest(whole.folder)
    record(f"{value} in the {place}", 1, int(same), "nothing: stopped before the update")
    assert same


def stops_before_the_update(place: str, value: float, config: TrainConfig) -> None:
    inject, term = PLACES[place]
    spoil = Spoil(inject, value)
    with pytest.raises(NotFiniteError) as raised:
        train(config, display=spoil)
    message = str(raised.value)
    assert re.fullmatch(
        rf"step {AT}: .*\b{term}\b.* not finite \(.*\); the weights are those before this step", message
    )
    assert all(map(torch.equal, spoil.weights, spoil.run.task.parameters()))
    assert (config.folder / CHECKPOINT).read_bytes() == spoil.file
