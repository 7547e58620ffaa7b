"""The explorer, `automix explore`: two images, lam under a finger, and what every method and network makes of them.

pair.py mixes and asks the networks, open.py opens what is explored, and neither knows of a page. page.py and views.py
are the page (Gradio), gate.py and serve.py the server that answers this machine and nothing but that page.
"""
