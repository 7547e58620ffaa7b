"""Object masks from the network in training, for labels by visible object: ``objects="teacher"`` of a task."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.tensor_checks import check_classes
from automix.networks.cam import CamReader, NoCamError, find_cam
from automix.networks.modes import eval_mode

ObjectsSource = Literal["teacher"]
"""Where a task takes object masks from."""


class TeacherObjects:
    """Class activation maps of the images' own labels as object masks.

    A map is cut off at 0, enlarged to the image and divided by its maximum. Where a map is positive nowhere, the whole
    image counts as the object. The first call finds where the network has its map; each further call costs one forward
    pass without gradients.
    """

    def __init__(self) -> None:
        self.reader: CamReader | None = None

    @torch.no_grad()
    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Compute the object masks of images.

        Args:
            network: The classifier to ask; it runs in eval mode.
            x: Images, ``(N, C, H, W)``.
            y: Their labels. Rows weight the maps of their classes. A class index that the network does not have is
                replaced by its prediction.

        Returns:
            Masks, ``(N, 1, H, W)``, in [0, 1].
        """
        with eval_mode(network):
            maps = self._read_maps(network, x)
        assert self.reader is not None
        with torch.autocast(x.device.type, enabled=False):
            weight = self.reader.weight(network)
            if y.ndim == 2:
                check_classes(y, len(weight))
                weight = y.to(weight.dtype) @ weight
            else:
                known = (y >= 0) & (y < len(weight))
                weight = weight[torch.where(known, y, self.reader.predict(network, maps))]
            cam = torch.einsum("nc,nchw->nhw", weight, maps.to(weight.dtype)).unsqueeze(1)
        return _as_masks(cam, (x.shape[-2], x.shape[-1]))

    def _read_maps(self, network: nn.Module, x: Tensor) -> Tensor:
        if self.reader is not None:
            return self.reader.read_maps(network, x)
        try:
            found = find_cam(network, x)
        except NoCamError as error:
            raise NoCamError(f"objects must be None for {type(network).__name__}: {error}") from None
        self.reader = found.reader
        return found.maps


def _as_masks(cam: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (N, 1, h, w) as masks (N, 1, H, W) with the maximum 1."""
    enlarged = F.interpolate(cam.clamp(min=0), size=size, mode="bilinear", align_corners=False)
    highest = enlarged.amax(dim=(2, 3), keepdim=True)
    return torch.where(highest > 0, enlarged / highest, 1.0)
