"""What the page shows, as HTML: every picture is in it, so that no file is written and none is served."""

import base64
import io
from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor

from automix.evaluation.tiles import overlay_maps, to_images, to_tile_size
from automix.views.explorer.pair import Answer, Blend, Explorer, Pair, Picture
from automix.views.report.markup import Markup, element, join

SMALL = 64  # px: images up to here are shown as the pixels that they are
THUMBNAIL = 72  # px
SIDES = ("first", "second")


# --- choosing --------------------------------------------------------------------------------------------------------


def picker(explorer: Explorer, side: int, chosen: int | Picture, complaint: str = "") -> Markup:
    """The image chosen for a `side`, 0 or 1, and the examples to choose from."""
    picture = picture_of(explorer, chosen)
    head = element(
        "div",
        figure(picture.pixels / 255, f"{SIDES[side]} image: {picture.caption}", class_="am-chosen"),
        element(
            "div",
            element("h2", f"{SIDES[side].capitalize()} image"),
            element("p", picture.caption, class_="am-name"),
            element("p", "weight " + ("λ", "1 - λ")[side], class_="am-faint"),
        ),
        class_="am-head",
    )
    examples = [_thumbnail(number, one, number == chosen, side) for number, one in enumerate(explorer.examples)]
    said = element("p", complaint, class_="am-complaint", role="alert") if complaint else Markup("")
    return join([head, element("div", *examples, class_="am-thumbs"), said])


def picture_of(explorer: Explorer, chosen: int | Picture) -> Picture:
    return explorer.examples[chosen] if isinstance(chosen, int) else chosen


def _thumbnail(number: int, picture: Picture, pressed: bool, side: int) -> Markup:
    name = f"{picture.caption} as {SIDES[side]} image"
    shown = image(_shrunk(picture.pixels / 255), name)
    return element("button", shown, type="button", data_number=number, title=name, aria_pressed=str(pressed).lower())


def _shrunk(pixels: Tensor) -> Tensor:
    if pixels.shape[-1] <= THUMBNAIL:
        return pixels
    size = (THUMBNAIL, THUMBNAIL)
    return F.interpolate(pixels.unsqueeze(0), size=size, mode="bilinear", antialias=True)[0].clamp(0, 1)


# --- one method ------------------------------------------------------------------------------------------------------


def one_method(explorer: Explorer, pair: Pair, method: str, lam: float) -> Markup:
    """Mask and mixed image, then what each network says of it and where it sees that."""
    blend = explorer.mix(pair, method, lam)
    if isinstance(blend, str):
        return element("p", element("b", method), f" {blend}", class_="am-cannot")
    row = element(
        "div",
        figure(blend.mask, "mask", _words("Mask", f"white shows the first image; mean {float(blend.mask.mean()):.2f}")),
        figure(blend.pixels, "mixed image", _words("Mixed image", _label(explorer, pair, blend.share))),
        _legend(explorer, blend),
        class_="am-row",
    )
    answers = [_network(explorer, pair, blend, answer) for answer in explorer.ask(blend)]
    if not answers:
        why = "No network is open: automix explore RUN shows what its student and teacher see in the mixed image."
        answers = [element("p", why, class_="am-faint")]
    return join([row, element("div", *answers, class_="am-networks")])


def _legend(explorer: Explorer, blend: Blend) -> Markup:
    lines = ["Mixed image = mask · first image + (1 - mask) · second image."]
    if explorer.networks:
        lines += [
            "Below is what each network takes it for. Red is where it sees that class, blue where it does not.",
            "Green are the classes of the two images.",
        ]
    if blend.note:
        lines = [f"This method {blend.note}.", *lines]
    return element("div", *(element("p", line) for line in lines), class_="am-legend")


def _label(explorer: Explorer, pair: Pair, share: float) -> str:
    first, second = (_class_name(explorer, pair, side) for side in (0, 1))
    return f"label: {share:.2f} {first} + {1 - share:.2f} {second}"


def _class_name(explorer: Explorer, pair: Pair, side: int) -> str:
    """What stands in the label: the known class, or what the network takes an image of other data for."""
    picture = pair.pictures[side]
    return explorer.classes[int(pair.y[side])] if picture.label is not None else picture.caption


def _network(explorer: Explorer, pair: Pair, blend: Blend, answer: Answer) -> Markup:
    tiles = []
    for rank, label in enumerate(answer.classes):
        bar = _bar(explorer.classes[label], answer.probabilities[rank], label in pair.y.tolist())
        if answer.maps is None:
            tiles.append(bar)
            continue
        pixels, _ = to_tile_size(blend.pixels.unsqueeze(0))
        hot = to_images(overlay_maps(pixels, answer.maps[rank : rank + 1]))[0]
        alt = f"where the {answer.network} sees {explorer.classes[label]}"
        tiles.append(element("figure", _img(hot, alt, smooth=True), element("figcaption", bar)))
    note = [element("p", answer.note, class_="am-faint")] if answer.note else []
    return element(
        "section",
        element("h3", answer.network.capitalize()),
        element("div", *tiles, class_="am-maps"),
        *note,
        class_="am-network",
    )


def _bar(name: str, probability: float, shown: bool) -> Markup:
    """A class with its probability; green where it is one of the pair's."""
    inside = element("i", style=f"width: {100 * probability:.1f}%")
    words = element("span", element("b", f"{100 * probability:.0f} %"), f" {name}", title=name)
    return element("div", words, element("div", inside, class_="am-track"), class_="am-bar" + (" am-in" * shown))


# --- all methods -----------------------------------------------------------------------------------------------------


def all_methods(explorer: Explorer, pair: Pair, lam: float) -> Markup:
    """The mixed image of every method, its mask, and the classifier's first two answers; a line where one cannot."""
    found = explorer.compare(pair, lam)
    mixed = {name: blend for name, blend in found.items() if isinstance(blend, Blend)}
    answers = dict(zip(mixed, explorer.ask_briefly(list(mixed.values())), strict=False))
    cards = [_card(explorer, pair, name, blend, answers.get(name)) for name, blend in mixed.items()]
    return join([element("div", *cards, class_="am-cards"), _left_out(found)])


def _card(explorer: Explorer, pair: Pair, name: str, blend: Blend, answer: Answer | None) -> Markup:
    bars = []
    if answer is not None:
        shown = pair.y.tolist()
        answered = zip(answer.classes, answer.probabilities, strict=True)
        bars = [_bar(explorer.classes[label], share, label in shown) for label, share in answered]
    pictures = element(
        "div",
        image(blend.pixels, f"mixed by {name}"),
        image(blend.mask, f"mask of {name}"),
        class_="am-two",
    )
    return element(
        "section",
        element("h3", name),
        pictures,
        element("p", f"label {blend.share:.2f} + {1 - blend.share:.2f}", class_="am-faint"),
        *bars,
        *([element("p", blend.note, class_="am-faint")] if blend.note else []),
        class_="am-card",
    )


def _left_out(found: Mapping[str, Blend | str]) -> Markup:
    why = {name: reason.removeprefix(f"{name} ") for name, reason in found.items() if isinstance(reason, str)}
    lines = [element("li", element("b", name), f" {reason}") for name, reason in why.items()]
    return element("ul", *lines, class_="am-left-out")


# --- pictures --------------------------------------------------------------------------------------------------------


def figure(pixels: Tensor, alt: str, *caption: str, class_: str = "") -> Markup:
    words = [element("figcaption", *caption)] if caption else []
    return element("figure", image(pixels, alt), *words, class_=class_ or None)


def image(pixels: Tensor, alt: str) -> Markup:
    """An image (3 or 1, H, W) in [0, 1]; the pixels of a small one stay pixels."""
    shown = pixels.detach().cpu().float().clamp(0, 1).expand(3, -1, -1).unsqueeze(0)
    return _img(to_images(shown)[0], alt, smooth=pixels.shape[-1] > SMALL)


def _img(picture: object, alt: str, smooth: bool) -> Markup:
    file = io.BytesIO()
    picture.save(file, "webp", **({"quality": 92} if smooth else {"lossless": True, "quality": 0}))  # type: ignore[attr-defined]
    source = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
    return element("img", src=source, alt=alt, class_=None if smooth else "am-pixels", draggable="false")


def _words(title: str, text: str) -> Markup:
    return join([element("b", title), element("span", text)])


def heading(explorer: Explorer) -> Markup:
    """What is open, in a line, and what one should know of it."""
    facts: Sequence[str] = ()
    if explorer.networks:
        named = " and ".join(explorer.networks)
        facts = [f"{explorer.card.model}, {len(explorer.classes)} classes", named]
        if explorer.task is not None:
            facts = [f"trained with {explorer.method}", *facts]
    line = element("p", " · ".join([explorer.name, *facts]), class_="am-name")
    notes = [element("p", note, class_="am-note") for note in explorer.notes]
    return join([element("h1", "Mix two images"), line, *notes])
