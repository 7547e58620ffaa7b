"""The rooms of the package: imports point downwards only, and no two modules import each other in a circle."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "automix"

ROOMS = (
    "_version",
    "_compat",
    "core",
    "networks",
    "tasks",
    "methods",
    "data",
    "pictures",
    "runs",
    "deploy",
    "training",
    "evaluation",
    "studies",
    "views",
    "integrations",
    "cli",
)
"""From the ground up: a room may import those before it."""

MODULES = {
    ".".join(("automix", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
LOOSE = {"automix", "automix.__main__"}


def imports(module: str, at_runtime: bool = False) -> Iterator[str]:
    """Every module of the package that `module` imports, inside functions and, unless `at_runtime`, for types too."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    if at_runtime:
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def graph(at_runtime: bool = False) -> dict[str, set[str]]:
    return {module: {name for name in imports(module, at_runtime) if name in MODULES} for module in MODULES}


def room(module: str) -> str:
    return module.split(".")[1]


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
