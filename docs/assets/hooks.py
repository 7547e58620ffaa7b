"""Changes to the pages before the site is built; as plain files they read well without them.

- ``{{ source MODULE MixBlock._attend }}`` becomes the code of that name as it stands in src.
- ``{{ api MODULE }}`` becomes the documentation of every name in the module's ``__all__``, ``{{ methods }}`` that of
  every method, and ``{{ public }}`` a table of what ``import automix`` gives. None of them can go stale.
- A paragraph that is a link to an example becomes the example itself, folded.
- The notebook and CONTRIBUTING.md become files of the site, and every method's page stands in the navigation.
- A link whose text is a path gets the page's title.
"""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
SOURCE = re.compile(r"\{\{ source ([\w.]+) ([\w.]+) \}\}")
API = re.compile(r"\{\{ api ([\w.]+) \}\}")
EXAMPLE = re.compile(r"^\[(examples/\w+\.py)\]\(\.\./examples/\w+\.py\)$", flags=re.MULTILINE)
PATH = re.compile(r"\[([\w./-]+\.md)\]\(\1\)")
MOVED = {"../examples/automix_tour.ipynb": "examples/automix_tour.ipynb", "../CONTRIBUTING.md": "contributing.md"}


def on_config(config: Any) -> Any:
    """Add a page for every method to the navigation, AutoMix first."""
    (section,) = [item["Methods"] for item in config.nav if "Methods" in item]
    pages = [f"methods/{name}.md" for name in sorted(methods(), key=lambda name: (name != "automix", name))]
    section += [page for page in pages if (ROOT / "docs" / page).exists()]
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, target in MOVED.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / "docs" / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = Path(page.file.abs_src_path).resolve().parent
    for source, target in MOVED.items():
        markdown = markdown.replace(f"]({source})", f"]({target})")
    if folder == ROOT:  # CONTRIBUTING.md, whose links start at the root
        markdown = markdown.replace("](docs/", "](")
    markdown = PATH.sub(lambda found: f"[{title_of(folder / found[1])}]({found[1]})", markdown)
    markdown = EXAMPLE.sub(lambda found: folded(found[1]), markdown)
    markdown = API.sub(lambda found: reference(found[1]), markdown)
    if "{{ methods }}" in markdown:
        markdown = markdown.replace("{{ methods }}", "\n\n".join(method_reference(name) for name in methods()))
    if "{{ public }}" in markdown:
        markdown = markdown.replace("{{ public }}", public_names())
    return SOURCE.sub(lambda found: listing(found[1], found[2]), markdown)


# --- the API ---------------------------------------------------------------------------------------------------------


def module_file(module: str) -> Path:
    path = ROOT / "src" / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def exported(module: str) -> list[str]:
    """The names in a module's ``__all__``; without one, its public functions and classes."""
    tree = ast.parse(module_file(module).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in defined if not name.startswith("_")]


def entry(path: str, level: int, members: bool = True) -> str:
    options = [f"heading_level: {level}", *([] if members else ["members: false"])]
    return f"::: {path}\n    options:\n" + "\n".join(f"      {option}" for option in options)


def reference(module: str) -> str:
    """The module's docstring, then every exported name."""
    about = ast.get_docstring(ast.parse(module_file(module).read_text(encoding="utf-8"))) or ""
    return "\n\n".join([about, *(entry(f"{module}.{name}", 2) for name in exported(module))])


def methods() -> list[str]:
    """The methods by the names of their files, as `automix.methods()` finds them."""
    folder = ROOT / "src" / "automix" / "methods"
    files = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return sorted(path.stem for path in files if not path.stem.startswith("_"))


def method_reference(name: str) -> str:
    """A method's function, its transform and its `create_task`; of a package, the exported names."""
    module = f"automix.methods.{name}"
    shown = exported(module)
    if not module_file(module).name.startswith("__init__"):
        shown = [found for found in shown if found in (name, "create_task") or as_method(found) == as_method(name)]
    is_transform = {found: found != found.lower() and as_method(found) == as_method(name) for found in shown}
    alone = len(shown) > 3  # the names of a package are no transforms
    entries = [entry(f"{module}.{found}", 3, members=alone or not is_transform[found]) for found in shown]
    return "\n\n".join([f"## {name}", *entries])


def as_method(name: str) -> str:
    return name.lower().replace("_", "")


def public_names() -> str:
    """A table of `automix.__all__`: name, with a link to where its room documents it, and its first line."""
    package = griffe.load("automix", search_paths=[ROOT / "src"], resolve_aliases=True)
    lines = ["| name | |", "| --- | --- |"]
    for name in exported("automix"):
        item = package[name]
        if item.is_module and name in item.members:  # `automix.methods`, which can be called
            item = item[name]
        target = item.final_target if isinstance(item, griffe.Alias) else item
        about = target.docstring.value.splitlines()[0] if target.docstring else ""
        room = target.path.split(".")[1]
        if target.is_module:
            link = f"[`automix.{name}`]({room}.md)"
        elif room == "methods" or name in exported(f"automix.{room}"):
            link = f"[`automix.{name}`][{target.path}]"
        else:
            link = f"`automix.{name}`"
        lines.append(f"| {link} | {about} |")
    return "\n".join(lines)


# --- code ------------------------------------------------------------------------------------------------------------


def listing(module: str, name: str) -> str:
    path = f"src/{module.replace('.', '/')}.py"
    return f'```python title="{path}"\n{read_code((ROOT / path).read_text(), name)}\n```'


def title_of(path: Path) -> str:
    return next(line[2:] for line in path.read_text().splitlines() if line.startswith("# "))


def folded(path: str) -> str:
    code = textwrap.indent((ROOT / path).read_text().strip(), "    ")
    return f'??? example "{path}"\n\n    ```python\n{code}\n    ```'


def read_code(text: str, name: str) -> str:
    """The function or class `name`, ``Class.method`` for a method, without its docstring."""
    node: Any = ast.parse(text)
    for part in name.split("."):
        found = [child for child in node.body if getattr(child, "name", None) == part]
        if not found:
            raise KeyError(f"{name}: no {part!r} in the source that the page asks for")
        node = found[0]
    lines = text.splitlines()
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    kept = lines[first : node.end_lineno]
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        del kept[docstring.lineno - 1 - first : docstring.end_lineno - first]
    return textwrap.dedent("\n".join(kept))
