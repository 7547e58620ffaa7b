"""HTML and SVG out of Python in which nothing can be forgotten: text is escaped unless it is markup already.

element("p", "1 < 2 ", element("b", name), class_="note")  ->  <p class="note">1 &lt; 2 <b>...</b></p>
"""

import html
from collections.abc import Sequence

VOID = {"img", "input", "meta"}  # elements of HTML that have no end


class Markup(str):
    """Text that is HTML. Whoever makes one by hand answers for it."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element with `children`. Attributes: `class_` is class, `stroke_width` stroke-width; None and False: none."""
    start = "".join(_attribute(key, value) for key, value in attributes.items() if _is_given(value))
    if name in VOID:
        return Markup(f"<{name}{start}>")
    return Markup(f"<{name}{start}>{join(children)}</{name}>")


def join(parts: Sequence[str], between: str = "") -> Markup:
    """The parts one after the other, as markup."""
    return Markup(between.join(escape(part) for part in parts))


def escape(text: str) -> Markup:
    """Text as markup; what a file may hold and no HTML page can (a NUL, half of a surrogate pair) becomes U+FFFD."""
    if isinstance(text, Markup):
        return text
    return Markup(
        html.escape("".join(letter if _is_allowed(letter) else "\N{REPLACEMENT CHARACTER}" for letter in text))
    )


def _is_given(value: object) -> bool:
    return value is not None and value is not False  # 0 is


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _is_allowed(letter: str) -> bool:
    return letter in "\n\t" or not (letter < " " or "\x7f" <= letter <= "\x9f" or "\ud800" <= letter <= "\udfff")
