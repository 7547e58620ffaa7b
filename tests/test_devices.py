"""What the engine decides for CUDA and MPS, on a machine without them: decisions are tested, no kernel runs."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from automix.core.errors import AutomixError
from automix.training import distributed, hardware
from automix.training.hardware import autocast, choose_device, choose_precision


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends that accelerators are there; every device can be allocated on."""

    empty = torch.empty

    def pretend(cuda: int = 0, mps: bool = False, bf16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        if cuda or mps:
            monkeypatch.setattr(hardware.torch, "empty", lambda *given, device=None, **more: empty(*given, **more))

    return pretend


@pytest.mark.parametrize(
    ("there", "name", "rank", "chosen"),
    [
        ({}, "auto", 0, "cpu"),
        ({"mps": True}, "auto", 0, "mps"),
        ({"cuda": 2, "mps": True}, "auto", 1, "cuda:1"),
        ({"cuda": 2}, "cuda", 1, "cuda:1"),
        ({"cuda": 2}, "cuda:0", 1, "cuda:0"),
        ({"cuda": 2}, "cpu", 1, "cpu"),
    ],
)
def test_the_device(machine: Any, there: dict[str, Any], name: str, rank: int, chosen: str) -> None:
    machine(**there)
    assert choose_device(name, rank) == torch.device(chosen)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(machine: Any) -> None:
    machine()
    with pytest.raises(AutomixError, match=r"^device 'cuda' is not available .*use one of cpu$"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("device", "bf16", "asked", "mixed", "chosen"),
    [
        ("cuda", True, "auto", True, "bf16"),
        ("cuda", False, "auto", True, "fp16"),  # before Ampere bf16 is emulated
        ("cuda", False, "auto", False, "float32"),
        ("cuda", False, "bf16", True, "bf16"),
        ("mps", True, "auto", True, "float32"),
        ("mps", True, "fp16", True, "fp16"),
    ],
)
def test_the_precision(machine: Any, device: str, bf16: bool, asked: str, mixed: bool, chosen: str) -> None:
    machine(cuda=int(device == "cuda"), mps=device == "mps", bf16=bf16)
    depthwise = nn.Conv2d(8, 8, 3, groups=8)  # slow in bf16 on the CPU alone
    assert choose_precision(asked, mixed, torch.device(device), depthwise) == chosen


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("float32", None)])
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_autocast(device: str, precision: Any, dtype: torch.dtype | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch finds no such device, and switches its own context off
        context: Any = autocast(precision, torch.device(device))
    assert context.device == device
    if dtype is not None:
        assert context.fast_dtype == dtype
    else:
        assert not context._enabled


@pytest.mark.parametrize("there", [False, True])
def test_workers_memory_is_pinned_for_cuda_alone(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    from automix.data import stream_loader

    asked: dict[str, Any] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(stream_loader, "DataLoader", lambda *_, **options: asked.update(options))
    loader = object.__new__(stream_loader.StreamLoader)
    loader.workers, loader._collate = 2, None  # type: ignore[assignment]
    loader._make_loader(None, [], keep_workers=True)  # type: ignore[arg-type]
    assert asked["pin_memory"] is there
    assert asked["persistent_workers"] is True


@pytest.mark.parametrize(
    ("device", "there", "backend"),
    [
        ("auto", True, "cpu:gloo,cuda:nccl"),
        ("cuda", True, "cpu:gloo,cuda:nccl"),
        ("cpu", True, "gloo"),
        ("auto", False, "gloo"),
    ],
)
def test_the_backend_of_several_processes(
    monkeypatch: pytest.MonkeyPatch, machine: Any, device: str, there: bool, backend: str
) -> None:
    machine(cuda=2 * there)
    used: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    monkeypatch.setattr(distributed, "rendezvous", lambda *_, **__: iter([(torch.distributed.HashStore(), 1, 2)]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda name, **_: used.append(name))
    distributed._join(distributed.World(rank=1, size=2, local_rank=1), device)
    assert used == ([1, backend] if "nccl" in backend else [backend])
