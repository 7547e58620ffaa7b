"""`automix explore [RUN]`: a page on this machine where one mixes two images and moves lam."""

import warnings

from automix.cli._flags import Integer, Switch


def explore(
    run: str | None = None,
    /,
    *,
    data: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    untrained: Switch = False,
    port: Integer = 7860,
    host: str = "127.0.0.1",
) -> None:
    """Open a local web page: choose or upload two images and move lam.

    The page shows the mask, the mixed image, the predictions of student and
    teacher with their activation maps, and all methods on the same pair.

    For example:
      automix explore runs/x                          a run and its test images
      automix explore best.safetensors --data photos  a file and a folder of images
      automix explore resnet50                        timm's pretrained weights
      automix explore resnet50 --untrained            random weights, no download
      automix explore                                 no network, drawn shapes

    The page is for this machine only (127.0.0.1) unless --host says otherwise,
    and loads nothing from the network. Uploads are images of up to 10 MB and
    are removed at once. Ctrl-C stops it.

    Args:
        run: A run folder, a classifier's safetensors file, or a network's name.
        data: Show images of this dataset or folder; the run's own if not given.
        data_root: The folder of named datasets.
        weights: A file or folder of weights for a network given by name.
        untrained: Use random weights for a network given by name.
        port: The port of the page; 0 takes a free one.
        host: The address of this machine to listen on.
    """
    from automix.views.explorer.open import open_explorer
    from automix.views.explorer.server import bind, check_gradio, is_loopback, serve

    check_gradio()
    with bind(host, port) as listener:
        if not is_loopback(host):
            warnings.warn(
                f"host={host}: whoever reaches this machine can use the page and upload images to it; "
                "127.0.0.1 keeps it to this machine",
                stacklevel=2,
            )
        explorer = open_explorer(run, data=data, data_root=data_root, weights=weights, untrained=untrained)
        serve(explorer, listener, host)
