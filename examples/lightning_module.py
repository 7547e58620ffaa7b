"""AutoMix under Lightning, on scikit-learn's handwritten digits: half a minute. Needs automix[lightning].

python examples/lightning_module.py [--method automix|cutmix|...] [--epochs N] [--accumulate N] [--seed N] [--out DIR]
"""

import argparse
import sys
from pathlib import Path
from typing import Any

# first: it repairs `import torchvision` where a CUDA wheel of torchvision lies beside a CPU-only torch
import automix

# isort: split
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from automix.data import ImageSet, load_images
from automix.integrations.lightning import LightningTask


class Digits(LightningTask):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": self.with_update(optimizer), "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(method: str, epochs: int, accumulate: int, seed: int, out: Path) -> float:
    torch.manual_seed(seed)
    train_set, test_set = (as_dataset(data) for data in load_images("digits", per_class=30))
    model = automix.create_model(
        "resnet18", num_classes=10, image_size=16, layers=(1, 1, 1, 1), channels=(8, 16, 32, 64)
    )
    module = Digits(automix.create_task(method, model, seed=seed))
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        default_root_dir=out,
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(train_set, batch_size=50 // accumulate, shuffle=True, drop_last=True)
    trainer.fit(module, loader, DataLoader(test_set, batch_size=100))
    torch.save(module.deploy().state_dict(), out / "classifier.pt")  # plain weights: nothing of Lightning or AutoMix
    return 100 * float(trainer.callback_metrics["val_accuracy"])


def as_dataset(data: ImageSet) -> TensorDataset:
    return TensorDataset((data.images / 255 - 0.3) / 0.3, data.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--accumulate", type=int, default=1, choices=(1, 2, 5), help="batches to a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"), help="folder for checkpoints and weights")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {arguments.epochs}")
    try:
        accuracy = train(arguments.method, arguments.epochs, arguments.accumulate, arguments.seed, arguments.out)
    except KeyboardInterrupt:
        sys.exit("stopped")
    print(f"test accuracy: {accuracy:.2f} %")


if __name__ == "__main__":
    main()
