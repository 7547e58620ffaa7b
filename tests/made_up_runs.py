"""Folders of finished runs as a grid leaves them, without training: numbers that are known, images that are given."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup
from automix.pictures.mask_history import add_to_history
from automix.pictures.mixed_samples import MixedSamples
from automix.runs.folder import RunFolder
from automix.studies.experiment import Experiment
from automix.studies.plan import Grid, Job, plan_jobs
from automix.tasks.mix_task import MixTask

BINS, LAMS, EPOCHS = 15, [0.0, 0.25, 0.5, 0.75, 1.0], 4


def draw_images(count: int = 4, size: int = 16) -> Tensor:
    """Images in [0, 1], a gradient from another color each."""
    across = torch.linspace(0, 1, size).expand(size, size)
    colors = torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    return (colors + across) / 2


def keep_runs(experiment: Experiment, out: Path, images: Tensor | None = None) -> list[Job]:
    """Write the run folders of one trial of an experiment.

    Args:
        experiment: The experiment.
        out: The folder of the runs.
        images: Images in [0, 1] that are mixed.

    Returns:
        The runs; the numbers of run n are those of `top1_of`, `bins_of`, `curve_of` and `values_of`.
    """
    jobs = plan_jobs(experiment, Grid(out, 1))
    for number, job in enumerate(jobs):
        _keep_run(job, number, draw_images() if images is None else images)
    return jobs


def top1_of(number: int, epoch: int, network: str) -> float:
    return 50.0 + number + epoch / 10 + (1 if network == "teacher" else 0)


def spread_of(number: int, epoch: int) -> float:
    return 0.05 * epoch * (number + 1)


def bins_of(number: int) -> dict[str, list[float | None]]:
    """The first bins are empty; in the others the accuracy is `number` hundredths below or above the confidence."""
    confidence = [None if place < 3 else (place + 0.5) / BINS for place in range(BINS)]
    sign = 1 if number % 2 else -1
    accuracy = [None if c is None else min(1.0, max(0.0, c + sign * 0.02 * (number + 1))) for c in confidence]
    share: list[float | None] = [0.0 if c is None else 1 / (BINS - 3) for c in confidence]
    return {"share": share, "accuracy": accuracy, "confidence": confidence}


def curve_of(number: int, which: str) -> list[float]:
    return [10.0 * place + number + (20 if which == "top1" else 0) for place in range(len(LAMS))]


def values_of(number: int, method: str) -> dict[str, dict[str, float]]:
    return {
        "calibration": {"ece": 2.0 + number},
        "mixed": {f"{method}_top1": 70.0 + number, f"{method}_top2": 40.0 + number},
        "efficiency": {"step_ratio": 1.0 + number / 2, "parameters_m": 11.0, "extra_parameters_m": 0.1},
    }


def _keep_run(job: Job, number: int, images: Tensor) -> None:
    run, method = RunFolder(job.folder), job.values["method"]
    run.pictures.mkdir(parents=True)
    run.config.write_text(yaml.safe_dump({name: value for name, value in job.values.items() if name != "out"}))
    records = [
        {"kind": "epoch", "step": epoch, "epoch": epoch, "mask_spread_at_0.5": spread_of(number, epoch)}
        | {f"{network}_top1": top1_of(number, epoch, network) for network in ("student", "teacher")}
        for epoch in range(1, EPOCHS + 1)
    ]
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    run.write_summary({"teacher_top1": top1_of(number, EPOCHS, "teacher"), "seconds": 60.0, "steps": EPOCHS})
    curves = {f"{method}_{which}": curve_of(number, which) for which in ("top1", "top2")}
    series: dict[str, Any] = {"calibration": bins_of(number), "mixed": {"lams": LAMS, **curves}}
    entries = {name: {"values": values, **({"series": series[name]} if name in series else {})}
               for name, values in values_of(number, method).items()}  # fmt: skip
    for folder in (run.evaluation_of("student"), run.evaluation_of("teacher")):
        folder.mkdir(exist_ok=True)
        (folder / "results.json").write_text(json.dumps(entries))
    if job.lams:
        mix_by_turns(images, number, job.lams).write(run.samples)
    if method == "automix":
        task, mean, std = MixTask(nn.Identity(), cutmix), torch.zeros(3), torch.ones(3)
        for column in range(EPOCHS + 1):
            name = f"epoch {column}"
            add_to_history(run.mask_history, task, images, torch.arange(len(images)), mean, std, column=column,
                           columns=EPOCHS + 1, name=name)  # fmt: skip


def mix_by_turns(images: Tensor, number: int, lams: tuple[float, ...]) -> MixedSamples:
    """Mix by Mixup or CutMix, whichever turn it is."""
    labels = torch.arange(len(images)) % 3
    index = torch.arange(len(images)).roll(1)
    function = (mixup, cutmix)[number % 2]
    generator = torch.Generator()
    mixed = {
        lam: function(images, labels, lam=lam, index=index, generator=generator.manual_seed(number)) for lam in lams
    }
    return MixedSamples(
        images,
        images[index],
        {lam: batch.mask for lam, batch in mixed.items()},
        {lam: batch.x for lam, batch in mixed.items()},
        labels,
    )
