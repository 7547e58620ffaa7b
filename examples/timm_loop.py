"""timm's training loop with one of our tasks: timm's model, optimizer, schedule, gradient clipping and saver. Seconds.

    python examples/timm_loop.py [--method automix|cutmix|...] [--epochs N] [--accumulate N] [--seed N] [--out DIR]

The loop is train_one_epoch of timm's train.py without its logging; the lines marked automix are what changes.
"""

import argparse
import sys
from pathlib import Path

# first: it repairs `import torchvision` where a CUDA wheel of torchvision lies beside a CPU-only torch
import automix

# isort: split
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import CheckpointSaver, dispatch_clip_grad
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from automix.data import ImageSet, load_images
from automix.integrations import update_after_step
from automix.integrations.timm import TimmTask


def train(method: str, epochs: int, accumulate: int, seed: int, out: Path) -> float:
    torch.manual_seed(seed)
    train_set, test_set = (as_dataset(data) for data in load_images("digits", per_class=30))
    loader = DataLoader(train_set, batch_size=50 // accumulate, shuffle=True, drop_last=True)
    steps = len(loader) // accumulate
    model = timm.create_model("test_resnet", num_classes=10)
    own = automix.create_task(method, model, ema=True, seed=seed)  # automix
    task = TimmTask(own)  # automix, in place of timm's ClassificationTask(model, criterion)
    optimizer = create_optimizer_v2(own.param_groups(lr=0.1), opt="sgd", lr=0.1, weight_decay=5e-4)  # automix
    update_after_step(own, optimizer, epochs * steps)  # automix
    schedule, _ = create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=epochs, updates_per_epoch=steps, step_on_epochs=False, warmup_epochs=0
    )
    out.mkdir(parents=True, exist_ok=True)
    saver = CheckpointSaver(model, optimizer, task=task, checkpoint_dir=str(out), max_history=1)
    accuracy = 0.0
    for epoch in range(epochs):
        train_one_epoch(epoch, task, loader, optimizer, schedule, accumulate)
        accuracy = validate(task.get_eval_model(ema=True), test_set)
        saver.save_checkpoint(epoch, metric=accuracy)
    return accuracy


def train_one_epoch(
    epoch: int,
    task: TimmTask,
    loader: DataLoader[tuple[Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    schedule: timm.scheduler.scheduler.Scheduler,
    accumulate: int,
) -> None:
    task.train()
    updates = epoch * (len(loader) // accumulate)
    for batch, (x, y) in enumerate(loader):
        result = task(x, y)
        (result["loss"] / accumulate).backward()
        if (batch + 1) % accumulate:
            continue
        dispatch_clip_grad(task.get_clip_parameters(), value=5.0)
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
        schedule.step_update(updates)
    print(f"epoch {epoch + 1:2d}  loss {result['loss'].item():.3f}", flush=True)


@torch.no_grad()
def validate(model: nn.Module | None, data: TensorDataset) -> float:
    assert model is not None
    x, y = data.tensors
    return 100 * (model.eval()(x).argmax(dim=1) == y).float().mean().item()


def as_dataset(data: ImageSet) -> TensorDataset:
    """Enlarged to 32 px, normalized."""
    x = nn.functional.interpolate(data.images / 255, scale_factor=2)
    return TensorDataset((x - 0.3) / 0.3, data.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--accumulate", type=int, default=1, choices=(1, 2, 5), help="batches to a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/timm_loop"), help="folder for timm's checkpoints")
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
