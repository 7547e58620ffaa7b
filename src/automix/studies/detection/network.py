"""Faster R-CNN (Ren et al., 2015) with a trained classifier as backbone, from torchvision's parts.

c4   Detectron2's R50-C4: proposals from the map of stage 3, with anchors of five sizes and three aspect ratios. Each
     proposal is pooled from that map by RoIAlign at 14 x 14 and goes through the classifier's own stage 4. The mean
     over the result is classified and its box refined.
fpn  Lin et al. (2017): a feature pyramid over stages 1 to 4 and a coarser fifth map, anchors of one size on each.
     Proposals are pooled at 7 x 7 and go through two linear layers of 1024.

As in Detectron2, batch norms are frozen: statistics, scale and shift stay the classifier's. This needs a trained
classifier: in a new network timm's zero-initialized scales would switch the residual blocks off for good. MoCo's
variant of c4 (``batch_norm="trained"``, ``head_norm=True``, ``freeze_at=0``) trains them and has one more after stage
4. MoCo computes their statistics again before the test (PreciseBN); here they are the running averages.

torchvision's parts differ from Detectron2's: RoIAlign counts pixels from their corners (`aligned=False`) and samples
each bin at 2 x 2 points; the box loss is quadratic below 1/9; the last layers have torch's default initialization;
images of all shapes share a batch.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.core.validation import check_choice, check_whole
from automix.studies.detection.recipe import DetectRecipe

Kind = Literal["c4", "fpn"]
ASPECT_RATIOS = (0.5, 1.0, 2.0)  # height / width of the anchors
PYRAMID_CHANNELS = 256
HIDDEN = 1024  # FPN's two linear layers


def create_detector(
    backbone: nn.Module,
    num_classes: int,
    *,
    kind: Kind = "c4",
    settings: DetectRecipe | None = None,
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
) -> nn.Module:
    """Build torchvision's FasterRCNN on a trained classifier.

    In training mode the detector takes images in [0, 1] and targets and returns losses; in eval mode it takes images
    and returns boxes. Labels count from 1; 0 is the background.

    Args:
        backbone: A trained timm classifier. Its modules are used, not copied. C4 needs a ResNet, FPN a network with
            four stages that each halve the map.
        num_classes: Number of object classes, without the background.
        kind: ``"c4"`` or ``"fpn"``, see above.
        settings: Image sizes, anchors, proposals and frozen stages; `DetectRecipe`'s defaults if not given.
        mean: Mean of each channel that the classifier was trained with.
        std: Standard deviation of each channel that the classifier was trained with.

    Returns:
        The detector, in training mode.
    """
    from timm.layers import freeze_batch_norm_2d

    check_choice("kind", kind, get_args(Kind))
    check_whole("num_classes", num_classes, 1)
    settings = settings or DetectRecipe()
    parts = _c4_parts if kind == "c4" else _fpn_parts
    if settings.head_norm and kind != "c4":
        raise AutomixError(f"head_norm must be False for kind {kind!r}, got True; only c4 has stage 4 as box head")
    if settings.batch_norm == "frozen":
        freeze_batch_norm_2d(backbone)
    _freeze(backbone, settings.freeze_at)
    return _assemble(*parts(backbone, num_classes, settings), settings=settings, mean=mean, std=std)


def _c4_parts(backbone: nn.Module, num_classes: int, settings: DetectRecipe) -> tuple[nn.Module, dict[str, Any]]:
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.detection.faster_rcnn import AnchorGenerator, FastRCNNPredictor
    from torchvision.models.detection.rpn import RPNHead
    from torchvision.ops import MultiScaleRoIAlign

    if not _is_resnet(backbone):
        raise AutomixError(
            f"kind 'c4' needs a ResNet, got {type(backbone).__name__}; use kind 'fpn' for other networks"
        )
    network: Any = backbone
    body: Any = IntermediateLayerGetter(network, {"layer3": "0"})
    body.out_channels, head_channels = (int(network.feature_info[place]["num_chs"]) for place in (-2, -1))
    proposals = settings.proposals
    norm = {"norm": nn.BatchNorm2d(head_channels)} if settings.head_norm else {}
    return body, {
        "rpn_anchor_generator": AnchorGenerator((settings.anchor_sizes,), (ASPECT_RATIOS,)),
        "rpn_head": RPNHead(body.out_channels, len(settings.anchor_sizes) * len(ASPECT_RATIOS)),
        "rpn_pre_nms_top_n_train": 6 * proposals,
        "rpn_post_nms_top_n_train": proposals,
        "rpn_pre_nms_top_n_test": 3 * proposals,
        "rpn_post_nms_top_n_test": proposals // 2,
        "box_roi_pool": MultiScaleRoIAlign(["0"], output_size=14, sampling_ratio=2),
        "box_head": nn.Sequential(OrderedDict(layer4=network.layer4, **norm, pool=nn.AdaptiveAvgPool2d(1))),
        "box_predictor": FastRCNNPredictor(head_channels, num_classes + 1),
    }


def _fpn_parts(backbone: nn.Module, num_classes: int, settings: DetectRecipe) -> tuple[nn.Module, dict[str, Any]]:
    from torchvision.models.detection.faster_rcnn import AnchorGenerator, FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.rpn import RPNHead
    from torchvision.ops import MultiScaleRoIAlign

    if len(settings.anchor_sizes) != 5:
        raise AutomixError(f"anchor_sizes must have five values for kind 'fpn', got {settings.anchor_sizes}")
    half = settings.proposals // 2
    return _Pyramid(backbone), {
        "rpn_anchor_generator": AnchorGenerator(tuple((size,) for size in settings.anchor_sizes), (ASPECT_RATIOS,) * 5),
        "rpn_head": RPNHead(PYRAMID_CHANNELS, len(ASPECT_RATIOS)),
        "rpn_pre_nms_top_n_train": 2 * half,
        "rpn_post_nms_top_n_train": half,
        "rpn_pre_nms_top_n_test": half,
        "rpn_post_nms_top_n_test": half,
        "box_roi_pool": MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2),
        "box_head": TwoMLPHead(PYRAMID_CHANNELS * 7**2, HIDDEN),
        "box_predictor": FastRCNNPredictor(HIDDEN, num_classes + 1),
    }


class _Pyramid(nn.Module):
    """The four stages of a network and torchvision's feature pyramid over them."""

    out_channels = PYRAMID_CHANNELS

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

        self.body, channels = _four_stages(backbone)
        self.fpn = FeaturePyramidNetwork(channels, PYRAMID_CHANNELS, extra_blocks=LastLevelMaxPool())

    def forward(self, x: Tensor) -> "OrderedDict[str, Tensor]":
        maps = self.body(x)
        return self.fpn(maps if isinstance(maps, dict) else OrderedDict((str(i), m) for i, m in enumerate(maps)))


def _four_stages(backbone: nn.Module) -> tuple[nn.Module, list[int]]:
    """Find the module that returns the maps of stages 1 to 4, and their channels."""
    from timm.models._features import FeatureGetterNet
    from torchvision.models._utils import IntermediateLayerGetter

    info = list(getattr(backbone, "feature_info", ()))[-4:]
    finest = info[0]["reduction"] if info else 0
    halving = [stage["reduction"] for stage in info] == [finest * 2**i for i in range(4)]
    body: nn.Module
    if halving and _is_resnet(backbone):
        body = IntermediateLayerGetter(backbone, {f"layer{i + 1}": str(i) for i in range(4)})
    elif halving and hasattr(backbone, "forward_intermediates"):
        body = FeatureGetterNet(backbone, out_indices=[-4, -3, -2, -1])
    else:
        raise AutomixError(
            "kind 'fpn' needs a network with four stages that each halve the map (ResNet, ConvNeXt, EfficientNet), "
            f"got {type(backbone).__name__}"
        )
    return body, [int(stage["num_chs"]) for stage in info]


def _assemble(
    body: nn.Module, parts: dict[str, Any], *, settings: DetectRecipe, mean: Sequence[float], std: Sequence[float]
) -> nn.Module:
    from torchvision.models.detection.faster_rcnn import FasterRCNN

    return FasterRCNN(
        body,
        min_size=settings.short_sides,
        max_size=settings.longest_side,
        image_mean=list(mean),
        image_std=list(std),
        rpn_batch_size_per_image=settings.regions // 2,
        box_batch_size_per_image=settings.regions,
        **parts,
    )


def _freeze(backbone: nn.Module, freeze_at: int) -> None:
    """Freeze the weights and batch norms of the stem and the first `freeze_at` - 1 stages."""
    from timm.layers import freeze_batch_norm_2d

    if freeze_at and not _is_resnet(backbone):
        raise AutomixError(
            f"freeze_at must be 0 for {type(backbone).__name__}, got {freeze_at}; only ResNets freeze stages"
        )
    if freeze_at:
        stages = [f"layer{stage}" for stage in range(1, 5)]
        stem = [name for name, _ in backbone.named_children() if name in ("conv1", "bn1")]
        for name in [*stem, *stages[: freeze_at - 1]]:
            setattr(backbone, name, freeze_batch_norm_2d(backbone.get_submodule(name).requires_grad_(False)))


def _is_resnet(backbone: nn.Module) -> bool:
    from timm.models.resnet import ResNet

    return isinstance(backbone, ResNet)


def synchronize_batch_norms(detector: nn.Module) -> nn.Module:
    """Compute the statistics of trained batch norms over all processes. Torch has this for GPUs alone.

    Args:
        detector: From `create_detector`.

    Returns:
        The detector with SyncBatchNorm; its parameters are the same tensors.
    """
    from timm.layers import convert_sync_batchnorm

    return convert_sync_batchnorm(detector)


def trained_parameters(detector: nn.Module) -> list[nn.Parameter]:
    """List the parameters that are not frozen.

    Args:
        detector: From `create_detector`.

    Returns:
        The parameters for the optimizer.
    """
    return [parameter for parameter in detector.parameters() if parameter.requires_grad]
