"""AutoMix in a loop with Hugging Face's Accelerate, for several processes and devices: half a minute.

    python examples/accelerate_loop.py [--method automix|cutmix|...] [--epochs N] [--accumulate N] [--seed N]
    accelerate launch examples/accelerate_loop.py

Needs automix[huggingface] and no adapter: the task is prepared like a model, and updated after each optimizer step.
"""

import argparse
import sys

# first: it repairs `import torchvision` where a CUDA wheel of torchvision lies beside a CPU-only torch
import automix

# isort: split
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from automix.data import ImageSet, load_images


def train(method: str, epochs: int, accumulate: int, seed: int) -> float:
    torch.manual_seed(seed)
    accelerator = Accelerator(gradient_accumulation_steps=accumulate)
    train_set, test_set = (as_dataset(data) for data in load_images("digits", per_class=30))
    loader = DataLoader(train_set, batch_size=50 // accumulate, shuffle=True, drop_last=True)
    model = automix.create_model(
        "resnet18", num_classes=10, image_size=16, layers=(1, 1, 1, 1), channels=(8, 16, 32, 64)
    )
    task = automix.create_task(method, model, ema=True, seed=seed)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    network, optimizer, loader = accelerator.prepare(task, optimizer, loader)  # network: the task, wrapped where needed
    total = epochs * len(loader) // accumulate
    for epoch in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(network):
                out = network(x, y)
                accelerator.backward(out.loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:  # the optimizer has made a step
                task.update(min(1.0, task.step / total))
        accelerator.print(f"epoch {epoch + 1:2d}/{epochs}  loss {out.loss.item():.3f}")
    x, y = (tensor.to(accelerator.device) for tensor in test_set.tensors)
    with torch.no_grad():
        return 100 * (task.deploy()(x).argmax(dim=1) == y).float().mean().item()


def as_dataset(data: ImageSet) -> TensorDataset:
    return TensorDataset((data.images / 255 - 0.3) / 0.3, data.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=automix.methods())
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--accumulate", type=int, default=1, choices=(1, 2, 5), help="batches to a step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {arguments.epochs}")
    try:
        accuracy = train(arguments.method, arguments.epochs, arguments.accumulate, arguments.seed)
    except KeyboardInterrupt:
        sys.exit("stopped")
    print(f"test accuracy: {accuracy:.2f} %")


if __name__ == "__main__":
    main()
