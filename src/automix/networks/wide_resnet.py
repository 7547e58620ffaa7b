"""Wide ResNets for small images (Zagoruyko and Komodakis, 2016), which timm does not have; WRN-28-8 is the paper's.

A 3x3 stem, three groups of pre-activation blocks at strides 1, 2, 4, batch norm, ReLU, average pool, linear.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.errors import AutomixError


class WideResNet(nn.Module):
    """WRN-`depth`-`width` (Zagoruyko and Komodakis, 2016).

    Args:
        depth: Number of layers: 6n + 4 with n blocks in each of the three groups.
        width: Factor of the channels, >= 1.
        num_classes: Number of classes.
        in_chans: Number of channels of the images.
    """

    def __init__(self, depth: int = 28, width: int = 8, num_classes: int = 10, in_chans: int = 3) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if blocks < 1 or rest or width < 1:
            raise AutomixError(f"depth must be 6n + 4 (10, 16, 22, 28, ...) and width >= 1, got {depth} and {width}")
        self.num_classes = num_classes
        self.stem = nn.Conv2d(in_chans, 16, 3, padding=1, bias=False)
        self.group1 = _group(16, 16 * width, blocks, stride=1)
        self.group2 = _group(16 * width, 32 * width, blocks, stride=2)
        self.group3 = _group(32 * width, 64 * width, blocks, stride=2)
        self.norm = nn.BatchNorm2d(64 * width)
        self.head = nn.Linear(64 * width, num_classes)
        self.feature_info = [
            {"module": f"group{i}", "num_chs": 8 * 2**i * width, "reduction": 2 ** (i - 1)} for i in (1, 2, 3)
        ]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Tensor) -> Tensor:
        """Compute the last feature map.

        Args:
            x: Images, ``(N, C, H, W)``.

        Returns:
            The map, ``(N, C, h, w)``.
        """
        x = self.group3(self.group2(self.group1(self.stem(x))))
        return F.relu(self.norm(x))

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: Images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        return self.head(self.forward_features(x).mean(dim=(2, 3)))


def _group(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = _Block(inputs, outputs, stride)
    return nn.Sequential(first, *(_Block(outputs, outputs, 1) for _ in range(blocks - 1)))


class _Block(nn.Module):
    """norm, ReLU, 3x3, norm, ReLU, 3x3, plus the input; a 1x1 convolution adapts it where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs or stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(active))))
