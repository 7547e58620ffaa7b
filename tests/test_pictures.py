"""Pictures of mixed samples: the right pixels in the right places, and an unchanged task."""

import numpy as np
import pytest
import torch
from conftest import HandWritten, batch
from PIL import Image
from torch import Tensor

import automix
from automix import Task
from automix.pictures.grid import FRAME, GAP, MARGIN, Tile, image_grid, tile_grid, to_image
from automix.pictures.mixed_samples import draw_mixed_samples

MEAN, STD = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])


def make(name: str) -> Task:
    options = {"layer": "body"} if name == "automix" else {}
    return automix.create_task(name, HandWritten(), **options).train()


def normalized(size: int = 6, height: int = 16, width: int = 16) -> Tensor:
    pixels = torch.rand(size, 3, height, width, generator=torch.Generator().manual_seed(1))
    return (pixels - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)


def cells(picture: Image.Image, height: int, width: int) -> list[list[Tensor]]:
    """The images in a picture, found by their frames: rows of (3, height, width) in [0, 1], not enlarged."""
    shown = np.asarray(picture)
    frame = (shown == np.array([int(FRAME[i : i + 2], 16) for i in (1, 3, 5)])).all(axis=2)
    # a corner begins a line of the frame to the right and one downwards
    across, down = frame[:, :-3] & frame[:, 1:-2] & frame[:, 2:-1], frame[:-3] & frame[1:-2] & frame[2:-1]
    corner = across[:-3] & down[:, :-3]
    corners = [(y, x) for y, x in np.argwhere(corner).tolist() if not (frame[y - 1, x] or frame[y, x - 1])]
    rows: dict[int, list[Tensor]] = {}
    for y, x in corners:
        side = int(np.argmin(frame[y, x:]))
        scale = (side - 2) // width
        cut = shown[y + 1 : y + 1 + height * scale : scale, x + 1 : x + 1 + width * scale : scale]
        rows.setdefault(y, []).append(torch.from_numpy(cut.copy()).permute(2, 0, 1).float() / 255)
    return list(rows.values())


@pytest.mark.parametrize("name", ["vanilla", "mixup", "cutmix", "automix"])
def test_rows_are_images_partners_masks_and_mixed_samples(name: str) -> None:
    x = normalized()
    task = make(name)
    index = torch.tensor([5, 0, 1, 2, 3, 4])
    mixed = [task.mix(x, lam=lam, index=index) for lam in (0.3, 0.6)]

    def pixels(images: Tensor) -> Tensor:
        return images * STD.view(3, 1, 1) + MEAN.view(3, 1, 1)

    expected = [pixels(x), pixels(x[index])]
    for each in mixed:
        expected += [each.mask.expand(6, 3, 16, 16), pixels(each.x)]
    found = cells(draw_mixed_samples(task, x, MEAN, STD, lams=(0.3, 0.6), title="some title"), 16, 16)
    assert len(found) == 6
    for row, images in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.stack(row), images, rtol=0, atol=0.51 / 255)


@pytest.mark.parametrize("name", ["automix", "mixup_or_cutmix"])
def test_drawing_changes_neither_the_task_nor_the_random_state(name: str) -> None:
    task, x = make(name), normalized()
    before = {key: value.clone() for key, value in task.state_dict().items()}
    modes = [module.training for module in task.modules()]
    state = torch.get_rng_state()
    first = draw_mixed_samples(task, x, MEAN, STD)
    assert first.tobytes() == draw_mixed_samples(task, x, MEAN, STD).tobytes()
    assert all(torch.equal(value, before[key]) for key, value in task.state_dict().items())
    assert modes == [module.training for module in task.modules()]
    assert torch.equal(state, torch.get_rng_state())
    losses = [each(*batch()).loss for each in (task, twin(name, before))]
    assert torch.equal(*losses)  # drawing has used up no random numbers


def twin(name: str, state: dict[str, Tensor]) -> Task:
    task = make(name)
    task.load_state_dict(state)
    return task


@pytest.mark.parametrize(
    ("size", "columns", "scale"),
    [((20, 32, 32), 8, 3), ((1, 16, 16), 1, 6), ((3, 28, 20), 3, 3), ((2, 130, 90), 2, 1), ((2, 8, 8), 2, 12)],
)
def test_at_most_eight_columns_of_about_96_px(size: tuple[int, int, int], columns: int, scale: int) -> None:
    _, height, width = size
    picture = draw_mixed_samples(make("mixup"), normalized(*size), MEAN, STD, lams=(0.5,))
    found = cells(picture, height, width)
    assert [len(row) for row in found] == [columns] * 4
    smallest = columns * (width * scale + GAP)
    assert smallest < picture.width < smallest + 290
    assert 4 * (height * scale + GAP) < picture.height < 4 * (height * scale + GAP) + 60


def test_long_titles_and_notes_fit() -> None:
    image = torch.zeros(1, 1, 96, 96)
    short, long = image_grid({"row": image}), image_grid({"row": image}, title="a long title " * 9, note="a note " * 30)
    assert long.width > 600 > short.width
    ink = np.asarray(long.convert("L")) < 200
    assert not ink[:, -8:].any()  # nothing runs into the margins
    assert not ink[-4:].any()
    assert long.height > short.height


def test_values_beyond_the_range_are_clipped() -> None:
    (row,) = cells(image_grid({"row": torch.tensor([-3.0, 5.0]).view(2, 1, 1, 1).expand(2, 3, 8, 8)}), 8, 8)
    assert (row[0] == 0).all()
    assert (row[1] == 1).all()


@pytest.mark.parametrize("rows", [{}, {"a": torch.zeros(1, 3, 8, 8), "b": torch.zeros(1, 3, 9, 8)}])
def test_rows_of_several_sizes_are_refused(rows: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=r"rows.*one size"):
        image_grid(rows)


def test_tiles_are_centered_and_captions_cut_off() -> None:
    large, small = Image.new("RGB", (60, 40), "red"), Image.new("RGB", (20, 30), "blue")
    short, long = (tile_grid([[Tile(large, text), Tile(small)]], ["row"]) for text in ("cat", "cat " * 40))
    assert short.size == long.size
    shown = np.asarray(long)
    assert (shown == (0, 0, 255)).all(axis=2).sum() == 20 * 30
    ys, xs = np.nonzero((shown == (0, 0, 255)).all(axis=2))
    red_ys, red_xs = np.nonzero((shown == (255, 0, 0)).all(axis=2))
    assert ys.min() - red_ys.min() == 5
    assert xs.min() - red_xs.max() - 1 == GAP + 20
    with pytest.raises(ValueError, match="rows"):
        tile_grid([])


def test_rows_in_groups_have_more_space_between_groups() -> None:
    rows = [[Tile(Image.new("RGB", (10, 10), "red"))]] * 4
    red = (np.asarray(tile_grid(rows, group=2)) == (255, 0, 0)).all(axis=2).any(axis=1)
    starts = np.flatnonzero(red[1:] & ~red[:-1])
    assert np.diff(starts).tolist() == [10 + GAP, 10 + GAP + MARGIN, 10 + GAP]


def test_columns_in_groups_have_more_space_between_groups() -> None:
    picture = tile_grid([[Tile(Image.new("RGB", (10, 10), "red"))] * 4], column_group=2)
    red = (np.asarray(picture) == (255, 0, 0)).all(axis=2).any(axis=0)
    starts = np.flatnonzero(red[1:] & ~red[:-1])
    assert np.diff(starts).tolist() == [10 + GAP, 10 + GAP + MARGIN, 10 + GAP]
    assert picture.size[0] == starts[-1] + 1 + 10 + MARGIN


def test_to_image_accepts_bytes_floats_and_masks() -> None:
    values = torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8).expand(3, 2, 2)
    for pixels in (values, values / 255, (values / 255)[:1]):
        assert np.array_equal(np.asarray(to_image(pixels)), values.permute(1, 2, 0).numpy())
    assert to_image(values, 3).size == (6, 6)


def test_bfloat16_images_can_be_drawn() -> None:
    draw_mixed_samples(make("cutmix"), normalized().bfloat16(), MEAN, STD)
