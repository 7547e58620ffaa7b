"""The compatibility module: torchvision works here, and a matching installation is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from automix._compat.torchvision import nms

SOURCE = Path(__file__).parents[1] / "src"

STUB = """
import sys
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): module.native = True
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, Loader(), is_package=True) if name == "torchvision" else None
import automix._compat.torchvision as compat
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, compat._Finder)]
compat.PathFinder = Finder
sys.meta_path.insert(0, compat._Finder())
"""
OURS = "[finder for finder in sys.meta_path if 'automix' in type(finder).__module__]"


def python(code: str, path: Path | None = None) -> str:
    """What a new interpreter prints, with `path` before all other places of packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*([path] if path else []), SOURCE]))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_importing_automix_imports_no_large_package() -> None:
    code = "import automix, sys; print([n for n in ('torch', 'torchvision', 'timm', 'numpy') if n in sys.modules])"
    assert python(code) == "[]"


def test_timm_imports_after_automix_and_no_finder_stays() -> None:
    assert python(f"import automix, timm, sys; print({OURS})") == "[]"


@pytest.mark.parametrize(
    ("linked", "libraries", "found"),
    [
        ("libtorch_cuda.so", ["libtorch_cpu.so"], True),
        ("libtorch_cuda.so", ["libtorch_cpu.so", "libtorch_cuda.so"], False),
        ("libtorch_cpu.so", ["libtorch_cpu.so"], False),
        ("", ["libtorch_cpu.so"], False),
        (None, ["libtorch_cpu.so"], False),
    ],
    ids=["cuda-beside-cpu", "cuda", "cpu", "empty-file", "no-extension"],
)
def test_the_finder_is_installed_only_beside_a_torch_without_cuda(
    linked: str | None, libraries: list[str], found: bool, tmp_path: Path
) -> None:
    """Stand-ins for the two packages; importing either would fail."""
    for package in ("torch", "torchvision"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('not to be imported')\n")
    (tmp_path / "torch" / "lib").mkdir()
    for name in libraries:
        (tmp_path / "torch" / "lib" / name).touch()
    if linked is not None:
        (tmp_path / "torchvision" / "_C.so").write_bytes(b"\x7fELF" * (linked != "") + linked.encode() * 2)
    assert python(f"import sys, automix; print(bool({OURS}))", tmp_path) == str(found)


def test_without_torchvision_nothing_is_installed(tmp_path: Path) -> None:
    code = "import sys, importlib.util as u; sys.modules['torchvision'] = None\n"
    assert python(f"{code}import automix; print({OURS})") == "[]"


def test_no_operator_is_registered_if_torchvision_imports() -> None:
    """A stand-in whose import succeeds, so no operator may be touched."""
    code = (
        STUB
        + "import torchvision as t, torch; print(t.native, compat.is_patched(), hasattr(torch.ops.torchvision, 'nms'))"
    )
    assert python(code) == "True False False"


def test_other_errors_of_the_import_pass_through() -> None:
    code = STUB + (
        "def fail(self, module): raise RuntimeError('something else')\n"
        "Loader.exec_module = fail\n"
        "try:\n    import torchvision\nexcept RuntimeError as error:\n    print(error, compat.is_patched())"
    )
    assert python(code) == "something else False"


def test_torchvision_imported_first_is_left_alone() -> None:
    code = (
        "import sys, types\nsys.modules['torchvision'] = types.ModuleType('torchvision')\n"
        f"import automix\nprint({OURS})"
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
def test_nms_equals_the_textbook_loop(threshold: float) -> None:
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
