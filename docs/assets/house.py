"""The rooms of the package: the imports between them, a table and a picture.

All of it comes from the source: the imports are read from the syntax trees, the sentence about a room from the
docstring of its ``__init__.py``. `generate.py` writes table and picture.
"""

import ast
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "automix"

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
    for path in sorted(SOURCE.rglob("*.py"))
}
LOOSE = {"automix", "automix.__main__"}
DRAWN = tuple(room for room in ROOMS if not room.startswith("_"))


# --- what the source says --------------------------------------------------------------------------------------------


def imports(module: str, at_runtime: bool = False) -> Iterator[str]:
    """Every module that `module` imports, inside functions and, unless `at_runtime`, for type checkers too."""
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
    """The modules of the package that each module imports."""
    return {module: {name for name in imports(module, at_runtime) if name in MODULES} for module in MODULES}


def room(module: str) -> str:
    return module.split(".")[1]


def imports_between_rooms() -> dict[tuple[str, str], int]:
    """How many pairs of modules import each other, by (importing room, imported room)."""
    pairs = Counter(
        (room(module), room(other))
        for module, others in graph().items()
        for other in others
        if not {module, other} & LOOSE
    )
    return {pair: count for pair, count in sorted(pairs.items()) if pair[0] != pair[1] and set(pair) <= set(DRAWN)}


def purpose(name: str) -> str:
    """The first sentence of a room's docstring."""
    docstring = ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", paragraph, maxsplit=1)[0]


# --- the table -------------------------------------------------------------------------------------------------------


def table() -> str:
    """The rooms from the roof to the ground, as a Markdown table."""
    rows = [f"| `{name}` | {purpose(name)} |" for name in reversed(ROOMS) if (SOURCE / name).is_dir()]
    return "\n".join(["| room | what it is for |", "| --- | --- |", *rows]) + "\n"


# --- the picture -----------------------------------------------------------------------------------------------------

WIDTH, LEFT, TOP = 1000, 8, 8
BOX, HEIGHT, GAP = 560, 50, 12
REACH = 1.28 * (WIDTH - LEFT - BOX - 24) / (len(DRAWN) - 1)  # by which an arc bends, a floor
STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #fff; }
    .name { font-size: 17px; font-weight: 600; }
    .about { font-size: 13px; fill: #f3f4fa; }
    .arc { fill: none; stroke-opacity: 0.7; }
"""
COLORS = {  # of a box, and of the arrows to it
    ("core", "networks"): ("#00727c", "#26a69a"),
    ("tasks", "methods"): ("#3f51b5", "#7986cb"),
    ("data", "pictures", "runs", "deploy"): ("#2f7034", "#66a86a"),
    ("training", "evaluation", "studies"): ("#96480a", "#dd8a3e"),
    ("views", "integrations", "cli"): ("#8a3563", "#c56d9b"),
}


def colors(name: str) -> tuple[str, str]:
    return next(pair for names, pair in COLORS.items() if name in names)


def floor(name: str) -> float:
    """The top of a room's box; the ground floor lies at the bottom."""
    return TOP + (len(DRAWN) - 1 - DRAWN.index(name)) * (HEIGHT + GAP)


def port(name: str, others: list[str], other: str, start: float) -> float:
    """Where on the right edge the arc to `other` begins or ends: the arcs of one box do not cross."""
    return floor(name) + start + (others.index(other) + 0.5) / len(others) * (HEIGHT / 2 - 5)


def arc(high: str, low: str, counts: dict[tuple[str, str], int]) -> str:
    """The arrow from a room to one it imports, wider for more imports.

    There are three widths, for up to 4, up to 40 and more imports, so that the picture changes only with the structure.
    """
    outgoing = [name for name in DRAWN if (high, name) in counts]  # the far ones leave at the top
    incoming = [name for name in DRAWN if (name, low) in counts]  # and arrive at the bottom
    first, last = port(high, outgoing, low, HEIGHT / 2), port(low, incoming, high, 5)
    edge, bend = LEFT + BOX, LEFT + BOX + 30 + REACH * (DRAWN.index(high) - DRAWN.index(low))
    color = colors(low)[1]
    width = next(width for most, width in ((4, 2.0), (40, 6.0), (math.inf, 13.0)) if counts[high, low] <= most)
    head = 4 + width
    path = f"M{edge},{first:.1f} C{bend:.1f},{first:.1f} {bend:.1f},{last:.1f} {edge + head:.1f},{last:.1f}"
    back, half = edge + head + 2, head * 0.6
    tip = f"{edge + 1},{last:.1f} {back:.1f},{last - half:.1f} {back:.1f},{last + half:.1f}"
    title = f"<title>{high} imports {low}</title>"
    return (
        f'  <g data-from="{high}" data-to="{low}">{title}'
        f'<path class="arc" stroke="{color}" stroke-width="{width:.1f}" d="{path}"/>'
        f'<polygon fill="{color}" points="{tip}"/></g>'
    )


def box(name: str) -> str:
    top, color = floor(name), colors(name)[0]
    lines = textwrap.wrap(purpose(name).replace("`", ""), 58)[:2]
    first = top + HEIGHT / 2 + (4 if len(lines) == 1 else -4)
    about = "".join(
        f'<text class="about" x="{LEFT + 150}" y="{first + 16 * number:.0f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'  <g><rect x="{LEFT}" y="{top:.0f}" width="{BOX}" height="{HEIGHT}" rx="6" fill="{color}"/>'
        f'<text class="name" x="{LEFT + 16}" y="{top + HEIGHT / 2 + 5:.0f}">{name}</text>{about}</g>'
    )


def picture() -> str:
    """The house as an SVG that reads on light and dark pages: text stands on the boxes, the background is clear."""
    counts = imports_between_rooms()
    height = 2 * TOP + len(DRAWN) * (HEIGHT + GAP) - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "  <title>The rooms of automix, the ground floor at the bottom, and the imports between them</title>",
        f"  <style>{STYLE}  </style>",
        *(arc(high, low, counts) for high, low in sorted(counts, key=lambda pair: counts[pair], reverse=True)),
        *(box(name) for name in reversed(DRAWN)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
