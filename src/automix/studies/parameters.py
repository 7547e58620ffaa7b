"""The parameters of a cell, counted without a run."""

from automix.data.registry import DATASETS
from automix.evaluation.profiling import count_parameters, extra_parameters
from automix.runs.config import TrainConfig
from automix.studies.settings import Values
from automix.training.build import build_model, build_task


def million_parameters(values: Values) -> float | None:
    """Count what a run would train: the network, and what the method adds, such as a Mix Block and a second head.

    Args:
        values: All settings of the run, flat.

    Returns:
        Millions of parameters; None if classes or image size are not known before the data is read.
    """
    config = TrainConfig.from_flat(values)
    known = DATASETS.get(config.data)
    if known is None or (size := config.settings.train_size or known.image_size) is None:
        return None
    model = build_model(config, config.classes or known.num_classes, size, load=False)
    task = build_task(config, model)
    return (count_parameters(model.parameters()) + extra_parameters(task)) / 1e6
