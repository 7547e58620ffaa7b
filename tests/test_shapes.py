"""The embedded dataset `shapes`."""

import pytest
import torch
import torchvision.ops

from automix.data.shapes import CHUNK, CLASSES, draw_shapes


def test_the_same_seed_draws_the_same_images_and_another_one_others() -> None:
    state = torch.get_rng_state()
    first, second, other = draw_shapes(30), draw_shapes(30), draw_shapes(30, seed=1)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.masks, second.masks)
    assert not torch.equal(first.images, other.images)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("size", [16, 32, 50])
def test_boxes_and_masks_fit_at_any_resolution(size: int) -> None:
    shapes = draw_shapes(36, size)
    assert shapes.images.shape == (36, 3, size, size)
    assert shapes.images.dtype == torch.uint8
    inclusive = torchvision.ops.masks_to_boxes(shapes.masks)  # torchvision's x1, y1 are the last pixel's
    assert torch.equal(shapes.boxes.float(), inclusive + torch.tensor([0.0, 0.0, 1.0, 1.0]))
    area = shapes.masks.flatten(1).float().mean(dim=1)
    assert area.min() > 0.02
    assert area.max() < 0.6


def test_classes_are_balanced_across_chunks() -> None:
    labels = draw_shapes(CHUNK + 200, size=8).labels
    assert len(CLASSES) >= 10
    assert torch.bincount(labels).max() - torch.bincount(labels).min() <= 1


def test_areas_follow_the_outlines() -> None:
    """Regular polygons in the unit circle grow with their corners; the ellipse has 0.45 of the disc's area."""
    shapes = draw_shapes(1200, 24)
    area = shapes.masks.flatten(1).float().mean(dim=1)
    mean = {name: area[shapes.labels == label].mean().item() for label, name in enumerate(CLASSES)}
    assert mean["disc"] > mean["octagon"] > mean["hexagon"] > mean["triangle"]
    assert mean["ellipse"] == pytest.approx(0.45 * mean["disc"], rel=0.1)


def test_color_does_not_give_the_class_away() -> None:
    """A linear classifier on mean and spread of the colors stays near chance."""
    train, test = draw_shapes(1200, 16), draw_shapes(600, 16, seed=1)

    def colors(images: torch.Tensor) -> torch.Tensor:
        flat = images.double().flatten(2) / 255
        return torch.cat([flat.mean(dim=2), flat.std(dim=2), torch.ones(len(flat), 1)], dim=1)

    one_hot = torch.nn.functional.one_hot(train.labels).double()
    weights = torch.linalg.lstsq(colors(train.images), one_hot).solution
    guesses = (colors(test.images) @ weights).argmax(dim=1)
    assert (guesses == test.labels).double().mean() < 2.5 / len(CLASSES)
