"""Colors, sampling, files: functions of pixels in [0, 1] (N, 3, H, W), a generator and the strength."""

import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from automix.core.draws import draw_uniform
from automix.evaluation.corruptions.separable import box_matrix, gaussian_filter


def brightness(x: Tensor, generator: torch.Generator, added: float) -> Tensor:
    """Add to V of HSV. Hue and saturation are ratios of the channels, so all three grow by the same factor."""
    value = x.amax(dim=1, keepdim=True)
    brighter = (value + added).clamp(0, 1)
    return torch.where(value > 0, x * (brighter / value.clamp(min=1e-6)), brighter)


def saturate(x: Tensor, generator: torch.Generator, factor: float, added: float) -> Tensor:
    """Change S of HSV to factor * S + added. As in skimage a gray pixel has the hue of red, which `added` shows."""
    value = x.amax(dim=1, keepdim=True)
    chroma = value - x.amin(dim=1, keepdim=True)
    below = (value - x) / chroma.clamp(min=1e-6)  # 0 for the strongest color, 1 for the weakest
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device).view(3, 1, 1)
    saturation = (chroma / value.clamp(min=1e-6) * factor + added).clamp(0, 1)
    return value * (1 - saturation * torch.where(chroma > 0, below, red))


def contrast(x: Tensor, generator: torch.Generator, factor: float) -> Tensor:
    """Scale the difference to the mean color of the image."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * factor + mean


def pixelate(x: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """Resize to `share` of each side and back, with Pillow's BOX filter."""
    height, width = x.shape[-2:]
    smaller = (max(1, int(height * share)), max(1, int(width * share)))
    pixels = x * 255
    for old, new in (((height, width), smaller), (smaller, (height, width))):
        pixels = _rounded(pixels @ box_matrix(old[1], new[1]).to(x).T)  # Pillow keeps whole numbers between the two
        pixels = _rounded(box_matrix(old[0], new[0]).to(x) @ pixels)
    return pixels / 255


def jpeg_compression(x: Tensor, generator: torch.Generator, quality: float) -> Tensor:
    """Compress each image by Pillow's JPEG, one at a time, and decode it."""
    pixels = (x * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()

    def compressed(image: np.ndarray) -> np.ndarray:
        written = io.BytesIO()
        Image.fromarray(image).save(written, "JPEG", quality=int(quality))
        return np.asarray(Image.open(written))

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        read = np.stack(list(pool.map(compressed, pixels)))
    return torch.from_numpy(read).permute(0, 3, 1, 2).to(x) / 255


def elastic_transform(x: Tensor, generator: torch.Generator, amount: float, sigma: float, jitter: float) -> Tensor:
    """Apply a small affine map, then move every pixel a little, neighbors to similar places (bilinear).

    All three strengths are shares of the shorter side: how far pixels move, how smoothly, and how far three points of
    the affine map do. OpenCV's warp rounds places to 1/32 px, this does not.
    """
    height, width = x.shape[-2:]
    side = min(height, width)
    down, across = (torch.arange(n, device=x.device, dtype=x.dtype) for n in (height, width))
    corners = draw_uniform(x, (len(x), 3, 2), generator) * 2 - 1
    places = torch.stack([*torch.meshgrid(across, down, indexing="xy"), torch.ones_like(x[0, 0])], dim=-1)
    moved = places @ inverse_affine(corners * jitter * side, height, width).unsqueeze(1)  # (N, H, W, 2), x before y
    bent = sample_bilinear(x, moved, repeat_edge=False)
    field = draw_uniform(x, (len(x), 2, height, width), generator) * 2 - 1
    field = gaussian_filter(field, sigma * side, mirror=True, truncate=3.0) * (amount * side)
    return sample_bilinear(bent, places[..., :2] + field.permute(0, 2, 3, 1), repeat_edge=True)


def inverse_affine(shift: Tensor, height: int, width: int) -> Tensor:
    """Find the inverse (N, 3, 2) of the affine map that moves three points by `shift` (N, 3, 2), on rows (x, y, 1)."""
    center = torch.tensor([width // 2, height // 2], device=shift.device, dtype=shift.dtype)
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=shift.device, dtype=shift.dtype)
    points = center + signs * (min(height, width) // 3)
    after = F.pad(points + shift, (0, 1), value=1.0)
    return torch.linalg.solve(after, points.expand(len(shift), -1, -1))


def sample_bilinear(x: Tensor, places: Tensor, *, repeat_edge: bool) -> Tensor:
    """Sample at `places` (N, H, W, 2) in pixels, bilinearly; the border is mirrored as in separable.mirror_index."""
    size = torch.tensor([x.shape[-1], x.shape[-2]], device=x.device, dtype=x.dtype)
    grid = (2 * places + 1) / size - 1 if repeat_edge else 2 * places / (size - 1) - 1
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=not repeat_edge)


def _rounded(pixels: Tensor) -> Tensor:
    return (pixels + 0.5 + 1e-4).floor()  # halves go up, also where a float is a little below its half
