"""The paper's diagrams, redrawn: Figure 2 (offline mixup and AutoMix), 5 (the five steps) and 11 (the networks).

Boxes with text in them and arrows between them, on a clear background, so that they read on light and dark pages.
`generate.py` writes them into docs/pictures/.
"""

# ruff: noqa: RUF001 (mathematical symbols are meant)

import re
from html import escape

DATA, ACTIVE, FROZEN, BLOCK, LOSS = "#4b5468", "#3f51b5", "#2f7034", "#96480a", "#8a3563"  # of boxes
FLOW, TO_STUDENT, TO_BLOCK, AVERAGE = "#8a8f9c", "#7986cb", "#dd8a3e", "#66a86a"  # of arrows
HEIGHT = 50  # of a box
STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
    .name { font-size: 15px; font-weight: 600; fill: #fff; text-anchor: middle; }
    .about { font-size: 12px; fill: #f3f4fa; text-anchor: middle; }
    .title { font-size: 17px; font-weight: 600; fill: #7c8190; }
    .note { font-size: 13px; fill: #7c8190; }
    .arrow { fill: none; stroke-width: 2.5; }
    .gradient { stroke-dasharray: 7 5; }
    .stop { stroke-dasharray: 2 5; }
"""

Point = tuple[float, float]


def markup(text: str) -> str:
    """Text with ``_{...}`` set lower and ``^{...}`` set higher."""
    parts = re.split(r"([_^]\{[^}]*\})", text)
    written = []
    for part in parts:
        if part[:2] in ("_{", "^{"):
            down = 4 if part[0] == "_" else -6
            inside = escape(part[2:-1])
            written.append(f'<tspan dy="{down}" font-size="75%">{inside}</tspan><tspan dy="{-down}">\u200b</tspan>')
        else:
            written.append(escape(part))
    return "".join(written)


def box(x: float, y: float, width: float, name: str, about: str = "", color: str = DATA, height: float = HEIGHT) -> str:
    """A box with a name and, below it, a smaller line."""
    middle, center = x + width / 2, y + height / 2
    lines = [f'<text class="name" x="{middle:g}" y="{center + (-2 if about else 5):g}">{markup(name)}</text>']
    if about:
        lines.append(f'<text class="about" x="{middle:g}" y="{center + 15:g}">{markup(about)}</text>')
    rect = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{color}"/>'
    return f"  <g>{rect}{''.join(lines)}</g>"


def arrow(*points: Point, color: str = FLOW, kind: str = "") -> str:
    """A line through points, horizontal and vertical, with a head at its end; `kind` is "gradient" or "stop"."""
    (x0, y0), (x1, y1) = points[-2:]
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    back = (x1 - 9 * dx, y1 - 9 * dy)
    path = " L".join(f"{x:g},{y:g}" for x, y in (*points[:-1], back))
    corners = ((x1, y1), (back[0] - 5 * dy, back[1] + 5 * dx), (back[0] + 5 * dy, back[1] - 5 * dx))
    tip = " ".join(f"{x:g},{y:g}" for x, y in corners)
    style = f"arrow {kind}".strip()
    return f'  <path class="{style}" stroke="{color}" d="M{path}"/><polygon fill="{color}" points="{tip}"/>'


def text(x: float, y: float, words: str, style: str = "note") -> str:
    return f'  <text class="{style}" x="{x:g}" y="{y:g}">{markup(words)}</text>'


def svg(width: int, height: int, title: str, *parts: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return (
        "\n".join([head, f"  <title>{escape(title)}</title>", f"  <style>{STYLE}  </style>", *parts, "</svg>"]) + "\n"
    )


def offline_and_automix() -> str:
    """Figure 2: a fixed policy beside one that is trained with the classifier."""
    left, right = [text(8, 24, "Offline mixup", "title")], [text(528, 24, "AutoMix", "title")]
    for parts, at in ((left, 0), (right, 520)):
        parts += [
            box(at + 8, 50, 120, "x_{i}, x_{j}, λ", "a pair of images"),
            box(at + 370, 50, 110, "x_{mix}", "mixed sample"),
            box(at + 370, 160, 110, "f_{θ}", "classifier", ACTIVE),
            box(at + 180, 160, 140, "ℓ_{MCE}", "loss, Eq. 2", LOSS),
            arrow((at + 128, 75), (at + 180, 75)),
            arrow((at + 320, 75), (at + 370, 75)),
            arrow((at + 425, 100), (at + 425, 160)),
            arrow((at + 370, 185), (at + 320, 185)),
            arrow(
                (at + 250, 210), (at + 250, 240), (at + 425, 240), (at + 425, 210), color=TO_STUDENT, kind="gradient"
            ),
            text(at + 298, 258, "gradient"),
        ]
    left.append(box(180, 50, 140, "h", "fixed policy", DATA))
    right += [
        box(700, 50, 140, "M_{φ}", "Mix Block", BLOCK),
        box(528, 160, 120, "z_{i}, z_{j}", "feature maps", FROZEN),
        arrow((588, 100), (588, 160)),
        arrow((648, 185), (674, 185), (674, 90), (700, 90)),
        arrow((770, 160), (770, 100), color=TO_BLOCK, kind="gradient"),
        text(780, 135, "gradient"),
    ]
    return svg(1008, 268, "Offline mixup has a fixed policy; AutoMix trains it from feature maps", *left, *right)


def five_steps() -> str:
    """Figure 5: the five steps, and the Mix Block from the inside."""
    left = [
        text(8, 24, "Five steps", "title"),
        box(8, 50, 110, "x_{i}, x_{j}, λ", "a pair of images"),
        box(158, 50, 140, "1  encoder k", "teacher, frozen", FROZEN),
        box(348, 50, 130, "2  M_{φ}", "Mix Block", BLOCK),
        box(348, 180, 130, "x_{mix}^{q}", "for the student"),
        box(158, 180, 140, "3  encoder q", "student", ACTIVE),
        box(8, 180, 110, "ℓ_{MCE}^{cls} + ℓ_{CE}", "", LOSS),
        box(348, 300, 130, "x_{mix}^{k}", "for the Mix Block"),
        box(158, 300, 140, "4  encoder k", "teacher, frozen", FROZEN),
        box(8, 300, 110, "ℓ_{MCE}^{gen} + ℓ_{λ}", "", LOSS),
        arrow((118, 75), (158, 75)),
        arrow((298, 75), (348, 75)),
        text(316, 66, "z"),
        arrow((413, 100), (413, 180), kind="stop"),
        text(420, 146, "stop gradient"),
        arrow((348, 205), (298, 205)),
        arrow((158, 205), (118, 205)),
        arrow((478, 88), (512, 88), (512, 325), (478, 325)),
        arrow((348, 325), (298, 325)),
        arrow((158, 325), (118, 325)),
        arrow((63, 230), (63, 258), (228, 258), (228, 230), color=TO_STUDENT, kind="gradient"),
        text(80, 276, "gradient to the student"),
        arrow((63, 350), (63, 380), (534, 380), (534, 66), (478, 66), color=TO_BLOCK, kind="gradient"),
        text(80, 398, "gradient to the Mix Block, through the frozen teacher"),
        arrow((228, 180), (228, 100), color=AVERAGE),
        text(238, 134, "5  momentum,"),
        text(238, 152, "Eq. 12"),
    ]
    right = [
        text(588, 24, "The Mix Block", "title"),
        box(588, 50, 120, "z_{i}, λ", "map and λ"),
        box(748, 50, 240, "z_{j}, 1 − λ", "map and 1 − λ"),
        box(588, 130, 120, "W_{P} z_{i}", "", BLOCK, 40),
        box(748, 130, 110, "W_{P} z_{j}", "", BLOCK, 40),
        box(878, 130, 110, "W_{Z} z_{j}", "", BLOCK, 40),
        box(588, 200, 270, "P", "softmax of the similarities, Eq. 6", BLOCK),
        box(698, 280, 290, "P · W_{Z} z_{j}", "one number for each position, Eq. 5", BLOCK),
        box(698, 360, 130, "σ, then U", "", BLOCK, 40),
        box(858, 360, 130, "s_{i} = 1 − s_{j}", "", DATA, 40),
        arrow((648, 100), (648, 130)),
        arrow((803, 100), (803, 130)),
        arrow((933, 100), (933, 130)),
        arrow((648, 170), (648, 200)),
        arrow((803, 170), (803, 200)),
        arrow((933, 170), (933, 280)),
        arrow((778, 250), (778, 280)),
        arrow((763, 330), (763, 360)),
        arrow((828, 380), (858, 380)),
    ]
    return svg(1000, 412, "The five steps of AutoMix, and its Mix Block", *left, *right)


def networks() -> str:
    """Figure 11: what is trained, what follows, and where gradients stop."""
    parts = [
        box(8, 110, 80, "x", "images"),
        box(118, 110, 140, "encoder k", "up to layer l", FROZEN),
        box(288, 110, 70, "z", "maps"),
        box(388, 110, 120, "M_{φ}", "Mix Block", ACTIVE),
        box(558, 50, 90, "X_{mix}^{q}", "λ_{q}"),
        box(558, 170, 90, "X_{mix}^{k}", "λ_{k}"),
        box(688, 50, 160, "encoder q", "all layers and head", ACTIVE),
        box(688, 170, 160, "encoder k", "all layers and head", FROZEN),
        box(884, 50, 112, "ℓ_{MCE}^{cls} + ℓ_{CE}", "", LOSS),
        box(884, 170, 112, "ℓ_{MCE}^{gen} + ℓ_{λ}", "", LOSS),
        arrow((88, 135), (118, 135)),
        arrow((258, 135), (288, 135), kind="stop"),
        arrow((358, 135), (388, 135)),
        arrow((508, 125), (533, 125), (533, 75), (558, 75), kind="stop"),
        arrow((508, 145), (533, 145), (533, 195), (558, 195)),
        arrow((648, 75), (688, 75)),
        arrow((648, 195), (688, 195)),
        arrow((848, 75), (884, 75)),
        arrow((848, 195), (884, 195)),
        arrow((48, 110), (48, 22), (768, 22), (768, 50)),
        text(60, 40, "clean images, for ℓ_{CE}"),
        arrow((768, 100), (768, 170), color=AVERAGE),
        text(778, 140, "momentum, Eq. 12"),
        arrow((940, 220), (940, 252), (448, 252), (448, 160), color=TO_BLOCK, kind="gradient"),
        text(460, 270, "gradient to the Mix Block"),
        box(8, 296, 26, "", "", ACTIVE, 18),
        text(42, 310, "updated by back-propagation"),
        box(258, 296, 26, "", "", FROZEN, 18),
        text(292, 310, "follows by momentum; deployed after the training"),
        arrow((640, 305), (676, 305), kind="stop"),
        text(684, 310, "stop gradient"),
        arrow((800, 305), (836, 305), color=TO_BLOCK, kind="gradient"),
        text(844, 310, "gradient"),
    ]
    return svg(1000, 320, "The networks of AutoMix and their updates", *parts)


DIAGRAMS = {"offline-and-automix": offline_and_automix, "five-steps": five_steps, "networks": networks}
"""The diagrams by file name."""
