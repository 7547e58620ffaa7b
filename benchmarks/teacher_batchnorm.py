"""BatchNorm policies of the momentum teacher: the measurement behind networks/teacher.py.

    AUTOMIX_DATA=... python benchmarks/teacher_batchnorm.py --steps 200 --seeds 3 --out runs/teacher_batchnorm.json

Trains AutoMix with each policy (see cifar_cut.py) and prints the teacher's accuracy on the 2,000 test images. Finished
cells are kept in the output file and not repeated.

- averaged: the teacher runs in eval mode, its running statistics follow the student's as its weights do (the library)
- copied: eval mode, running statistics copied from the student after every step
- batch: train mode, statistics of the batch at hand; its running statistics see its own clean and mixed batches
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from cifar_cut import BATCH_SIZE, accuracy, load, narrow_resnet, training_steps

import automix
from automix.data import BatchPlan, ImageSet, MemoryLoader

POLICIES = ("averaged", "copied", "batch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/teacher_batchnorm.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results: dict[str, dict[str, float]] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    train, test = load()
    for seed in range(arguments.seeds):
        for policy in POLICIES:
            cell = f"{policy}/steps={arguments.steps}/seed={seed}"
            if cell not in results:
                results[cell] = run(policy, train, test, arguments.steps, seed)
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                arguments.out.write_text(json.dumps(results, indent=1))
                print(cell, results[cell], flush=True)
    for policy in POLICIES:
        cells = [results[f"{policy}/steps={arguments.steps}/seed={seed}"] for seed in range(arguments.seeds)]
        accuracies = [cell["teacher"] for cell in cells]
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        print(f"{policy:10s} teacher accuracy {statistics.mean(accuracies):.1f} +- {spread:.1f} %")


class WithPolicy(automix.AutoMix):
    """AutoMix with another policy for the teacher's BatchNorm statistics."""

    policy = "averaged"

    def update(self, progress: float | None = None) -> None:
        assert self.teacher is not None
        own = [buffer.clone() for buffer in self.teacher.buffers()]
        super().update(progress)
        if self.policy != "averaged":
            source = own if self.policy == "batch" else self.student.buffers()
            for buffer, value in zip(self.teacher.buffers(), source, strict=True):
                buffer.copy_(value)


def run(policy: str, train: ImageSet, test: ImageSet, steps: int, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    loader = MemoryLoader(train, BatchPlan(len(train), BATCH_SIZE, seed=seed))
    task = WithPolicy(narrow_resnet(), seed=seed)
    assert task.teacher is not None
    task.policy = policy
    if policy == "batch":
        task.teacher.train()
    start = time.perf_counter()
    for _ in training_steps(task, loader, steps):
        pass
    return {
        "teacher": accuracy(task.teacher, loader, test),
        "student": accuracy(task.student, loader, test),
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    main()
