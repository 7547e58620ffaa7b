"""The explorer, `automix explore`: a local web page that mixes two images by every method at any lam.

The explorer itself knows of no page; page.py and render.py build the page (Gradio), gate.py and server.py serve it.
"""

from automix.views.explorer.explorer import Explorer
from automix.views.explorer.open import open_explorer
from automix.views.explorer.pair import Classification, MixedImage, Pair, Picture
from automix.views.explorer.server import serve

__all__ = ["Classification", "Explorer", "MixedImage", "Pair", "Picture", "open_explorer", "serve"]
