"""The page of `automix tune`: one HTML file with the style and the charts of the report."""

import base64
import hashlib
from importlib.resources import files

from markupsafe import Markup

from automix.studies.tuning import TuneRecord
from automix.views.html import render_template
from automix.views.report.chart import lay_out_chart
from automix.views.report.series import Series, series_style

REPORT = "automix.views.report"


def render_tuning(record: TuneRecord) -> str:
    """Render an HTML page on a search.

    Args:
        record: The record of the search.

    Returns:
        The page. It needs no other file, no network and no script.
    """
    style = files(REPORT).joinpath("style.css").read_text(encoding="utf-8")
    tried = [one for one in record.ranking if one.scores]
    titles = list(dict.fromkeys(one.title for one in sorted(tried, key=lambda one: one.number)))
    series = [Series(one.label, sorted(one.scores.items()), titles.index(one.title)) for one in tried]
    chart = lay_out_chart(series, "Accuracy on held-out images, %", unit="epoch") if series else None
    winner = next((one for one in record.configurations if one.number == record.winner), None)
    return str(
        render_template(
            "automix.views.tuning",
            "page.html.jinja",
            style=Markup(style),
            hash=f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'",
            record=record,
            winner=winner,
            lines=record.conclusions(),
            chart=render_template(REPORT, "chart.svg.jinja", chart=chart) if chart else "",
            legend=[(title, series_style(number)) for number, title in enumerate(titles)],
            style_of={one.number: series_style(titles.index(one.title)) for one in tried},
            tried=tried,
        )
    )
