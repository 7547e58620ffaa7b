"""The model card of an exported classifier: README.md with the facts of its run."""

from pathlib import Path
from typing import Any

import yaml

from automix.runs.classifier import Card
from automix.runs.folder import RunFolder

USE = """\
```python
import timm

model = timm.create_model("hf-hub:USER/NAME", pretrained=True).eval()  # or "local-dir:FOLDER"
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
logits = model(transform(image).unsqueeze(0))
```

transformers opens it too (`AutoModelForImageClassification`), and `automix.load_classifier("FOLDER")` with its card.
"""


def model_card(card: Card, run: Path | None = None, picture: str | None = None) -> str:
    """Write the model card of a classifier.

    Args:
        card: Its classes, image size, normalization and facts.
        run: Its run folder, if there is one.
        picture: File name of a picture of mixed samples, if there is one.

    Returns:
        The text, Markdown below a header of YAML as the hub reads it.
    """
    facts = _facts(card, run)
    header = {
        "library_name": "timm",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "timm", "transformers", "automix", str(card.facts.get("method", "mixup"))],
    }
    title = f"{card.model} for {len(card.classes)} classes of {Path(str(card.facts.get('data', 'images'))).name}"
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---",
        f"# {title}",
        "An image classifier, trained with automix.",
        f"| | |\n| --- | --- |\n{rows}",
        f"![mixed training samples]({picture})" if picture else "",
        "## Use",
        USE.rstrip(),
        "## Classes",
        ", ".join(name.replace("|", "\\|") for name in card.classes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(card: Card, run: Path | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "network": card.model,
        "data": Path(str(card.facts.get("data", "not known"))).name,
        "method": card.facts.get("method", "not known"),
        "images": f"{card.image_size} px, center crop {card.crop:g}",
        "normalization": f"mean {_numbers(card.mean)}, std {_numbers(card.std)}",
    }
    facts |= {_words(name): f"{value:.2f} %" for name, value in card.facts.items() if "_top" in name}
    if run is not None and RunFolder(run).is_run:
        config = RunFolder(run).read_config()
        facts["recipe"] = f"{config.recipe}, {config.settings.epochs} epochs, batch {config.settings.batch_size}, " \
                          f"{config.settings.optimizer} lr {config.settings.lr:g}, seed {config.seed}"  # fmt: skip
        facts["first weights"] = "pretrained" if config.settings.pretrained or config.weights else "from scratch"
    if run is not None and RunFolder(run).is_finished:
        facts["training time"] = f"{RunFolder(run).summary()['seconds'] / 60:.1f} minutes"
    return facts | {"automix": card.facts.get("automix", "not known")}


def _words(metric: str) -> str:
    network, _, top = metric.partition("_")
    return f"test accuracy, {top.replace('top', 'top-')} ({network})"


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.3g}" for value in values)
