"""The code of the README and the examples runs."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import batch
from PIL import Image
from test_integrations import load_example

import automix
from automix.core.draws import step_generator

ROOT = Path(__file__).parent.parent


def test_readme_code_runs() -> None:
    """The blocks in order, in one namespace, as a reader would paste them."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    x, y = batch(4, 32, 32)
    names: dict[str, Any] = {
        "torch": torch,
        "model": automix.create_model("resnet18", num_classes=10, image_size=32, channels=(8, 8, 16, 16)),
        "loader": [(x, y)] * 2,
        "total": 2,
        "g": torch.Generator(),
    }
    for block in blocks:
        exec(block, names)
    assert not any("teacher" in name or "mix_block" in name for name in names["classifier"].state_dict())
    assert names["soft"].shape == (4, 10)
    assert isinstance(names["task"], automix.MixTask)


def test_links_in_the_documents_exist() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert link.startswith("http") or (document.parent / link).exists(), f"{document.name}: {link}"


def run_example(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run in parallel
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_bare_loop(tmp_path: Path) -> None:
    done = run_example("bare_loop.py", "--epochs", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy: \d+\.\d\d %", done.stdout)
    assert (tmp_path / "mixed.png").stat().st_size > 1000
    weights = torch.load(tmp_path / "classifier.pt", weights_only=True)
    automix.create_model("resnet18", num_classes=10, image_size=16, channels=(16, 32, 64, 128)).load_state_dict(weights)


def test_unlabeled() -> None:
    done = run_example("unlabeled.py", "digits", "--per-class", "13", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+) +\d+\.\d\d %", done.stdout, flags=re.MULTILINE) == ["none", "mixup", "learned"]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Oxford-IIIT Pets in its layout: two breeds, 4 training and 2 test images each; the animal is a bright square."""
    root = tmp_path / "oxford-iiit-pet"
    for folder in ("images", "annotations/trimaps"):
        (root / folder).mkdir(parents=True)
    lines: dict[str, list[str]] = {"trainval": [], "test": []}
    for number in range(12):
        breed, side = number % 2, 16 + number
        image, trimap = np.full((60, 50, 3), 20 * breed, np.uint8), np.full((60, 50), 2, np.uint8)
        trimap[5 : 6 + side, 5 : 6 + side] = 3
        trimap[7 : 4 + side, 7 : 4 + side] = 1
        image[trimap != 2] = (250, 180, 90 * breed)
        name = f"{('beagle', 'pug')[breed]}_{number}"
        Image.fromarray(image).save(root / "images" / f"{name}.jpg")
        Image.fromarray(trimap).save(root / "annotations" / "trimaps" / f"{name}.png")
        lines["trainval" if number < 8 else "test"].append(f"{name} {breed + 1} 1 1")
    for split, rows in lines.items():
        (root / "annotations" / f"{split}.txt").write_text("\n".join(rows) + "\n")
    return root


def test_segmentation(pets: Path, tmp_path: Path) -> None:
    options = ["--size", "32", "--epochs", "1", "--classifier-epochs", "1", "--model", "test_resnet", "--seeds", "2"]
    done = run_example("segmentation.py", str(pets), *options, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(found) == ["vanilla", "cutmix", "automix"]
    assert all(0 <= score <= 100 for scores in found.values() for score in scores)
    assert all(len(scores) == 2 for scores in found.values())
    assert (tmp_path / "out" / "mixed.png").stat().st_size > 1000
    zoo = ["--mix-block", "zoo:tf_efficientnet_lite0-birds", "--size", "32", "--epochs", "1", "--mixing", "automix"]
    done = run_example("segmentation.py", str(pets), *zoo, "--out", str(tmp_path / "zoo"))
    assert done.returncode == 0, done.stderr
    assert list(json.loads((tmp_path / "zoo" / "results.json").read_text())) == ["automix"]
    refused = run_example("segmentation.py", str(pets / "images"))
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr


def test_mean_iou_of_the_example_is_that_of_torchmetrics() -> None:
    from torchmetrics.classification import MulticlassJaccardIndex

    example = load_example("segmentation")
    maps = torch.randint(2, (40, 6, 7), dtype=torch.uint8)
    maps[torch.rand(maps.shape) < 0.2] = 255
    images = torch.randint(256, (40, 3, 6, 7), dtype=torch.uint8)
    oracle = MulticlassJaccardIndex(2, ignore_index=255, average="macro")
    answers = example.normalize(images)[:, :2]
    expected = 100 * oracle(answers.argmax(dim=1), maps.long()).item()

    class FirstChannels(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :2]

    found = example.mean_iou(FirstChannels(), example.Pixels(images, maps, torch.zeros(40)))
    assert found == pytest.approx(expected, abs=1e-3)


def test_read_and_crops_of_the_example_keep_image_and_map_together(pets: Path) -> None:
    example = load_example("segmentation")
    train = example.read(automix.data.open_dataset(str(pets))[0], 40)
    assert train.images.shape == (8, 3, 40, 40)
    assert set(train.maps.unique().tolist()) == {0, 1, 255}
    for x, maps, _ in train.batches(30, 0, 0):
        animal = x[:, 0] > 1  # red, which the background has not
        assert x.shape[-2:] == maps.shape[-2:] == (30, 30)
        assert bool(animal[maps == 1].all())
        assert not bool(animal[maps == 0].float().mean() > 0.05)  # JPEG and resizing blur the edge


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_minimal_example_equals_the_library(seed: int) -> None:
    """Two steps with the same weights and draws: losses, gradients and teacher, in float64."""
    example = load_example("automix_minimal")
    network = example.Network().double()
    options: dict[str, Any] = {"preset": "paper", "mixed_head": False, "momentum_warmup": True}
    library = automix.AutoMix(copy.deepcopy(network), layer="body", channels=64, seed=seed, **options).double()
    minimal = example.AutoMix(network)
    minimal.block.double().load_state_dict(library.mix_block.state_dict())
    groups = library.param_groups(lr=0.1)
    assert {group["lr"] for group in groups} == {0.1}
    theirs = torch.optim.SGD(groups, momentum=0.9)
    ours = torch.optim.SGD([*minimal.student.parameters(), *minimal.block.parameters()], lr=0.1, momentum=0.9)
    x, y = batch(6, num_classes=10)
    x = x[:, :1].double()
    for step in range(2):
        generator = step_generator(seed, step)
        q, k = (library.draw(x, generator) for _ in range(2))
        expected = library(x, y).loss
        loss = minimal.loss(x, y, (q.lam, q.index), (k.lam, k.index), progress=library.progress)
        torch.testing.assert_close(loss, expected)
        for optimizer, value in ((ours, loss), (theirs, expected)):
            optimizer.zero_grad()
            value.backward()
        pairs = [(minimal.student, library.student), (minimal.block, library.mix_block)]
        for mine, other in pairs:
            for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad)
                assert a.grad.abs().sum() > 0
        ours.step()
        theirs.step()
        minimal.update(step, progress=step / 4)
        library.update(step / 4)
        assert library.teacher is not None
        torch.testing.assert_close(minimal.teacher.state_dict(), library.teacher.state_dict())


def test_minimal_example_is_short() -> None:
    assert len((ROOT / "examples" / "automix_minimal.py").read_text().splitlines()) < 150


def test_minimal_example_trains() -> None:
    assert load_example("automix_minimal").train(epochs=8) > 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bare_loop.py", "--method", "nonsense"), "invalid choice: 'nonsense'"),
        (("bare_loop.py", "--epochs", "0"), "--epochs must be at least 1"),
    ],
)
def test_examples_refuse_wrong_values_in_one_line(arguments: tuple[str, str, str], message: str) -> None:
    done = run_example(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr
