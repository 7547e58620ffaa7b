"""Figure 3: class activation maps of mixed samples."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from automix.evaluation.cam import NoCamError
from automix.evaluation.cam_panels import cam_column
from automix.pictures.grid import Tile, tile_grid
from automix.runs.classifier import WithNormalization
from automix.studies.composites.shown import shown_runs, with_samples
from automix.studies.experiment import Experiment
from automix.studies.results import ResultTable

PAIRS = 3


def draw_cams(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw pairs mixed by each method, with maps of the two classes that the classifier trained by it sees in them.

    The images of a pair are seen by the last row's classifier. Networks without class activation maps are left out.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    (lam,) = experiment.lams
    columns: dict[str, list[list[Tile]]] = {}
    for run, samples in with_samples(shown_runs(tables, out), [lam]):
        if samples.labels is None:
            continue
        model, card = run.folder.load_classifier()
        classifier = WithNormalization(model, card).eval()
        partner = samples.labels.roll(1)
        alone = (("image", samples.images, samples.labels[:, None]), ("partner", samples.partners, partner[:, None]))
        mixed = (run.title, samples.mixed[lam], torch.stack([samples.labels, partner], dim=1))
        try:
            for name, images, shown in (*alone, mixed):
                columns[name] = cam_column(classifier, name, images[:PAIRS], shown[:PAIRS], card.classes)
        except NoCamError:
            continue
    if not columns:
        return None
    pairs = range(len(columns["image"]))
    rows = [[tiles[pair][row] for tiles in columns.values()] for pair in pairs for row in range(3)]
    note = (
        f"mixed at lam {lam:g}; below, the maps of the two most probable classes by the classifier trained with that "
        "method; green: a class of the sample"
    )
    return tile_grid(rows, ["sample", "map of\ntop 1", "map of\ntop 2"] * len(pairs), note=note, group=3)
