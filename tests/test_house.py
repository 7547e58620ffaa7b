"""The rooms of the package: imports point downwards only, and no two modules import each other in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from house import LOOSE, MODULES, ROOMS, SOURCE, graph, room

ROOT = Path(__file__).parents[1]


def test_every_module_lives_in_a_room() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "__main__", "_version"}
    assert {room(module) for module in MODULES.keys() - LOOSE} == set(ROOMS)


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_import_only_what_is_below_them(name: str) -> None:
    for module, found in graph().items():
        if module not in LOOSE and room(module) == name:
            above = {other for other in found if other in LOOSE or ROOMS.index(room(other)) > ROOMS.index(name)}
            assert not above, f"{module} imports {above}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(graph(at_runtime=True)).prepare()


def test_every_room_says_what_it_is() -> None:
    for name in ROOMS:
        if (SOURCE / name).is_dir():
            assert ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text())), f"{name}/__init__.py"


def test_git_ignores_no_module() -> None:
    """A pattern such as ``runs/`` in .gitignore would leave a room out of the repository."""
    patterns = [line.strip() for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()]
    folders = {part for path in MODULES.values() for part in path.relative_to(ROOT).parts[:-1]}
    assert not folders & {pattern.rstrip("/") for pattern in patterns if not pattern.startswith("/")}
