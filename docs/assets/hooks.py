"""What the site does to the pages before they are built, so that they read well as plain files too.

``{{ source MODULE MixBlock._attend }}`` becomes the code of that name as it stands in src: it cannot
go stale. A link to a file in src becomes one to the module's place in the API, a paragraph that is a link to an example
the example itself, folded, and the notebook a file to download. A link whose text is a path gets the page's title.
"""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
SOURCE = re.compile(r"\{\{ source ([\w.]+) ([\w.]+) \}\}")
LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*src/([\w/]+)\.py\)")
EXAMPLE = re.compile(r"^\[(examples/\w+\.py)\]\(\.\./examples/\w+\.py\)$", flags=re.MULTILINE)
PATH = re.compile(r"\[([\w./-]+\.md)\]\(\1\)")
NOTEBOOK = "examples/automix_tour.ipynb"


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, NOTEBOOK, abs_src_path=str(ROOT / NOTEBOOK)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = Path(page.file.abs_src_path).parent
    markdown = PATH.sub(lambda found: f"[{title_of(folder / found[1])}]({found[1]})", markdown)
    markdown = EXAMPLE.sub(lambda found: folded(found[1]), markdown.replace(f"](../{NOTEBOOK})", f"]({NOTEBOOK})"))
    markdown = LINK.sub(lambda found: f"[{found[1]}][{found[2].replace('/', '.')}]", markdown)
    return SOURCE.sub(lambda found: listing(found[1], found[2]), markdown)


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
