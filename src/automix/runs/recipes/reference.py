"""AutoMix's options in the authors' configurations, by dataset and backbone, where the paper is silent.

For ``preset="reference"``. The source of each value is a file of the authors' toolbox, OpenMixup, below
``configs/classification``. Options that are the same in all of them are in the preset itself. The cosine of the
student's learning rate ends at 0.05 in their configurations of AutoMix for CIFAR and Tiny-ImageNet and at 0 in those of
all other methods. That is no option of AutoMix: give ``lr_floor`` to every method that is compared
(``automix bench control``).
"""

from typing import Any

from automix.runs.recipes.alphas import Setting, setting_of

BLOCKS: dict[Setting, dict[str, Any]] = {
    # cifar100/automix/basic/r18_l2_a2_near_lam_cat_L1_01_mlr5e_2.py: one learning rate, 0.1 to 0.05, "no lam cat for
    # small datasets"
    "cifar": {"lam_embedding": False},
    # tiny_imagenet/automix/basic/r18_l2_a2_near_mb_mlr1e_3_bb_mlr5e_2.py: student 0.2 to 0.05, block 0.1 to 0.001
    "tiny": {"lam_embedding": False, "block_lr": 0.5, "block_lr_floor": 0.005},
    # imagenet/automix/basic/r18_l2_a2_near_lam_cat_mb_mlr1e_3_bb_mlr0.py: student 0.1 to 0, block 0.1 to 0.001
    "pytorch": {"block_lr_floor": 0.01},
    # inaturalist2017 and place205/automix/basic/r18_l2_a2_near_lam_cat_mb_mlr1e_3_bb_mlr0_4xb64_ep100.py
    "inat": {"block_lr_floor": 0.01},
    "places": {"block_lr_floor": 0.01},
    # imagenet/automix/deit/deit_s_l6_a2_near_lam_cat_switch0_8_8x128_ep300.py: block 1e-3 to 1e-4
    "deit_rsb": {"block_lr_floor": 0.1},
    # cub200/automix/r18_l2_a2_near_lam_cat_mb_mlr5e_4_1xb16_ep200.py: student 0.001 to 0, block 0.01 to 5e-4,
    # mix_shuffle_no_repeat
    "fine_grained": {"block_lr": 10.0, "block_lr_floor": 0.5, "distinct_pairs": True},
}

LAYERS = {"wrn": 2, "deit": 2, "vit": 2}
"""The stage whose map feeds the Mix Block, by how the name of a backbone begins; 3 for all others.

cifar100/automix/basic/wrn28_8_l1_a2_near_lam_cat_L1_01_mlr1e_3.py has group 2 of 3, the file of DeiT-S block 6 of 12,
which is stage 2 of 4.
"""


def reference_options(setting: Setting | None, model: str, data: str | None = None) -> dict[str, Any]:
    """Look up AutoMix's options in the authors' configurations.

    Args:
        setting: The recipe's setting, for data that the paper does not name.
        model: Name of the network.
        data: Name of the dataset, or a folder.

    Returns:
        Options of `AutoMix` by name, on top of the preset "reference".
    """
    setting = setting_of(data) or setting
    options = dict(BLOCKS[setting]) if setting else {}
    layer = next((layer for family, layer in LAYERS.items() if model.startswith(family)), None)
    return options if layer is None else {**options, "layer": layer}
