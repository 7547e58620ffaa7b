"""The page in Gradio: two pickers, a slider for lam, and two tabs, for one method and for all of them.

Only server.py imports this file, because importing Gradio takes seconds.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

import gradio as gr

from automix.views.explorer import render
from automix.views.explorer.explorer import Explorer
from automix.views.explorer.pair import Picture
from automix.views.explorer.uploads import take_upload

Chosen = tuple[int | Picture, int | Picture]  # examples by number, uploads as pictures

DELETE_UPLOADS = (600, 3600)  # every 600 s, remove uploads that are older than 3600 s and were never read
ONE, ALL = "one", "all"
ON_CLICK = """element.addEventListener('click', (event) => {
  const button = event.target.closest('[data-number]');
  if (button) trigger('select', {number: Number(button.dataset.number)});
});"""


def build_page(explorer: Explorer, uploads: Path) -> gr.Blocks:
    """Build the page; Gradio stores uploads in the folder `uploads`."""
    start: Chosen = explorer.first_pair()
    with gr.Blocks(
        title="automix explore", fill_width=True, analytics_enabled=False, delete_cache=DELETE_UPLOADS
    ) as page:
        chosen, tab = gr.State(start), gr.State(ONE)
        gr.HTML(render.heading(explorer), elem_classes="am", apply_default_css=False, js_on_load=None)
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                sides = [_side(explorer, side, start) for side in (0, 1)]
            with gr.Column(scale=9, min_width=320):
                with gr.Group(elem_id="am-lam"):
                    lam = gr.Slider(0, 1, 0.5, step=0.01, label="λ: the share of the first image", buttons=[])
                with gr.Tabs():
                    with gr.Tab("One method", id=ONE) as first:
                        method = gr.Dropdown(explorer.methods(), value=explorer.method, label="Method")
                        one = gr.HTML(elem_classes="am", elem_id="am-one", apply_default_css=False, js_on_load=None)
                    with gr.Tab("All methods side by side", id=ALL) as second:
                        every = gr.HTML(elem_classes="am", elem_id="am-all", apply_default_css=False, js_on_load=None)

        def show(chosen: Chosen, lam: float | None, method: str, tab: str) -> tuple[Any, Any]:
            pair = explorer.pair(*(render.find_picture(explorer, which) for which in chosen))
            share = min(max(lam or 0.0, 0.0), 1.0)  # the box is empty while a number is typed
            if tab == ONE:
                return render.one_method(explorer, pair, method, share), gr.skip()
            return gr.skip(), render.all_methods(explorer, pair, share)

        # One event at a time, and of many moves of the slider only the last, so that the picture keeps up.
        quiet: dict[str, Any] = {
            "show_progress": "hidden",
            "api_visibility": "private",
            "concurrency_limit": 1,
            "concurrency_id": "explore",
        }
        inputs, outputs = [chosen, lam, method, tab], [one, every]
        for trigger in (lam.input, method.input):
            trigger(show, inputs, outputs, trigger_mode="always_last", **quiet)
        for this, name in ((first, ONE), (second, ALL)):
            this.select(lambda name=name: name, None, tab, **quiet).then(show, inputs, outputs, **quiet)
        page.load(show, inputs, outputs, **quiet)
        for side, (shown, button) in enumerate(sides):
            pick, take = _handlers(explorer, side, uploads)
            shown.select(pick, chosen, [chosen, shown], **quiet).then(show, inputs, outputs, **quiet)
            taken = button.upload(take, [chosen, button], [chosen, shown], preprocess=False, **quiet)
            taken.then(show, inputs, outputs, **quiet)
    return page


def _side(explorer: Explorer, side: int, chosen: Chosen) -> tuple[gr.HTML, gr.UploadButton]:
    with gr.Group(elem_id=f"am-side-{side}"):
        shown = gr.HTML(
            render.picker(explorer, side, chosen[side]),
            elem_classes="am",
            apply_default_css=False,
            js_on_load=ON_CLICK,
            padding=True,
        )
        button = gr.UploadButton("Upload an image", file_types=["image"], size="sm")
    return shown, button


def _handlers(explorer: Explorer, side: int, uploads: Path) -> tuple[Any, Any]:
    """The handlers for picking an example and for uploading an image, for one side."""

    def put(chosen: Chosen, new: int | Picture, error: str = "") -> tuple[Chosen, str]:
        changed: Chosen = (new, chosen[1]) if side == 0 else (chosen[0], new)
        return changed, render.picker(explorer, side, new, error)

    def pick(chosen: Chosen, event: gr.EventData) -> tuple[Chosen, str]:
        number = event.number
        if not isinstance(number, int) or not 0 <= number < len(explorer.examples):
            return put(chosen, chosen[side])
        return put(chosen, number)

    def take(chosen: Chosen, upload: dict[str, Any] | None) -> tuple[Chosen, str]:
        try:
            return put(chosen, take_upload(explorer, upload, uploads))
        except ValueError as error:
            return put(chosen, chosen[side], str(error))

    return pick, take


def style() -> str:
    """The style sheet."""
    return files("automix.views.explorer").joinpath("style.css").read_text(encoding="utf-8")
