"""The parts of the page as HTML. Every picture is a data URI, so that no file is written and none is served."""

import base64
import io
from dataclasses import dataclass

import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from automix.evaluation.tiles import overlay_maps, to_tile_size
from automix.pictures.grid import to_image
from automix.views.explorer.explorer import Explorer
from automix.views.explorer.pair import Classification, MixedImage, Pair, Picture
from automix.views.html import render_template

PACKAGE = "automix.views.explorer"
SMALL = 64  # px: the pixels of images up to this size are shown as squares
THUMBNAIL = 72  # px
SIDES = ("first", "second")


@dataclass(frozen=True)
class InlineImage:
    """An image as a data URI."""

    uri: str
    alt: str
    pixelated: bool


@dataclass(frozen=True)
class Bar:
    """A class with its probability; `in_pair` if it is a class of one of the two images."""

    name: str
    probability: float
    in_pair: bool


def heading(explorer: Explorer) -> str:
    """What is open, and notes about it."""
    facts: list[str] = []
    if explorer.networks:
        facts = [f"{explorer.card.model}, {len(explorer.classes)} classes", " and ".join(explorer.networks)]
        if explorer.task is not None:
            facts.insert(0, f"trained with {explorer.method}")
    line = " · ".join([explorer.name, *facts])
    return _render("heading.html.jinja", line=line, notes=explorer.notes)


def picker(explorer: Explorer, side: int, chosen: int | Picture, error: str = "") -> str:
    """The image chosen for `side` (0 or 1), the examples to choose from, and the error of an upload."""
    picture = find_picture(explorer, chosen)
    names = [f"{one.caption} as {SIDES[side]} image" for one in explorer.examples]
    thumbnails = [_inline(_shrink(one.pixels), name) for one, name in zip(explorer.examples, names, strict=True)]
    return _render(
        "picker.html.jinja",
        side=SIDES[side],
        weight=("λ", "1 - λ")[side],
        caption=picture.caption,
        image=_inline(picture.pixels, f"{SIDES[side]} image: {picture.caption}"),
        thumbnails=thumbnails,
        chosen=chosen,
        error=error,
    )


def find_picture(explorer: Explorer, chosen: int | Picture) -> Picture:
    """The example of that number, or the upload itself."""
    return explorer.examples[chosen] if isinstance(chosen, int) else chosen


def one_method(explorer: Explorer, pair: Pair, method: str, lam: float) -> str:
    """The mask, the mixed image, and the predictions of each network with their class activation maps."""
    mixed = explorer.mix(pair, method, lam)
    if isinstance(mixed, str):
        return _render("cannot_mix.html.jinja", method=method, reason=mixed)
    results = explorer.classify(mixed)
    return _render(
        "one_method.html.jinja",
        mixed=mixed,
        mask_mean=float(mixed.mask.mean()),
        mask=_inline(mixed.mask, "mask"),
        image=_inline(mixed.pixels, "mixed image"),
        class_names=[_class_name(explorer, pair, side) for side in (0, 1)],
        networks=[(result, _bars(explorer, pair, result), _map_images(explorer, mixed, result)) for result in results],
    )


def all_methods(explorer: Explorer, pair: Pair, lam: float) -> str:
    """The mixed image of every method, its mask and the top-2 classes; one line for each method that cannot mix."""
    outcomes = explorer.mix_all(pair, lam)
    mixed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, MixedImage)}
    results = explorer.classify_batch(list(mixed.values()))
    bars = [_bars(explorer, pair, result) for result in results] or [[] for _ in mixed]
    cards = [
        (name, one, _inline(one.pixels, f"mixed by {name}"), _inline(one.mask, f"mask of {name}"), its_bars)
        for (name, one), its_bars in zip(mixed.items(), bars, strict=True)
    ]
    reasons = {name: why.removeprefix(f"{name} ") for name, why in outcomes.items() if isinstance(why, str)}
    return _render("all_methods.html.jinja", cards=cards, reasons=reasons)


def _render(name: str, **values: object) -> str:
    return str(render_template(PACKAGE, name, **values))


def _class_name(explorer: Explorer, pair: Pair, side: int) -> str:
    """The name in the label: the class, or the caption of an image whose class is not known."""
    picture = pair.pictures[side]
    return explorer.classes[int(pair.y[side])] if picture.label is not None else picture.caption


def _bars(explorer: Explorer, pair: Pair, result: Classification) -> list[Bar]:
    shown = pair.y.tolist()
    pairs = zip(result.classes, result.probabilities, strict=True)
    return [Bar(explorer.classes[label], probability, label in shown) for label, probability in pairs]


def _map_images(explorer: Explorer, mixed: MixedImage, result: Classification) -> list[InlineImage]:
    """The class activation maps over the mixed image; none where the network has none."""
    if result.maps is None:
        return []
    pixels, _ = to_tile_size(mixed.pixels.unsqueeze(0))
    overlays = overlay_maps(pixels.expand(len(result.maps), -1, -1, -1), result.maps)
    names = [explorer.classes[label] for label in result.classes]
    return [
        _encode(to_image(overlay), f"class activation map of the {result.network} for {name}", smooth=True)
        for overlay, name in zip(overlays, names, strict=True)
    ]


def _shrink(pixels: Tensor) -> Tensor:
    if pixels.shape[-1] <= THUMBNAIL:
        return pixels
    size = (THUMBNAIL, THUMBNAIL)
    return F.interpolate(pixels.unsqueeze(0) / 255, size=size, mode="bilinear", antialias=True)[0].clamp(0, 1)


def _inline(pixels: Tensor, alt: str) -> InlineImage:
    """An image (3 or 1, H, W), uint8 or in [0, 1]; small ones are stored without loss and shown as squares."""
    return _encode(to_image(pixels), alt, smooth=pixels.shape[-1] > SMALL)


def _encode(image: Image.Image, alt: str, smooth: bool) -> InlineImage:
    file = io.BytesIO()
    if smooth:
        image.save(file, "webp", quality=92)
    else:
        image.save(file, "webp", lossless=True, quality=0)
    uri = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
    return InlineImage(uri, alt, not smooth)
