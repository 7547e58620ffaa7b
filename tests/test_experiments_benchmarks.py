"""The benchmarks: every script imports, and the options of their variants are those of the library."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import automix

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_imports_and_says_what_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    assert ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
    load(name)


def variants(name: str) -> list[tuple[str, dict[str, Any]]]:
    found: dict[str, Any] = load(name).VARIANTS
    return [one if isinstance(one, tuple) else ("automix", one) for one in found.values()]


@pytest.mark.parametrize("name", ["automix_cost", "frozen_teacher", "regimes"])
def test_variants_have_valid_options(name: str) -> None:
    model = automix.create_model("resnet18", num_classes=4, image_size=32, layers=(1, 1, 1, 1), channels=(8, 8, 8, 8))
    for method, options in variants(name):
        automix.create_task(method, model, **options)
