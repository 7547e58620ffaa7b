"""AutoMix (Liu et al., 2022): a Mix Block learns which pixels of two images to keep, from the classifier's own loss.

`AutoMix` is the task, `AutoMixSettings` its settings and presets, `MixBlock` the mask generator. `AutoMixUnlabeled`
needs no labels. ``mix_block="zoo:NAME"`` takes a block that comes with the package; `automix models` lists these.
"""

from dataclasses import fields
from typing import Any

from torch import nn

from automix.methods.automix.block_file import BlockCard, load_mix_block, save_mix_block, without_classes
from automix.methods.automix.diagnostics import diagnose, mask_warnings
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.mix_block_task import MixBlockTask
from automix.methods.automix.settings import DECIDED_BY_BLOCK, PRESETS, AutoMixSettings
from automix.methods.automix.task import DEFAULT_LAYER as DEFAULT_LAYER
from automix.methods.automix.task import AutoMix
from automix.methods.automix.unlabeled import AutoMixUnlabeled, MixedViews
from automix.methods.automix.zoo import list_zoo

__all__ = [
    "PRESETS",
    "AutoMix",
    "AutoMixSettings",
    "AutoMixUnlabeled",
    "BlockCard",
    "MixBlock",
    "MixBlockTask",
    "MixedViews",
    "create_task",
    "diagnose",
    "list_zoo",
    "load_mix_block",
    "mask_warnings",
    "resolve_settings",
    "save_mix_block",
    "without_classes",
]

OWN_TEACHER = True
"""AutoMix has a momentum teacher, whether ``ema`` is given or not (see `has_own_teacher`)."""


OPTION_SOURCES = (AutoMix, AutoMixSettings)
"""Where the options are that `create_task` passes on (see `option_sources`)."""


def create_task(model: nn.Module, *, ema: bool = True, **options: Any) -> AutoMix:
    """Build the AutoMix task.

    Args:
        model: The network to train.
        ema: Has no effect; accepted as by every task. AutoMix has its momentum teacher anyway.
        **options: Options of `AutoMix`.

    Returns:
        The task.
    """
    return AutoMix(model, **options)


def resolve_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Resolve a preset and its overrides into all settings, as a run records them.

    Args:
        options: Options of `AutoMix`.

    Returns:
        The fields of `AutoMixSettings` by name; without those of the Mix Block if a trained one is given.
    """
    names = {"preset", *(item.name for item in fields(AutoMixSettings))}
    settings = AutoMixSettings.from_preset(**{name: value for name, value in options.items() if name in names})
    of_block = DECIDED_BY_BLOCK if options.get("mix_block") is not None else ()
    return {name: value for name, value in settings.to_dict().items() if name not in of_block}
