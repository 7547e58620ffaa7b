"""The compatibility module: torchvision works here, and a normal installation is left alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from automix._compat.torchvision import nms

STUB = """
import sys, types
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): module.native = True
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, Loader(), is_package=True) if name == "torchvision" else None
import automix._compat.torchvision as compat
compat.PathFinder = Finder
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_importing_automix_imports_neither_torchvision_nor_timm() -> None:
    code = "import automix, sys; print([n for n in ('torchvision', 'timm', 'torch._dynamo') if n in sys.modules])"
    assert python(code) == "[]"


def test_timm_imports_after_automix_and_no_finder_stays() -> None:
    code = "import automix, timm, sys; print([f for f in sys.meta_path if 'automix' in type(f).__module__])"
    assert python(code) == "[]"


def test_where_torchvision_imports_nothing_is_registered() -> None:
    """A stand-in for a normal installation: its import succeeds, so no operator may be touched."""
    code = (
        STUB
        + "import torchvision as t, torch; print(t.native, compat.is_patched(), hasattr(torch.ops.torchvision, 'nms'))"
    )
    assert python(code) == "True False False"


def test_other_errors_pass_through() -> None:
    code = STUB + (
        "def fail(self, module): raise RuntimeError('something else')\n"
        "Loader.exec_module = fail\n"
        "try:\n    import torchvision\nexcept RuntimeError as error:\n    print(error, compat.is_patched())"
    )
    assert python(code) == "something else False"


def test_torchvision_imported_first_is_left_alone() -> None:
    code = (
        "import sys, types\nsys.modules['torchvision'] = types.ModuleType('torchvision')\n"
        "import automix\nprint([f for f in sys.meta_path if 'automix' in type(f).__module__])"
    )
    assert python(code) == "[]"


def greedy(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    """Non-maximum suppression as the textbook has it, box by box."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        for j in kept:
            wh = np.minimum(boxes[i, 2:], boxes[j, 2:]) - np.maximum(boxes[i, :2], boxes[j, :2])
            common = max(wh[0], 0) * max(wh[1], 0)
            areas = [np.prod(boxes[n, 2:] - boxes[n, :2]) for n in (i, j)]
            if common / (sum(areas) - common) > threshold:
                break
        else:
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_nms_is_the_greedy_one(threshold: float) -> None:
    generator = np.random.default_rng(0)
    for count in (0, 1, 40, 200):
        corner, size = generator.uniform(0, 10, (count, 2)), generator.uniform(0.5, 5, (count, 2))
        boxes, scores = np.hstack([corner, corner + size]), generator.uniform(size=count)
        ours = nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
        assert ours.tolist() == greedy(boxes, scores, threshold)


def test_torchvisions_own_nms_runs_here() -> None:
    import torchvision

    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
