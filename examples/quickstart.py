"""Train a small ResNet with AutoMix on scikit-learn's handwritten digits, in a bare PyTorch loop.

    python examples/quickstart.py [--method automix|cutmix|mixup|vanilla] [--epochs N] [--seed N]

The lines marked AutoMix are all that differ from a plain training loop.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import automix

BATCH_SIZE = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart"), help="folder for the picture and weights")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs {arguments.epochs}: accepted is a whole number >= 1")
    try:
        train(arguments.method, arguments.epochs, arguments.seed, arguments.out)
    except KeyboardInterrupt:
        sys.exit("stopped")


def train(method: str, epochs: int, seed: int, out: Path) -> None:
    torch.manual_seed(seed)
    (x_train, y_train), (x_test, y_test) = load_digits()
    model = automix.create_model("resnet18", num_classes=10, image_size=16, channels=(16, 32, 64, 128))
    task = automix.create_task(method, model, seed=seed)  # AutoMix
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)  # AutoMix
    steps_per_epoch = len(x_train) // BATCH_SIZE
    total = epochs * steps_per_epoch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    print(f"{method}: {len(x_train)} training and {len(x_test)} test images, {total} steps")
    start = time.perf_counter()
    for epoch in range(epochs):
        order = torch.randperm(len(x_train))
        for i in range(steps_per_epoch):
            chosen = order[i * BATCH_SIZE : (i + 1) * BATCH_SIZE]
            out_step = task(shift(x_train[chosen]), y_train[chosen])  # AutoMix
            optimizer.zero_grad()
            out_step.loss.backward()
            optimizer.step()
            schedule.step()
            task.update((epoch * steps_per_epoch + i) / total)  # AutoMix
        if epoch % 5 == 4 or epoch == epochs - 1:
            terms = "  ".join(f"{name} {value:.3f}" for name, value in out_step.metrics.items() if "loss" in name)
            print(f"epoch {epoch + 1:3d}/{epochs}  {time.perf_counter() - start:4.0f} s  {terms}", flush=True)
    classifier = task.deploy()  # AutoMix
    print(f"test accuracy: {accuracy(classifier, x_test, y_test):.2f} %")
    out.mkdir(parents=True, exist_ok=True)
    torch.save(classifier.state_dict(), out / "classifier.pt")
    save_picture(task, x_test[:8], out / "mixed.png")
    print(f"mixed samples and their masks: {out / 'mixed.png'}")


def load_digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """1,797 digits of 8 x 8 pixels, enlarged to 16 x 16 in three channels; 300 of them, 30 a class, to train on."""
    import sklearn.datasets

    digits = sklearn.datasets.load_digits()
    x = torch.from_numpy(digits.images).float().unsqueeze(1) / 8 - 1
    x = F.interpolate(x, size=16, mode="bilinear", align_corners=False).repeat(1, 3, 1, 1)
    y = torch.from_numpy(digits.target)
    order = torch.cat([(y == label).nonzero()[:30, 0] for label in range(10)])
    chosen = torch.zeros(len(y), dtype=torch.bool)
    chosen[order] = True
    x = x.contiguous(memory_format=torch.channels_last)
    return (x[chosen], y[chosen]), (x[~chosen], y[~chosen])


def shift(x: Tensor) -> Tensor:
    """Move the batch by up to two pixels; -1 is the digits' background."""
    top, left = torch.randint(5, (2,)).tolist()
    return F.pad(x, (2, 2, 2, 2), value=-1.0)[:, :, top : top + x.shape[2], left : left + x.shape[3]]


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return 100 * (model(x).argmax(dim=1) == y).float().mean().item()


def save_picture(task: automix.Task, x: Tensor, path: Path) -> None:
    """Images, their partners, and for three lam the masks (white: the image, black: the partner) and mixed samples."""
    from PIL import Image, ImageDraw
    from torchvision.utils import make_grid

    index = torch.arange(len(x)).roll(1)
    rows = {"image": x, "partner": x[index]}
    for lam in (0.2, 0.5, 0.8):
        mixed = task.mix(x, lam=lam, index=index)
        rows |= {f"mask, lam {lam}": mixed.mask.expand_as(x) * 2 - 1, f"mixed, lam {lam}": mixed.x}
    enlarged = F.interpolate(torch.cat(list(rows.values())), scale_factor=4)
    grid = make_grid(enlarged, nrow=len(x), normalize=True, value_range=(-1, 1), pad_value=0.5)
    samples = Image.fromarray((grid * 255).byte().permute(1, 2, 0).numpy())
    picture = Image.new("RGB", (samples.width + 90, samples.height), "white")
    picture.paste(samples, (90, 0))
    for row, caption in enumerate(rows):
        ImageDraw.Draw(picture).text((6, (row + 0.4) * samples.height / len(rows)), caption, fill="black")
    picture.save(path)


if __name__ == "__main__":
    main()
