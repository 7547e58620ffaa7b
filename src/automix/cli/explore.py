"""`automix explore [RUN]`: a page on this machine where one mixes two images and moves lam."""

import warnings

from automix.cli._arguments import new_parser, parse

ABOUT = """A local web page: choose or upload two images, move lam, and see the mask, the mixed image, what student and
teacher see in it and where, and all methods side by side on the same pair.

  automix explore runs/x                              a run: its networks, its Mix Block, its test images
  automix explore best.safetensors --data photos      a classifier's file, on images of a folder
  automix explore resnet50                            a network of timm's, with its pretrained weights
  automix explore resnet50 --untrained                the same with random weights; nothing is downloaded
  automix explore                                     no network: the hand-crafted methods on drawn shapes

The page is for this machine only (127.0.0.1) unless --host says otherwise, and loads nothing from the network. Uploads
are images of up to 10 MB and are removed at once. Ctrl-C stops it.
"""


def run(arguments: list[str]) -> None:
    parser = new_parser("explore", "[RUN] [flags]", ABOUT)
    parser.add_argument(
        "run",
        type=str,
        nargs="?",
        default=None,
        help="a run folder, a classifier's safetensors file, or a network's name",
    )
    parser.add_argument(
        "--data", type=str, default=None, help="examples of a dataset or folder; the run's own if not given"
    )
    parser.add_argument("--data-root", type=str, default=None, help="where named datasets lie")
    parser.add_argument("--weights", type=str, default=None, help="a safetensors file for a network given by name")
    parser.add_argument("--untrained", action="store_true", help="random weights for a network given by name")
    parser.add_argument("--port", type=int, default=7860, help="of the page; 0 takes a free one")
    parser.add_argument("--host", type=str, default="127.0.0.1", help="the address of this machine that answers")
    given = parse(parser, arguments)

    from automix.views.explorer.open import open_explorer
    from automix.views.explorer.serve import bind, check_gradio, is_loopback, serve

    check_gradio()
    with bind(given.host, given.port) as listener:
        if not is_loopback(given.host):
            warnings.warn(
                f"host={given.host}: whoever reaches this machine can use the page and upload images to it; "
                "127.0.0.1 keeps it to this machine",
                stacklevel=2,
            )
        explorer = open_explorer(
            given.run,
            data=given.data,
            data_root=given.data_root,
            weights=given.weights,
            untrained=given.untrained,
        )
        serve(explorer, listener, given.host)
