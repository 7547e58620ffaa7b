"""Without labels: SimCLR by hand, its first views as they are, mixed by Mixup or by learned masks, and a linear probe.

    python examples/unlabeled.py [DATA] [--per-class N] [--steps N] [--seeds N] [--weak] [--mixing none mixup learned]

The encoder never sees a label. The probe is a ridge regression from its frozen features to the classes.
"""

import argparse
import statistics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import automix
from automix import AutoMixUnlabeled
from automix.core import step_generator
from automix.data import ImageSet, load_images

MIXING = ["none", "mixup", "learned"]
NARROW: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)}
BATCH, TEMPERATURE, RIDGE = 128, 0.2, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="shapes")
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--weak", action="store_true", help="views are crops of 80 to 100 %% of the area, nothing else")
    parser.add_argument("--mixing", nargs="+", choices=MIXING, default=MIXING)
    given = parser.parse_args()
    train, test = load_images(given.data, per_class=given.per_class)
    print(f"{len(train)} images without labels, {len(test)} test images", flush=True)
    for mixing in given.mixing:
        found = [run(mixing, train, test, given.steps, seed, given.weak) for seed in range(given.seeds)]
        print(f"{mixing:8} {statistics.mean(found):.2f} % ({', '.join(f'{one:.2f}' for one in found)})", flush=True)


def run(mixing: str, train: ImageSet, test: ImageSet, steps: int, seed: int, weak: bool) -> float:
    """Train an encoder and return the test accuracy of the probe in percent."""
    torch.manual_seed(seed)
    encoder = automix.create_model("resnet18", num_classes=64, image_size=train.images.shape[-1], **NARROW)
    mixer = AutoMixUnlabeled(encoder, temperature=TEMPERATURE, seed=seed)
    optimizer = torch.optim.SGD(mixer.param_groups(lr=0.1), momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        generator = step_generator(seed, step, stream="views")
        x = train.images[torch.randperm(len(train), generator=generator)[:BATCH]] / 127.5 - 1
        a, b = augment(x, generator, weak), augment(x, generator, weak)
        optimizer.zero_grad()
        loss(mixing, mixer, a, b, generator).backward()
        optimizer.step()
        schedule.step()
        mixer.update(step / steps)
    return probe(encoder, train, test)


def loss(mixing: str, mixer: AutoMixUnlabeled, a: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """Compare first views with clean second views: each must be found again among those of the batch."""
    if mixing == "learned":
        mixed = mixer(a, b)
        assert mixed.loss is not None
        return mixed.target.cross_entropy(similarities(mixer.student, mixed.a, b)) + mixed.loss
    plain = automix.mixup(a, torch.arange(len(a)), 2.0, lam=1.0 if mixing == "none" else None, generator=generator)
    return plain.target.cross_entropy(similarities(mixer.student, plain.x, b))


def similarities(encoder: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(encoder(a)) @ F.normalize(encoder(b)).T / TEMPERATURE


def augment(x: Tensor, generator: torch.Generator, weak: bool) -> Tensor:
    """Random crops of 30 to 100 % of the area, flips, and colors mixed at random; `weak`: crops of 80 to 100 %."""
    count, uniform = len(x), lambda *shape: torch.rand(*shape, generator=generator)
    smallest = 0.8 if weak else 0.3
    scale = (smallest + (1 - smallest) * uniform(count)).sqrt()
    shift = (1 - scale)[:, None] * (2 * uniform(count, 2) - 1)
    side = torch.ones(count) if weak else torch.where(uniform(count) < 0.5, -1.0, 1.0)
    theta = torch.stack([scale * side, 0 * scale, shift[:, 0], 0 * scale, scale, shift[:, 1]], 1).view(-1, 2, 3)
    x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
    if weak:
        return x
    colors = torch.eye(3) * (0.6 + 0.8 * uniform(count, 1, 1)) + 0.3 * torch.randn(count, 3, 3, generator=generator)
    return torch.einsum("nij,njhw->nihw", colors, x)


@torch.no_grad()
def probe(encoder: nn.Module, train: ImageSet, test: ImageSet) -> float:
    """Fit a ridge regression from standardized features to the classes; return its test accuracy in percent."""
    read: Any = encoder.eval()
    f, g = (read.forward_head(read.forward_features(s.images / 127.5 - 1), pre_logits=True) for s in (train, test))
    f, g = ((part - f.mean(0)) / f.std(0).clamp(min=1e-3) for part in (f, g))
    rows = F.one_hot(train.labels).float()
    weights = torch.linalg.solve(f.T @ f + RIDGE * torch.eye(f.shape[1]), f.T @ (rows - rows.mean(0)))
    return 100 * ((g @ weights).argmax(1) == test.labels).float().mean().item()


if __name__ == "__main__":
    main()
