"""Services that keep the numbers of runs, against stand-ins that note every call."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from automix.training import train


class Recorder(types.ModuleType):
    """A module each of whose functions notes its call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.__spec__ = types.SimpleNamespace(name=name)  # type: ignore[assignment]  # find_spec looks for one

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **keywords: Any) -> "Recorder":
            self.calls.append((name, args, keywords))
            return self

        return call


def test_a_run_is_logged_to_wandb_and_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = {name: Recorder(name) for name in ("wandb", "mlflow")}
    for name, module in services.items():
        monkeypatch.setitem(sys.modules, name, module)
    small: dict[str, Any] = {"classes": 2, "per_class": 20, "epochs": 1, "batch_size": 20, "train_size": 16}
    run = tmp_path / "one"
    train("shapes", method="vanilla", model="wrn_10_1", out=str(run), wandb=True, mlflow=True, **small)

    wandb, mlflow = (services[name].calls for name in ("wandb", "mlflow"))
    assert [name for name, *_ in mlflow[:3]] == ["set_experiment", "start_run", "log_params"]
    assert mlflow[0][1] == ("automix",)
    assert mlflow[1][2] == {"run_name": "one"}
    assert mlflow[2][1][0]["batch_size"] == 20
    assert mlflow[-1] == ("end_run", (), {})
    assert wandb[0][0] == "init"
    assert wandb[0][2]["name"] == "one"
    assert wandb[-1] == ("finish", (), {})
    logged = [(args, keywords) for name, args, keywords in mlflow if name == "log_metrics"]
    assert logged == [(args, keywords) for name, args, keywords in wandb if name == "log"]
    assert any("epoch/student_top1" in args[0] for args, _ in logged)
    assert logged[-1][1] == {"step": 2}
