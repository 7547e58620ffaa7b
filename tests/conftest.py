import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import automix  # noqa: F401  (before anything that imports torchvision)
from automix.data import draw_shapes

torch.set_num_threads(1)  # tests run in parallel; several threads each would only fight


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run the files, and the tests of each file, in a random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        chance = random.Random(seed)
        places: dict[Path, float] = {}
        items.sort(key=lambda item: (places.setdefault(item.path, chance.random()), chance.random()))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class HandWritten(nn.Module):
    """A classifier as a user would write one: no feature_info, submodules with names."""

    def __init__(self, num_classes: int = 5, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1, stride=2), norm(12), nn.ReLU())
        self.head = nn.Linear(12, num_classes)
        self.unused = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean(dim=(2, 3)))


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


def batch(size: int = 6, height: int = 16, width: int = 16, num_classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(size, 3, height, width, generator=generator)
    return x, torch.randint(num_classes, (size,), generator=generator)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 3 classes with 12 training and 4 test images each, 16 px."""
    root = tmp_path_factory.mktemp("data") / "photos"
    drawn = draw_shapes(12 * 16, 16)
    for number, (image, label) in enumerate(zip(drawn.images, drawn.labels.tolist(), strict=True)):
        if label < 3:
            folder = root / ("train" if number // 12 < 12 else "test") / "abc"[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, where there is one."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'automix[dev]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-sync", *quiet])
        yield started
        started.close()


@pytest.fixture(scope="session")
def find_violations() -> Callable[[Any], list[str]]:
    """A function that lists what axe-core objects to on a page: impact, rule and the first element."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-core: pip install 'automix[dev]'"
    ).Axe()

    def violations_of(page: Any) -> list[str]:
        found = axe.run(page).response["violations"]
        return [f"{one['impact']}: {one['id']}, {one['nodes'][0]['html'][:100]}" for one in found]

    return violations_of
