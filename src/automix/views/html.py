"""HTML from Jinja2 templates in which every value is escaped.

Each view keeps its templates in a folder `templates` beside its code.
"""

import functools
import re

import jinja2
from markupsafe import Markup

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # characters that no HTML page may contain


def render_template(package: str, name: str, **values: object) -> Markup:
    """Fill in a template.

    Args:
        package: The package whose folder `templates` holds the template, such as ``automix.views.report``.
        name: File name of the template.
        **values: What the template refers to. A name that is missing is an error.

    Returns:
        The HTML. Control characters and halves of surrogate pairs, which HTML cannot contain, are replaced by U+FFFD.
    """
    text = _environment(package).get_template(name).render(values)
    return Markup(FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


@functools.cache
def _environment(package: str) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
