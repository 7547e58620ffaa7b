"""Make ``import torchvision`` work beside a CPU-only torch.

The torchvision wheel of the package index is built against CUDA. Next to a CPU-only torch its C++ extension cannot be
loaded, and ``import torchvision`` (hence ``import timm``) ends in ``RuntimeError: operator torchvision::nms does not
exist`` (pytorch/vision issues 9077 and 9085).

``install`` puts a finder before the others that waits for the first ``import torchvision`` and steps aside. The real
import runs as it is; on a normal installation that is all, nothing is registered and nothing is changed. Only after
that very error the two operators that torchvision asks for while importing are declared, ``nms`` gets a CPU kernel
written in torch, and the import runs again. torchvision's slow Python version of ``roi_align`` makes way for a faster
one. Waiting, instead of importing torchvision right here, keeps ``import automix`` quick: torchvision alone takes more
than a second.

The order matters: registering an operator that the native extension brings as well aborts the process.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

_MISSING = "operator torchvision::nms does not exist"
_libraries: list[torch.library.Library] = []  # a Library takes its operators along when it is collected


def install() -> None:
    """Wait for the first ``import torchvision``; nothing to do where it has been imported already."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def is_patched() -> bool:
    """True where torchvision has been imported and needed the mending."""
    return bool(_libraries)


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
        """Leave the import system, then import; not when the spec is found, which some only look for."""
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
    library: Any = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    _libraries.append(library)


def _replace_roi_align() -> None:
    """What torchvision calls where the native operator is missing; by itself it would compile its own."""
    from automix._compat.roi_align import roi_align

    module: Any = import_module("torchvision.ops.roi_align")
    module._roi_align = roi_align
    module.is_compile_supported = lambda device: True


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Greedy non-maximum suppression: indices of the boxes kept, best score first.

    A box falls if a better box that itself stays overlaps it by more than `iou_threshold`. Starting from "all stay" and
    applying this rule to all boxes at once reaches the greedy answer: after n rounds the n best boxes are settled, and
    in practice a few rounds settle all of them.
    """
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
