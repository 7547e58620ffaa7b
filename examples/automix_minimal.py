"""AutoMix (Liu et al., ECCV 2022) in one file of plain PyTorch: the Mix Block, a training step and the loop.

    python examples/automix_minimal.py [--epochs N]        half a minute; needs torch and scikit-learn

This is the algorithm as published, without the library. A test checks that loss, gradients and teacher equal those of
``automix.AutoMix(model, preset="paper", mixed_head=False, momentum_warmup=True)``: one head instead of two, and a
teacher that leaves its random start quickly, because the training is short. Two networks of the same form are trained:
the student by back-propagation, and the teacher, a moving average of the student. The Mix Block makes the mixed images.
Its loss is the teacher's, so that it learns masks with which the classes of both images can be recognized.
"""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALPHA = 2.0  # lam ~ Beta(ALPHA, ALPHA)
GAMMA, EPSILON = 0.1, 0.1  # weight and tolerance of the loss that keeps the mean of a mask near lam
MOMENTUM = 0.999  # of the teacher

Pairs = tuple[Tensor, Tensor]  # lam of the batch, and the partner of each image


class Network(nn.Module):
    """A small classifier. AutoMix needs the feature map of a middle layer, here the output of `body`."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(1, 32), conv(32, 64, stride=2))
        self.tail = nn.Sequential(conv(64, 128, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.tail(self.body(x)))


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class MixBlock(nn.Module):
    """Predict the mask s_i: which pixels of image i to keep, by cross-attention between the maps of the two images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.w_p = nn.Conv2d(channels + 1, channels, 1)
        self.w_z = nn.Conv2d(channels + 1, 1, 1)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.01) if parameter.ndim > 1 else nn.init.zeros_(parameter)

    def forward(self, z_i: Tensor, z_j: Tensor, lam: Tensor, size: tuple[int, int]) -> Tensor:
        z_i, z_j = with_channel(z_i, lam), with_channel(z_j, 1 - lam)  # the block knows lam
        query, key, value = (z.flatten(2) for z in (self.w_p(z_i), self.w_p(z_j), self.w_z(z_j)))
        attention = (query.transpose(1, 2) @ key / math.sqrt(query.shape[1])).softmax(dim=-1)  # Eq. 6
        logit = (attention @ value.transpose(1, 2)).reshape(len(z_i), 1, *z_i.shape[-2:])
        return F.interpolate(1 - torch.sigmoid(logit), size, mode="nearest")  # Eq. 5; s_i = 1 - s_j


def with_channel(z: Tensor, value: Tensor) -> Tensor:
    return torch.cat([z, value.to(z).expand(len(z), 1, *z.shape[-2:])], dim=1)


def draw(count: int) -> Pairs:
    return torch.distributions.Beta(ALPHA, ALPHA).sample(), torch.randperm(count)


def mix(block: MixBlock, x: Tensor, z: Tensor, lam: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Mix each image with its partner (Eq. 4); returns the mixed images and the masks."""
    mask = block(z, z[index], lam, (x.shape[-2], x.shape[-1]))
    return mask * x + (1 - mask) * x[index], mask


def mixed_loss(logits: Tensor, y: Tensor, lam: Tensor, index: Tensor) -> Tensor:
    """Cross-entropy of a mixed batch (Eq. 2)."""
    return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[index])


class AutoMix:
    """The student, the teacher that follows it, and the Mix Block."""

    def __init__(self, model: Network, channels: int = 64) -> None:
        self.student = model
        self.teacher = copy.deepcopy(model).requires_grad_(False).eval()  # in eval mode: averaged BatchNorm statistics
        self.block = MixBlock(channels)

    def loss(self, x: Tensor, y: Tensor, q: Pairs, k: Pairs, progress: float) -> Tensor:
        """Algorithm 1, with draws q for the student and k for the Mix Block. One backward pass trains both, because the
        student's images have no graph and the teacher takes no gradient."""
        with torch.no_grad():
            z = self.teacher.body(x)
            x_q, _ = mix(self.block, x, z, *q)
        classification = mixed_loss(self.student(x_q), y, *q) + F.cross_entropy(self.student(x), y)  # to the student
        x_k, mask = mix(self.block, x, z, *k)
        generation = mixed_loss(self.teacher(x_k), y, *k)  # through the teacher to the Mix Block
        gap = (k[0] - mask.mean(dim=(1, 2, 3))).abs()
        mean_loss = GAMMA * (1 - progress) * (gap - EPSILON).clamp(min=0).mean()  # Eq. 7
        return classification + generation + mean_loss  # Eq. 8

    @torch.no_grad()
    def update(self, step: int, progress: float) -> None:
        """Move the teacher towards the student (Eq. 12), with a momentum that rises to 1 along a cosine."""
        momentum = 1 - (1 - MOMENTUM) * (1 + math.cos(math.pi * progress)) / 2
        momentum = min(momentum, (1 + step) / (10 + step))  # leave the random start quickly
        for k, q in zip(self.teacher.state_dict().values(), self.student.state_dict().values(), strict=True):
            k.copy_(torch.lerp(k, q, 1 - momentum) if k.is_floating_point() else q)


def train(epochs: int, seed: int = 0, lr: float = 0.1, batch_size: int = 100) -> float:
    torch.manual_seed(seed)
    (x_train, y_train), (x_test, y_test) = digits()
    task = AutoMix(Network())
    groups = [{"params": module.parameters()} for module in (task.student, task.block)]
    optimizer = torch.optim.SGD(groups, lr, momentum=0.9, weight_decay=5e-4)
    steps = len(x_train) // batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    for epoch in range(epochs):
        for number, batch in enumerate(torch.randperm(len(x_train)).split(batch_size)[:steps]):
            x, y, step = x_train[batch], y_train[batch], epoch * steps + number
            progress = step / (epochs * steps)
            loss = task.loss(x, y, draw(len(x)), draw(len(x)), progress)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            task.update(step, progress)
        if (epoch + 1) % max(1, epochs // 5) == 0:
            print(f"epoch {epoch + 1:3d}/{epochs}  loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        return 100 * (task.teacher(x_test).argmax(dim=1) == y_test).float().mean().item()


def digits() -> list[tuple[Tensor, Tensor]]:
    """scikit-learn's handwritten digits at 16 px: 500 to train on, the others to test."""
    from sklearn.datasets import load_digits

    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    x = F.interpolate((images.float() / 16 - 0.3).reshape(-1, 1, 8, 8), scale_factor=2)
    return [(x[:500], labels[:500]), (x[500:], labels[500:])]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    print(f"test accuracy: {train(max(1, parser.parse_args().epochs)):.2f} %")
