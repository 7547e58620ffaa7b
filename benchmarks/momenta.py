"""The effect of the teacher's momentum on its accuracy: several averages of one student, in one run of Mixup.

    AUTOMIX_DATA=... python benchmarks/momenta.py

An average of a student's weights does not change the student, so one run of the replica's Mixup on CIFAR gives the
accuracy of any number of teachers: momentum 0.98 to 0.999, constant or rising to 1 by the cosine, all held below
(1 + t) / (10 + t). (AutoMix's own teacher also trains the Mix Block; there each momentum needs a run.)
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from automix.core.accuracy import topk_correct
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.runs.config import TrainConfig
from automix.runs.protocol import LAST, median_of_last
from automix.studies import find_experiment
from automix.studies.plan import Grid, plan_jobs, select
from automix.training.distributed import World
from automix.training.hardware import autocast
from automix.training.loop import training_step
from automix.training.prepare import prepare
from automix.training.run import Run
from automix.training.signals import StopRequest

BASES = (0.98, 0.99, 0.995, 0.998, 0.999)


def prepared(out: Path) -> Run:
    (job,) = plan_jobs(select(find_experiment("replica"), ["mixup"], ["cifar"]), Grid(out, trials=1))
    return prepare(TrainConfig.from_flat(job.values), World(), resume=False, overwrite=True)


@torch.no_grad()
def accuracies(run: Run, teachers: dict[str, nn.Module]) -> dict[str, float]:
    """Measure the top-1 accuracy of each teacher in percent."""
    correct = dict.fromkeys(teachers, 0)
    count = 0
    for x, y in run.data.loader.test_batches():
        count += len(y)
        for name, teacher in teachers.items():
            with autocast(run.precision, run.device):
                correct[name] += int(topk_correct(teacher(x), y).sum())
    return {name: 100 * number / count for name, number in correct.items()}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = prepared(Path(folder))
        kinds = {f"{base}, {kind}": (base, kind) for base in BASES for kind in ("constant", "cosine")}
        teachers = {name: make_teacher(run.task.student) for name in kinds}
        by_epoch: dict[str, dict[int, float]] = {name: {} for name in teachers}
        run.task.train()
        batches = run.data.loader.batches(0, run.total_steps)
        while run.step < run.total_steps:
            step, progress = run.step, run.step / run.total_steps
            training_step(run, batches, StopRequest())
            for name, (base, kind) in kinds.items():
                m = momentum_at(step, progress if kind == "cosine" else 0.0, base)
                follow(teachers[name], run.task.student, m)
            epoch = run.step // run.steps_per_epoch
            if run.step % run.steps_per_epoch == 0 and epoch > run.config.settings.epochs - LAST:
                for name, value in accuracies(run, teachers).items():
                    by_epoch[name][epoch] = value
                print(f"epoch {epoch}", file=sys.stderr, flush=True)
    print("| momentum | constant | rising to 1 |\n| --- | --- | --- |")
    for base in BASES:
        both = (f"{median_of_last(by_epoch[f'{base}, {kind}'])[0]:.2f}" for kind in ("constant", "cosine"))
        print(f"| {base} | {' | '.join(both)} |")


if __name__ == "__main__":
    main()
