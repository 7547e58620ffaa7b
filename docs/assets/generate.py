"""Write what the docs take from the source: `python docs/assets/generate.py`.

The picture of the rooms, the paper's diagrams, the table of rooms in docs/architecture.md and the table of methods in
docs/methods/README.md.
A test fails while one of them differs from the source.
"""

import ast
import re
from pathlib import Path

from diagrams import DIAGRAMS
from house import ROOT, SOURCE, picture, table

DOCS = ROOT / "docs"
SUMMARY = re.compile(r"(?P<title>[^:(]+?)(?: \((?P<paper>[^)]+)\))?: (?P<about>.+?)(?:\.\s|\.?$)")


def methods_table() -> str:
    """The methods with the first sentence of their modules: ``Title (paper): what is mixed.``"""
    folder = SOURCE / "methods"
    files = [path / "__init__.py" if path.is_dir() else path for path in folder.iterdir() if path.name[0] not in "_."]
    names = {path.parent.name if path.name == "__init__.py" else path.stem: path for path in files}
    rows = [method_row(name, path) for name, path in sorted(names.items())]
    return "\n".join(["| method | what it does | paper |", "| --- | --- | --- |", *rows]) + "\n"


def method_row(name: str, path: Path) -> str:
    paragraph = " ".join(
        (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split()
    )
    first = SUMMARY.match(paragraph)
    if first is None:
        raise ValueError(f"{path}: the docstring must begin with 'Title (paper): what is mixed.', got {paragraph!r}")
    link = f"[`{name}`]({name}.md)" if (DOCS / "methods" / f"{name}.md").exists() else f"`{name}`"
    return f"| {link} | {first['about']} | {first['paper'] or ''} |"


def between(page: str, name: str, text: str) -> str:
    """The page with `text` between its comments ``<!-- name -->`` and ``<!-- end of name -->``."""
    pattern = rf"(?<=<!-- {name} -->\n).*(?=<!-- end of {name} -->)"
    return re.sub(pattern, lambda _: text, page, flags=re.DOTALL)


def generated() -> dict[Path, str]:
    """Every generated file and what should be in it."""
    architecture, methods = DOCS / "architecture.md", DOCS / "methods" / "README.md"
    return {
        DOCS / "pictures" / "house.svg": picture(),
        **{DOCS / "pictures" / f"{name}.svg": draw() for name, draw in DIAGRAMS.items()},
        architecture: between(architecture.read_text(encoding="utf-8"), "rooms", table()),
        methods: between(methods.read_text(encoding="utf-8"), "methods", methods_table()),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
