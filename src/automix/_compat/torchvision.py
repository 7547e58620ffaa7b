"""Make ``import torchvision`` work where its CUDA wheel is installed beside a CPU-only torch.

The torchvision wheel of the package index is built against CUDA. Beside a CPU-only torch its C++ extension cannot be
loaded, and ``import torchvision`` (hence ``import timm``) ends in ``RuntimeError: operator torchvision::nms does not
exist`` (pytorch/vision issues 9077 and 9085).

`install` looks at the files of both packages and imports neither. If torchvision's extension links ``libtorch_cuda``
and torch has no such library, it adds a finder to the import system. On every other installation it does nothing.

The finder acts on the first ``import torchvision`` and removes itself. It runs the real import. If that fails with the
error above, it declares the two operators that torchvision asks for while it is imported, gives ``nms`` a CPU kernel
written in torch, replaces torchvision's slow Python version of ``roi_align``, and runs the import again. The order
matters: registering an operator that the native extension brings as well aborts the process.

``timm`` can be imported after ``import automix`` only; in a process that imports timm alone, nothing is mended.
"""

import mmap
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_CUDA_LIBRARY = "libtorch_cuda"
_MISSING = "operator torchvision::nms does not exist"
_libraries: list[Any] = []  # of torch.library; a Library takes its operators along when it is collected


def install() -> None:
    """Prepare the first ``import torchvision``, if the wheel that is installed does not fit torch."""
    if "torchvision" not in sys.modules and needs_repair():
        sys.meta_path.insert(0, _Finder())


def needs_repair() -> bool:
    """Tell from the files whether torchvision's extension links a CUDA library that torch does not have.

    Returns:
        True if ``import torchvision`` would fail. Neither package is imported.
    """
    torch, torchvision = _folder("torch"), _folder("torchvision")
    if torch is None or torchvision is None or any((torch / "lib").glob(f"{_CUDA_LIBRARY}*")):
        return False
    return any(_contains(path, _CUDA_LIBRARY.encode()) for path in torchvision.glob("_C*.so"))


def is_patched() -> bool:
    """Tell whether torchvision has been imported and had to be mended.

    Returns:
        True if this process uses the operators of this module.
    """
    return bool(_libraries)


def _folder(package: str) -> Path | None:
    """Where an installed package lies."""
    spec = find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def _contains(path: Path, text: bytes) -> bool:
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # which cannot be mapped
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text) >= 0


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            run = loader.exec_module
            # An attribute of this one loader: it stays the SourceFileLoader that importlib.resources and others expect.
            loader.exec_module = lambda module: self._execute(module, run)  # type: ignore[method-assign]
        return spec

    def _execute(self, module: ModuleType, run: Any) -> None:
        """Leave the import system, then import; `find_spec` alone is no import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        _import_or_mend(module, run)


def _import_or_mend(module: ModuleType, run: Any) -> None:
    try:
        run(module)
    except RuntimeError as error:
        if _MISSING not in str(error):
            raise
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]  # half-imported: the second run must start afresh
        _register_operators()
        run(module)
        # nms asks "did the extension load?" before it calls the operator; the operator is there now.
        boxes: Any = import_module("torchvision.ops.boxes")
        boxes._assert_has_ops = lambda: None
        _replace_roi_align()


def _register_operators() -> None:
    import torch

    library: Any = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    _libraries.append(library)


def _replace_roi_align() -> None:
    """Replace the version that torchvision would compile where the native operator is missing."""
    from automix._compat.roi_align import roi_align

    module: Any = import_module("torchvision.ops.roi_align")
    module._roi_align = roi_align
    module.is_compile_supported = lambda device: True


def nms(dets: "Tensor", scores: "Tensor", iou_threshold: float) -> "Tensor":
    """Suppress the boxes that overlap a better one, greedily.

    A box falls if a better box that itself stays overlaps it by more than `iou_threshold`. Starting from "all stay" and
    applying this rule to all boxes at once reaches the greedy answer: after n rounds the n best boxes are settled, and
    in practice a few rounds settle all of them.

    Args:
        dets: Boxes, ``(N, 4)``.
        scores: Their scores, ``(N,)``.
        iou_threshold: Largest overlap of two boxes that are both kept.

    Returns:
        Indices of the boxes that are kept, best score first.
    """
    import torch
    from torchvision.ops.boxes import box_iou

    order = scores.argsort(descending=True, stable=True)
    boxes = dets[order]
    suppresses = (box_iou(boxes, boxes) > iou_threshold).triu(diagonal=1).float()
    keep = torch.ones(len(order), dtype=torch.bool, device=dets.device)
    while True:
        settled = keep.float() @ suppresses == 0
        if torch.equal(settled, keep):
            return order[keep]
        keep = settled
