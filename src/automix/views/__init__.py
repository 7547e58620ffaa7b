"""What people look at: the HTML report of runs, and the explorer, a local web page that mixes two images.

Both render Jinja2 templates, with every value escaped (html.py).
"""

from automix.views.explorer.open import open_explorer
from automix.views.html import render_template
from automix.views.report.page import render_report

__all__ = ["open_explorer", "render_report", "render_template"]
