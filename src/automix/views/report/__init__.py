"""One HTML page on one or more runs, to look at and to share.

The modules here compute what stands on the page; the files in `templates` are the page.
"""

from automix.views.report.page import render_report

__all__ = ["render_report"]
