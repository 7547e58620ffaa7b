"""What the engine decides for a device that is not the host: precision, scaling, memory format, reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_device import DEVICE
from fake_engine import STEPS, train
from test_fake_device import HERE, run

OVERFLOW = f"fp16:{2.0**40:.0f}"


@pytest.fixture(scope="module")
def runs(photos: Path) -> dict[str, dict[str, Any]]:
    lines = run(str(HERE / "fake_engine.py"), str(photos), "float32", "bf16", "fp16", OVERFLOW).splitlines()
    return {(line := json.loads(text))["asked"]: line for text in lines}


@pytest.mark.parametrize("asked", ["float32", "bf16", "fp16"])
def test_weights_and_images_are_channels_last_on_the_device(asked: str, runs: dict[str, dict[str, Any]]) -> None:
    found = runs[asked]
    assert found["device"] == DEVICE
    assert found["weights"] == [DEVICE]
    assert found["channels_last"]
    assert found["weights_channels_last"]


@pytest.mark.parametrize(
    ("asked", "dtype", "scaling", "reads"),
    [("float32", "float32", False, 1), ("bf16", "bfloat16", False, 1), ("fp16", "float16", True, 2)],
)
def test_precision_and_scaling(
    asked: str, dtype: str, scaling: bool, reads: int, runs: dict[str, dict[str, Any]]
) -> None:
    """The weights stay in float32. A step reads its metrics; the scaler reads whether a gradient is infinite."""
    found = runs[asked]
    assert found["precision"] == asked
    assert found["dtype"] == f"torch.{dtype}"
    assert found["weight_dtypes"] == ["torch.float32"]
    assert found["scaling"] is scaling
    assert found["scales"] == [2.0**16 if scaling else 1.0] * STEPS
    assert found["moved"] == [True] * STEPS
    assert found["reads"] == reads


def test_an_overflow_leaves_the_weights_and_halves_the_factor(runs: dict[str, dict[str, Any]]) -> None:
    found = runs[OVERFLOW]
    assert found["moved"] == [False] * STEPS
    assert found["scales"] == [2.0**39, 2.0**38, 2.0**37]


def test_losses_are_those_of_the_host(runs: dict[str, dict[str, Any]], photos: Path, tmp_path: Path) -> None:
    expected = train(photos, tmp_path / "run", "float32", device="cpu")["losses"]
    assert runs["float32"]["losses"] == pytest.approx(expected, rel=1e-5)
    for asked in ("bf16", "fp16"):
        assert runs[asked]["losses"] == pytest.approx(expected, rel=1e-2)
        assert runs[asked]["losses"] != pytest.approx(expected, rel=1e-6)
