"""The page of a search: what was tried, the winner, and how sure it is."""

from automix.views.tuning.page import render_tuning

__all__ = ["render_tuning"]
