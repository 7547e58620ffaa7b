"""Which BatchNorm policy should the momentum teacher have? The measurement behind learned/momentum.py.

    AUTOMIX_DATA=... python benchmarks/teacher_batchnorm.py --steps 300 --seeds 3 --out runs/teacher_batchnorm.json

Trains AutoMix with each policy on 20 classes x 100 images of CIFAR-100 with a narrow ResNet, teacher accuracy on the
2,000 test images. Finished cells are kept in the output file and not run again.

- averaged: the teacher runs in eval mode, its running statistics follow the student's as its weights do (the library)
- copied: eval mode, running statistics copied from the student after every step
- batch: train mode, statistics of the batch at hand; its running statistics see its own clean and mixed batches
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import automix

POLICIES = ("averaged", "copied", "batch")
MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/teacher_batchnorm.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results: dict[str, dict[str, float]] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    train, test = load("train"), load("test")
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


def load(split: str) -> tuple[Tensor, Tensor]:
    """20 classes x 100 images, normalised."""
    folder = Path(os.environ["AUTOMIX_DATA"]) / "cifar100" / split
    images, labels = [], []
    for label, name in enumerate(sorted(path.name for path in folder.iterdir())[:20]):
        for path in sorted((folder / name).glob("*.png"))[:100]:
            images.append(np.asarray(Image.open(path).convert("RGB")))
            labels.append(label)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1), torch.tensor(labels)


def run(
    policy: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], steps: int, seed: int
) -> dict[str, float]:
    torch.manual_seed(seed)
    channels = (16, 32, 64, 128)
    model = automix.create_model("resnet18", num_classes=20, image_size=32, layers=(1, 1, 1, 1), channels=channels)
    task = automix.AutoMix(model, seed=seed)
    assert task.teacher is not None
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    for step in range(steps):
        own_statistics = [buffer.clone() for buffer in task.teacher.buffers()]
        if policy == "batch":
            task.teacher.train()
        x, y = next_batch(*train, generator)
        optimizer.zero_grad()
        task(x, y).loss.backward()
        optimizer.step()
        schedule.step()
        if policy == "batch":
            own_statistics = [buffer.clone() for buffer in task.teacher.buffers()]
        task.update(step / steps)
        if policy != "averaged":
            wanted = own_statistics if policy == "batch" else list(task.student.buffers())
            for buffer, value in zip(task.teacher.buffers(), wanted, strict=True):
                buffer.copy_(value)
    return {
        "teacher": accuracy(task.teacher, *test),
        "student": accuracy(task.student, *test),
        "seconds": time.perf_counter() - start,
    }


def next_batch(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """100 random images, one random crop for the batch, flips for each."""
    chosen = torch.randperm(len(x), generator=generator)[:100]
    top, left = torch.randint(9, (2,), generator=generator).tolist()
    crop = F.pad(x[chosen], (4, 4, 4, 4))[:, :, top : top + 32, left : left + 32]
    flip = torch.rand(100, 1, 1, 1, generator=generator) < 0.5
    return torch.where(flip, crop.flip(3), crop).contiguous(memory_format=torch.channels_last), y[chosen]


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    hits = [
        (model(images).argmax(dim=1) == labels).sum() for images, labels in zip(x.split(500), y.split(500), strict=True)
    ]
    return 100 * float(torch.stack(hits).sum()) / len(y)


if __name__ == "__main__":
    main()
