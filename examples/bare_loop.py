"""AutoMix in a bare PyTorch loop, on scikit-learn's handwritten digits: about a minute.

    python examples/bare_loop.py [--method automix|cutmix|mixup|vanilla] [--epochs N] [--seed N]

The lines marked AutoMix are all that differ from a plain training loop.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import automix
from automix.data import BatchPlan, MemoryLoader, load_images
from automix.pictures.mixed_samples import draw_mixed_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/bare_loop"), help="folder for the picture and weights")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {arguments.epochs}")
    try:
        train(arguments.method, arguments.epochs, arguments.seed, arguments.out)
    except KeyboardInterrupt:
        sys.exit("stopped")


def train(method: str, epochs: int, seed: int, out: Path) -> None:
    torch.manual_seed(seed)
    train_set, test_set = load_images("digits", per_class=30)
    plan = BatchPlan(len(train_set), batch_size=100, seed=seed)
    loader = MemoryLoader(train_set, plan, padding=2, flip=False)
    x_test, y_test = loader.normalize(test_set.images), test_set.labels
    model = automix.create_model("resnet18", num_classes=10, image_size=16, channels=(16, 32, 64, 128))
    task = automix.create_task(method, model, seed=seed)  # AutoMix
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)  # AutoMix
    total = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    print(f"{method}: {len(train_set)} training and {len(test_set)} test images, {total} steps")
    start = time.perf_counter()
    for step, (x, y) in enumerate(loader.batches(0, total)):
        result = task(x, y)  # AutoMix
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        schedule.step()
        task.update(step / total)  # AutoMix
        if (step + 1) % max(1, total // 10) == 0:
            terms = "  ".join(f"{name} {value:.3f}" for name, value in result.metrics.items() if "loss" in name)
            print(f"step {step + 1:3d}/{total}  {time.perf_counter() - start:3.0f} s  {terms}", flush=True)
    classifier = task.deploy()  # AutoMix
    print(f"test accuracy: {accuracy(classifier, x_test, y_test):.2f} %")
    out.mkdir(parents=True, exist_ok=True)
    torch.save(classifier.state_dict(), out / "classifier.pt")
    draw_mixed_samples(task, x_test[:8], loader.mean, loader.std, title=f"{method} on digits").save(out / "mixed.png")
    print(f"mixed samples and their masks: {out / 'mixed.png'}")


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return 100 * (model(x).argmax(dim=1) == y).float().mean().item()


if __name__ == "__main__":
    main()
