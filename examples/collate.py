"""Mix in the collate function: torchvision's transforms for each image, one of ours for the batch. Seconds.

    python examples/collate.py [--method cutmix|fmix|...] [--epochs N] [--workers N] [--seed N]

For methods that need no network. The loop is a plain one, with a criterion that takes soft labels.
"""

import argparse
import sys

# first: it repairs `import torchvision` where a CUDA wheel of torchvision lies beside a CPU-only torch
import automix

# isort: split
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms import v2

from automix.core.transform import MixTransform
from automix.data import ImageSet, load_images

METHODS = {"mixup": automix.Mixup, "cutmix": automix.CutMix, "fmix": automix.FMix, "resizemix": automix.ResizeMix}

NORMALIZE = v2.Normalize([0.3] * 3, [0.3] * 3)


class Transformed(Dataset[tuple[Tensor, Tensor]]):
    """A dataset of images after torchvision's transforms."""

    def __init__(self, data: ImageSet, transform: nn.Module) -> None:
        self.data = data
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.data.images[index]), self.data.labels[index]


class MixCollate:
    """Mix the batch that torch's own collate function makes; a class, so that worker processes can load it."""

    def __init__(self, mix: MixTransform) -> None:
        self.mix = mix

    def __call__(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return self.mix(*default_collate(samples))


def make_loader(data: ImageSet, mix: MixTransform, workers: int, seed: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """Make a loader whose batches depend on `seed` and the number of workers only.

    The loader's generator orders the images and seeds torch's default generator in every worker, anew for each epoch.
    torchvision, and a transform without its own generator, draw from the default generator.
    """
    transform = v2.Compose([v2.RandomCrop(16, padding=2), v2.ToDtype(torch.float32, scale=True), NORMALIZE])
    return DataLoader(
        Transformed(data, transform),
        batch_size=50,
        shuffle=True,
        drop_last=True,
        collate_fn=MixCollate(mix),
        num_workers=workers,
        generator=torch.Generator().manual_seed(seed),
    )


def train(method: str, epochs: int, workers: int, seed: int) -> float:
    torch.manual_seed(seed)  # the network; without workers the transforms too
    train_set, test_set = load_images("digits", per_class=30)
    loader = make_loader(train_set, METHODS[method](num_classes=10), workers, seed)
    model = automix.create_model(
        "resnet18", num_classes=10, image_size=16, layers=(1, 1, 1, 1), channels=(8, 16, 32, 64)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    for epoch in range(epochs):
        for x, soft in loader:
            loss = nn.functional.cross_entropy(model(x), soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1:2d}/{epochs}  loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        right = model.eval()(NORMALIZE(test_set.images / 255)).argmax(dim=1) == test_set.labels
    return 100 * right.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="cutmix", choices=METHODS)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.epochs < 1 or arguments.workers < 0:
        parser.error("--epochs must be at least 1 and --workers at least 0")
    try:
        accuracy = train(arguments.method, arguments.epochs, arguments.workers, arguments.seed)
    except KeyboardInterrupt:
        sys.exit("stopped")
    print(f"test accuracy: {accuracy:.2f} %")


if __name__ == "__main__":
    main()
