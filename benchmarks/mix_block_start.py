"""Three initializations of the Mix Block: spread and mean of its masks early in training.

    AUTOMIX_DATA=... python benchmarks/mix_block_start.py --steps 200

The runs are the same otherwise (see cifar_cut.py), without our other changes to the paper's Mix Block:

- normalized: maps normalized per image, queries of unit variance
- raw: the maps as they are, torch's default initialization
- reference: the maps as they are, weights from N(0, 0.01), biases 0, as the reference implementation has it

Spread is the standard deviation of a mask over its pixels, averaged over a batch; 0 is plain Mixup.
"""

import argparse
from typing import Any

import torch
from cifar_cut import BATCH_SIZE, load, narrow_resnet, training_steps

import automix
from automix.data import BatchPlan, MemoryLoader
from automix.studies.replica import NO_CLASS_VECTORS

BASE = {**NO_CLASS_VECTORS, "local": False, "exact_mean": False}
STARTS: dict[str, dict[str, Any]] = {
    "normalized": {"normalize": True, **BASE},
    "raw": {"normalize": False, **BASE},
    "reference": {"preset": "paper"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    train = load()[0]
    loader = MemoryLoader(train, BatchPlan(len(train), BATCH_SIZE))
    images = loader.normalize(loader.data.images[::20])
    print("| start | step | spread at lam 0.2, 0.5, 0.8 | mean at lam 0.2, 0.5, 0.8 |\n| --- | --- | --- | --- |")
    for start, options in STARTS.items():
        torch.manual_seed(0)
        task = automix.AutoMix(narrow_resnet(), aux_loss="clean", **options)
        for done in training_steps(task, loader, arguments.steps):
            if done % max(1, arguments.steps // 4) == 0:
                masks = [task.mix(images, lam=lam).mask for lam in (0.2, 0.5, 0.8)]
                spread = ", ".join(f"{mask.flatten(1).std(dim=1).mean():.3f}" for mask in masks)
                mean = ", ".join(f"{mask.mean():.2f}" for mask in masks)
                print(f"| {start} | {done} | {spread} | {mean} |", flush=True)


if __name__ == "__main__":
    main()
