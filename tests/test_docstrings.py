"""Every public name has a Google docstring whose Args name each parameter: the API pages are made of them."""

import ast
from pathlib import Path

import griffe
import pytest

SOURCE = Path(__file__).parents[1] / "src"
ROOMS: tuple[str, ...] = (
    "cli",
    "core",
    "data",
    "deploy",
    "evaluation",
    "evaluation.corruptions",
    "integrations",
    "integrations.huggingface",
    "integrations.lightning",
    "integrations.sklearn",
    "integrations.timm",
    "methods",
    "methods.automix",
    "networks",
    "networks.weights",
    "pictures",
    "runs",
    "studies",
    "studies.detection",
    "studies.tuning",
    "tasks",
    "training",
    "views",
    "views.explorer",
    "views.report",
    "views.tuning",
)
"""The rooms whose exported names (`__all__`) are complete."""

METHODS = sorted(f"methods.{path.stem}" for path in (SOURCE / "automix/methods").glob("[!_]*.py"))

PACKAGE = griffe.load("automix", search_paths=[SOURCE], docstring_parser="google", resolve_aliases=True)


def resolve(item: griffe.Object | griffe.Alias) -> griffe.Object:
    return item.final_target if isinstance(item, griffe.Alias) else item


def documented(item: griffe.Object) -> dict[str, set[str]]:
    """The names that each section of a docstring describes, by kind: parameters, returns, attributes."""
    found: dict[str, set[str]] = {}
    for section in item.docstring.parsed if item.docstring else ():
        values = section.value if isinstance(section.value, list) else []
        found[section.kind.value] = {str(getattr(value, "name", "")).lstrip("*") for value in values}
    return found


def missing(item: griffe.Object, path: str) -> list[str]:
    """What the docstring of a function, or of a class and its public methods, does not say."""
    if not item.docstring:
        return [f"{path} has no docstring"]
    if isinstance(item, griffe.Class):
        return missing_in_class(item, path)
    if isinstance(item, griffe.Function):
        return missing_in_function(item, path, item)
    return []


def missing_in_function(function: griffe.Function, path: str, described: griffe.Object) -> list[str]:
    sections = documented(described)
    names = {parameter.name.lstrip("*") for parameter in function.parameters} - {"self", "cls"}
    problems = [f"{path}: Args has no {name}" for name in sorted(names - sections.get("parameters", set()))]
    problems += [f"{path}: Args has {name}, no parameter" for name in sorted(sections.get("parameters", set()) - names)]
    returned = str(function.returns or "None")
    if described is function and returned != "None" and not {"returns", "yields"} & sections.keys():
        problems.append(f"{path}: no Returns")
    return problems


def missing_in_class(cls: griffe.Class, path: str) -> list[str]:
    problems = []
    constructor = cls.members.get("__init__")
    if isinstance(constructor, griffe.Function) and "dataclass" not in cls.labels:
        problems += missing_in_function(constructor, path, cls)
    elif "dataclass" in cls.labels:
        said = documented(cls)
        told = said.get("attributes", set()) | said.get("parameters", set())
        fields = [member for member in cls.attributes.values() if not member.name.startswith("_")]
        problems += [
            f"{path}: field {field.name} is not described"
            for field in fields
            if "instance-attribute" in field.labels and not field.docstring and field.name not in told
        ]
    for name, member in cls.members.items():
        if not name.startswith("_") and isinstance(member, griffe.Function):
            short = not [p for p in member.parameters if p.name not in ("self", "cls")]
            if not member.docstring:
                # a method that overrides one says what that one says
                if not any(name in base.members for base in cls.mro()):
                    problems.append(f"{path}.{name} has no docstring")
            elif not short:
                problems += missing_in_function(member, f"{path}.{name}", member)
    return problems


def exported(module: str) -> list[str]:
    path = SOURCE / Path(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


@pytest.mark.parametrize("room", [*ROOMS, *METHODS])
def test_exported_names_have_complete_docstrings(room: str) -> None:
    names = exported(f"automix.{room}")
    assert names, f"automix.{room} exports nothing"
    problems = [
        problem for name in names for problem in missing(resolve(PACKAGE[f"{room}.{name}"]), f"automix.{room}.{name}")
    ]
    assert not problems, "\n".join(problems)


def transforms() -> dict[str, griffe.Class]:
    """The transforms that have no constructor of their own, by the module of their method."""
    found = {}
    for module in METHODS:
        for name in exported(f"automix.{module}"):
            item = resolve(PACKAGE[f"{module}.{name}"])
            if (
                isinstance(item, griffe.Class)
                and "MixTransform" in map(str, item.bases)
                and "__init__" not in item.members
            ):
                found[module] = item
    return found


@pytest.mark.parametrize("module", transforms())
def test_transforms_describe_their_own_and_their_methods_options(module: str) -> None:
    function = PACKAGE[f"{module}.{module.rpartition('.')[2]}"]
    options = {parameter.name for parameter in function.parameters} - {"x", "y", "lam", "index", "objects"}
    assert documented(transforms()[module])["parameters"] == options | {"num_classes", "label_smoothing", "prob"}


@pytest.mark.parametrize("room", ROOMS)
def test_exported_names_do_not_hide_modules(room: str) -> None:
    """A function named like its module would hide it: ``import automix.room.name as module`` gave the function."""
    path = SOURCE / "automix" / Path(*room.split("."))
    modules = {file.stem for file in path.glob("*") if file.suffix == ".py" or file.is_dir()}
    shared = modules & set(exported(f"automix.{room}"))
    assert not [name for name in shared if not resolve(PACKAGE[f"{room}.{name}"]).is_module]


def test_the_check_can_fail() -> None:
    module = griffe.visit(
        "m", filepath=Path("m.py"), code='def f(a: int) -> int:\n    """Do."""\n', docstring_parser="google"
    )
    assert missing(module["f"], "m.f") == ["m.f: Args has no a", "m.f: no Returns"]
