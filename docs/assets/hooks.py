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
EXAMPLE = re.compile(r"^\[(examples/\w+\.(?:py|sh|yaml))\]\(\.\./\1\)$", flags=re.MULTILINE)
PATH = re.compile(r"\[([\w./-]+\.md)\]\(\1\)")
MOVED = {"../examples/automix_tour.ipynb": "examples/automix_tour.ipynb", "../CONTRIBUTING.md": "contributing.md"}


def on_config(config: Any) -> Any:
    """Add a page for every method to the navigation, AutoMix first."""
    (reference,) = [shelf["Reference"] for shelf in config.nav if "Reference" in shelf]
    (section,) = [item["Methods"] for item in reference if isinstance(item, dict) and "Methods" in item]
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


def listed(module: str) -> list[str]:
    """The names in a module's ``__all__``; none if it has no such list."""
    for node in ast.parse(module_file(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def defined(module: str) -> list[str]:
    """The public functions and classes of a module."""
    body = ast.parse(module_file(module).read_text(encoding="utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_")]


def entry(path: str, level: int, members: bool = True) -> str:
    options = [f"heading_level: {level}", *([] if members else ["members: false"])]
    return f"::: {path}\n    options:\n" + "\n".join(f"      {option}" for option in options)


def reference(module: str) -> str:
    """The module's docstring and its exported names, then those of the modules in it that export others."""
    shown = listed(module)
    parts = [about(module), *(entry(f"{module}.{name}", 2) for name in shown)]
    children = [] if module == "automix.methods" else modules_in(module)  # {{ methods }} has those
    for child in (f"{module}.{name}" for name in children):
        if others := [name for name in listed(child) if name not in shown]:
            parts += [f"## {child}", about(child), *(entry(f"{child}.{name}", 3) for name in others)]
    return "\n\n".join(parts)


def about(module: str) -> str:
    return ast.get_docstring(ast.parse(module_file(module).read_text(encoding="utf-8"))) or ""


def modules_in(package: str) -> list[str]:
    paths = module_file(package).parent.iterdir()
    names = [path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()]
    return sorted(name for name in names if not name.startswith("_"))


def methods() -> list[str]:
    """The methods by the names of their files, as `automix.methods()` finds them."""
    return modules_in("automix.methods")


def method_reference(name: str) -> str:
    """A method's function, its transform and its `create_task`; of a package, the exported names."""
    module = f"automix.methods.{name}"
    if shown := listed(module):
        return "\n\n".join([f"## {name}", *(entry(f"{module}.{found}", 3) for found in shown)])
    shown = [found for found in defined(module) if found == "create_task" or as_method(found) == as_method(name)]
    return "\n\n".join([f"## {name}", *(entry(f"{module}.{found}", 3, members=False) for found in shown)])


def as_method(name: str) -> str:
    return name.lower().replace("_", "")


def public_names() -> str:
    """A table of `automix.__all__`: name, with a link to where its room documents it, and its first line."""
    package = griffe.load("automix", search_paths=[ROOT / "src"], resolve_aliases=True)
    lines = ["| name | |", "| --- | --- |"]
    for name in listed("automix"):
        item = package[name]
        if item.is_module and name in item.members:  # `automix.methods`, which can be called
            item = item[name]
        target = item.final_target if isinstance(item, griffe.Alias) else item
        about = target.docstring.value.splitlines()[0] if target.docstring else ""
        room = target.path.split(".")[1]
        if target.is_module:
            link = f"[`automix.{name}`]({room}.md)"
        elif room == "methods" or name in listed(f"automix.{room}"):
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
    language = {".py": "python", ".sh": "bash", ".yaml": "yaml"}[Path(path).suffix]
    return f'??? example "{path}"\n\n    ```{language}\n{code}\n    ```'


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
