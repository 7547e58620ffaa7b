"""The recipes against the paper, cell by cell.

The paper's table is copied below. Where the environment variable AUTOMIX_PAPER names its LaTeX source, the copy, the
expected numbers and the quoted sentences are compared with that too.
"""

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import docstring_parser
import pytest
import timm
import timm.data.auto_augment
import torch

import automix
from automix.core.errors import AutomixError
from automix.data import DATASETS
from automix.data.augmentation import POLICIES
from automix.methods.automix import AutoMixSettings
from automix.runs.recipes import RECIPES, Recipe, alphas, find_recipe
from automix.training.build import build_schedule

every_recipe = pytest.mark.parametrize("name", RECIPES)
with_paper = pytest.mark.skipif(
    "AUTOMIX_PAPER" not in os.environ, reason="AUTOMIX_PAPER does not name the LaTeX source"
)


def rows_of(latex: str) -> dict[str, list[str]]:
    """The rows of a LaTeX table by the words of their first cell."""
    lines = (line.split(r"\\")[0].split("&") for line in latex.splitlines() if "&" in line)
    return {" ".join(first.split()): [cell.strip() for cell in cells] for first, *cells in lines}


def table_of(label: str) -> dict[str, list[str]]:
    """The rows of the paper's table `label`."""
    source = Path(os.environ["AUTOMIX_PAPER"]).read_text(encoding="utf-8")
    before = source[: source.index(rf"\label{{{label}}}")]
    return rows_of(before[before.rindex(r"\begin{tabular}") :])


# --- the table of training settings ----------------------------------------------------------------------------------

TABLE = rows_of(
    r"""
    Procedure                  & PyTorch   & DeiT              & RSB A2            & RSB A3            \\
    Train Res                  & 224       & 224               & 224               & 160               \\
    Test Res                   & 224       & 224               & 224               & 224               \\
    Test  crop ratio           & 0.875     & 0.875             & 0.95              & 0.95              \\
    Epochs                     & 100/300   & 300               & 300               & 100               \\
    Batch size                 & 256       & 1024              & 2048              & 2048              \\
    Optimizer                  & SGD       & AdamW             & LAMB              & LAMB              \\
    LR                         & 0.1       & $1\times 10^{-3}$ & $5\times 10^{-3}$ & $8\times 10^{-3}$ \\
    LR decay                   & cosine    & cosine            & cosine            & cosine            \\
    Weight decay               & $10^{-4}$ & 0.05              & 0.02              & 0.02              \\
    Warmup epochs              & \xmarkg   & 5                 & 5                 & 5                 \\
    Label smoothing $\epsilon$ & \xmarkg   & 0.1               & \xmarkg           & \xmarkg           \\
    Dropout                    & \xmarkg   & \xmarkg           & \xmarkg           & \xmarkg           \\
    Stoch. Depth               & \xmarkg   & 0.1               & 0.05              & \xmarkg           \\
    Repeated Aug               & \xmarkg   & \cmark            & \cmark            & \xmarkg           \\
    Gradient Clip.             & \xmarkg   & 1.0               & \xmarkg           & \xmarkg           \\
    H. flip                    & \cmark    & \cmark            & \cmark            & \cmark            \\
    RRC                        & \cmark    & \cmark            & \cmark            & \cmark            \\
    Rand Augment               & \xmarkg   & 9/0.5             & 7/0.5             & 6/0.5             \\
    Auto Augment               & \xmarkg   & \xmarkg           & \xmarkg           & \xmarkg           \\
    Mixup alpha                & \xmarkg   & 0.8               & 0.1               & 0.1               \\
    Cutmix alpha               & \xmarkg   & 1.0               & 1.0               & 1.0               \\
    Erasing prob.              & \xmarkg   & 0.25              & \xmarkg           & \xmarkg           \\
    ColorJitter                & \xmarkg   & \xmarkg           & \xmarkg           & \xmarkg           \\
    EMA                        & \xmarkg   & \cmark            & \xmarkg           & \xmarkg           \\
    CE loss                    & \cmark    & \cmark            & \xmarkg           & \xmarkg           \\
    BCE loss                   & \xmarkg   & \xmarkg           & \cmark            & \cmark            \\
    Mixed precision            & \xmarkg   & \xmarkg           & \cmark            & \cmark            \\
    """
)
COLUMNS = {"pytorch100": 0, "pytorch300": 0, "deit": 1, "rsb-a2": 2, "rsb-a3": 3}
READ: dict[str, Callable[[Recipe], Any]] = {
    "Train Res": lambda r: r.train_size,
    "Test Res": lambda r: r.test_size,
    "Test crop ratio": lambda r: r.test_crop,
    "Epochs": lambda r: r.epochs,
    "Batch size": lambda r: r.batch_size,
    "Optimizer": lambda r: r.optimizer,
    "LR": lambda r: r.lr,
    "LR decay": lambda r: "cosine",  # there is no other
    "Weight decay": lambda r: r.weight_decay,
    "Warmup epochs": lambda r: r.warmup_epochs,
    r"Label smoothing $\epsilon$": lambda r: r.label_smoothing,
    "Dropout": lambda r: r.dropout,
    "Stoch. Depth": lambda r: r.drop_path,
    "Repeated Aug": lambda r: {1: False, 3: True}[r.repeats],
    "Gradient Clip.": lambda r: r.clip_grad,
    "H. flip": lambda r: r.flip,
    "RRC": lambda r: r.crop == "resized",
    "Rand Augment": lambda r: r.rand_augment,
    "Auto Augment": lambda r: r.auto_augment,
    "Mixup alpha": lambda r: r.mixup_alpha,
    "Cutmix alpha": lambda r: r.cutmix_alpha,
    "Erasing prob.": lambda r: r.erasing,
    "ColorJitter": lambda r: r.color_jitter,
    "EMA": lambda r: r.ema,
    "CE loss": lambda r: r.loss == "ce",
    "BCE loss": lambda r: r.loss == "bce",
    "Mixed precision": lambda r: r.mixed_precision,
}


def agrees(value: Any, cell: str) -> bool:
    """Whether a recipe's value says what the table's cell says."""
    if cell == r"\xmarkg":
        return not value
    if cell == r"\cmark":
        return value is True
    power = re.fullmatch(r"\$(?:(\d+)\\times )?10\^\{(-\d+)\}\$", cell)
    if power:
        cell = f"{power[1] or 1}e{power[2]}"
    if isinstance(value, str):
        return value == cell.lower()
    return bool(value == float(cell))


@pytest.mark.parametrize("recipe", COLUMNS)
@pytest.mark.parametrize("row", [name for name in TABLE if name != "Procedure"])
def test_every_cell_of_the_table(row: str, recipe: str) -> None:
    cell = TABLE[row][COLUMNS[recipe]]
    if row == "Epochs" and "/" in cell:
        cell = cell.split("/")[recipe == "pytorch300"]
    value = READ[row](find_recipe(recipe))
    assert agrees(value, cell), f"{recipe}: {row} is {cell} in the paper, {value} here"


def test_a_cell_can_disagree() -> None:
    for value, cell in [(0.1, r"\xmarkg"), (1.0, r"\cmark"), (0.002, r"$1\times 10^{-3}$"), ("adam", "AdamW")]:
        assert not agrees(value, cell)


@with_paper
def test_the_table_is_copied_well() -> None:
    assert table_of("tab:app_train_settings") == TABLE


# --- what the paper says in sentences --------------------------------------------------------------------------------


def differences(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    other = asdict(second)
    return {name: (value, other[name]) for name, value in asdict(first).items() if value != other[name]}


def test_cifar() -> None:
    """What the paper tells, what we chose, and nothing else: no further augmentation, warm-up, smoothing, ..."""
    told = {
        "flip": True,
        "crop": "pad",
        "train_size": 32,
        "test_size": 32,
        "optimizer": "sgd",
        "weight_decay": 0.0001,
        "momentum": 0.9,
        "batch_size": 100,
        "epochs": 800,
        "lr": 0.1,
    }
    ours = {"preset": "paper", "test_crop": 1.0, "lr_floor": 0.0, "repeats": 1, "loss": "ce", "mixed_precision": True}
    ours |= {"crop_scale": 0.08, "balance": "none"}  # the scale is of a crop that is not used
    ours |= {"head_lr": 1.0, "layer_decay": 1.0}  # one learning rate for the whole network
    used = {name: value for name, value in asdict(find_recipe("cifar")).items() if value or name in told | ours}
    assert used == told | ours


@pytest.mark.parametrize(
    ("base", "name", "changes"),
    [
        # "similar training ingredients as CIFAR except for the basic learning rate of 0.2 and training 400 epochs",
        # with "RandomResizedCrop for 64x64"
        ("cifar", "tiny", {"lr": 0.2, "epochs": 400, "crop": "resized", "train_size": 64, "test_size": 64}),
        # "training 200 epochs by SGD optimizer with the initial learning rate of 0.001, the weight decay of 0.0005, the
        # batch size of 16, using the standard augmentations as in [ImageNet]; the official PyTorch pre-trained models"
        (
            "pytorch100",
            "fine-grained",
            {"epochs": 200, "lr": 0.001, "weight_decay": 0.0005, "batch_size": 16, "pretrained": True},
        ),
        # "similar settings as (a) ... with the total epoch of 100 epochs (training from scratch)"
        ("pytorch100", "inat", {}),
        ("pytorch100", "places", {}),
        ("pytorch100", "pytorch300", {"epochs": 300}),
        # ours: the images as they are, a short schedule, the usual weight decay of short schedules
        (
            "cifar",
            "quick",
            {"epochs": 30, "weight_decay": 5e-4, "train_size": None, "test_size": None, "preset": "tuned"},
        ),
    ],
)
def test_one_recipe_by_another(base: str, name: str, changes: dict[str, Any]) -> None:
    found = {field: new for field, (_, new) in differences(find_recipe(base), find_recipe(name)).items()}
    assert found == changes


def test_sgd_of_the_pytorch_setting_has_the_papers_momentum() -> None:
    assert find_recipe("pytorch100").momentum == 0.9


@every_recipe
def test_the_cosine_ends_at_zero(name: str) -> None:
    assert find_recipe(name).lr_floor == 0


# --- alphas ----------------------------------------------------------------------------------------------------------

METHODS = ["mixup", "cutmix", "manifoldmix", "saliencymix", "fmix", "resizemix", "puzzlemix", "comixup", "automix"]
BACKBONES = ["resnet18", "resnet18.tv_in1k", "resnet34", "resnet50", "resnext50_32x4d", "resnext101_32x4d", "wrn_28_8"]
CELLS = [  # recipes, for ResNet-18, for larger backbones
    ("cifar", "1 0.2 2 0.2 0.2 1 1 2 2", "1 0.2 2 0.2 0.2 1 1 2 2"),
    ("tiny", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "1 1 0.2 1 1 1 1 2 2"),
    ("pytorch100", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "1 1 0.2 1 1 1 1 2 2"),
    ("pytorch300", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "1 1 0.2 1 1 1 1 2 2"),
    ("deit", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2"),
    ("rsb-a2", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2"),
    ("rsb-a3", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2"),
    ("inat", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "0.2 1 0.2 1 1 1 1 2 2"),
    ("places", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2", "0.2 0.2 0.2 0.2 0.2 0.2 1 2 2"),
    ("fine-grained", "1 1 0.5 0.2 0.2 1 1 2 2", "1 1 0.5 0.2 0.2 1 1 2 2"),
]


@pytest.mark.parametrize("model", BACKBONES)
@pytest.mark.parametrize(("name", "light", "larger"), CELLS)
def test_every_alpha(name: str, light: str, larger: str, model: str) -> None:
    expected = [float(cell) for cell in (light if model.startswith("resnet18") else larger).split()]
    assert [find_recipe(name).alpha(method, model) for method in METHODS] == expected


@every_recipe
@pytest.mark.parametrize("method", ["vanilla", "mixup_or_cutmix", "gridmix", "smoothmix", "attentivemix"])
def test_no_alpha_where_the_paper_gives_none(name: str, method: str) -> None:
    assert find_recipe(name).alpha(method, "resnet50", "cifar100") is None


@pytest.mark.parametrize(
    ("name", "data", "alpha"),
    [
        ("quick", "shapes", None),
        ("quick", None, None),
        ("quick", "cifar100", 2.0),
        ("quick", "sets/CIFAR-10", 2.0),
        ("quick", "sets/tiny-imagenet-200/", 0.2),
        ("quick", "CUB_200_2011", 0.5),
        ("quick", "fgvc-aircraft", 0.5),
        ("cifar", "shapes", 2.0),
        ("deit", "sets/imagenet", 0.2),
        ("pytorch100", "aircraft", 0.5),
        ("fine-grained", "inat2018", 0.2),
        ("fine-grained", "iNaturalist2017", 0.2),
        ("fine-grained", "places205", 0.2),
    ],
)
def test_alphas_go_by_the_dataset_where_the_paper_names_it(name: str, data: str | None, alpha: float | None) -> None:
    assert find_recipe(name).alpha("manifoldmix", "resnet50", data) == alpha
    assert find_recipe(name).alpha("puzzlemix", "resnet50", data) == 1.0


def test_options_for_a_method() -> None:
    assert find_recipe("rsb-a2").options_for("mixup_or_cutmix", "resnet50") == {"mixup_alpha": 0.1, "cutmix_alpha": 1.0}
    assert find_recipe("cifar").options_for("mixup_or_cutmix", "resnet50") == {}
    assert find_recipe("pytorch100").options_for("cutmix", "resnet18", "sets/imagenet") == {"alpha": 0.2}
    assert find_recipe("quick").options_for("cutmix", "resnet18", "shapes") == {}
    assert find_recipe("quick").options_for("automix", "resnet18", "shapes") == {"alpha": 2.0, "preset": "tuned"}
    assert find_recipe("cifar").options_for("automix", "resnet18", "shapes") == {"alpha": 2.0, "preset": "paper"}


@with_paper
def test_the_sentences_about_alphas_are_quoted_well() -> None:
    source = Path(os.environ["AUTOMIX_PAPER"]).read_text(encoding="utf-8")
    source = re.sub(r"\\textit\{([^}]*)\}", r"\1", source).replace(r"\alpha", "alpha").replace("$", "")
    comments = " ".join(re.findall(r"^ *# (.*)$", inspect.getsource(alphas), flags=re.MULTILINE))
    quotes = re.findall(r'"([^"]*)"', comments)
    assert len(quotes) == 6
    for quote in quotes:
        assert quote in source


# --- what a recipe says of itself ------------------------------------------------------------------------------------

EXPECTED = {  # number, table, its label, column of the number in the paper's row AutoMix
    "cifar": ("82.04", 1, "tab:cls_cifar_tiny", 2),
    "tiny": ("67.33", 1, "tab:cls_cifar_tiny", 5),
    "pytorch100": ("77.91", 2, "tab:cls_in_torch", 2),
    "pytorch300": ("79.25", 2, "tab:cls_in_torch", 7),
    "deit": ("80.78", 4, "tab:cls_in_vits", 0),
    "rsb-a2": ("77.58", 3, "tab:cls_in_rsb", 1),
    "rsb-a3": ("78.44", 3, "tab:cls_in_rsb", 0),
    "fine-grained": ("79.87", 5, "tab:cls_fgvc_place", 0),
    "inat": ("64.73", 5, "tab:cls_fgvc_place", 6),
    "places": ("64.06", 5, "tab:cls_fgvc_place", 9),
}


@every_recipe
def test_a_recipe_states_its_command_number_and_source(name: str) -> None:
    text = RECIPES[name].__doc__ or ""
    command = re.search(r"^ +``automix train (\S+) --recipe (\S+) --model (\S+) --method (\S+)``$", text, re.MULTILINE)
    assert command
    assert command[1] in DATASETS
    assert command[2] == name
    assert timm.is_model(command[3].partition(".")[0])
    assert command[4] in automix.methods()
    assert re.search(r"^ +Source: ", text, re.MULTILINE)
    assert re.search(r"^ +Expected: ", text, re.MULTILINE)
    if name in EXPECTED:
        number, table, label, _ = EXPECTED[name]
        assert re.search(rf"^ +Expected: {number} % on [\w-]+ \(Table {table}, {label}\)\.$", text, re.MULTILINE)


def test_only_our_own_recipes_expect_no_number_of_the_paper() -> None:
    assert set(RECIPES) - set(EXPECTED) == {"quick", "finetune"}


@with_paper
@pytest.mark.parametrize("name", EXPECTED)
def test_expected_numbers_are_the_papers(name: str) -> None:
    number, table, label, column = EXPECTED[name]
    assert table_of(label)[r"\bf{AutoMix}"][column] == rf"\bf{{{number}}}"
    labels = re.findall(r"\\label\{(tab:\w+)\}", Path(os.environ["AUTOMIX_PAPER"]).read_text(encoding="utf-8"))
    assert labels.index(label) + 1 == table


def test_every_setting_explains_itself_in_a_line() -> None:
    """The lines become the help of the command line."""
    explained = {each.arg_name: each.description or "" for each in docstring_parser.parse_from_object(Recipe).params}
    assert list(explained) == [field.name for field in fields(Recipe)]
    for text in explained.values():
        assert re.fullmatch(r"[A-Z][^\n]{8,98}\.", text), text


# --- wrong values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs.*>= 1"),
        ({"epochs": 1.5}, "epochs.*integer"),
        ({"batch_size": 0}, "batch_size.*>= 1"),
        ({"repeats": 0}, "repeats.*>= 1"),
        ({"train_size": 0}, "train_size.*>= 1"),
        ({"test_size": -1}, "test_size.*>= 1"),
        ({"warmup_epochs": -1}, "warmup_epochs.*>= 0"),
        ({"warmup_epochs": 5, "epochs": 5}, r"warmup_epochs.*\[0, 4\]"),
        ({"lr": 0.0}, r"^lr\b.*> 0"),
        ({"lr": float("inf")}, r"^lr\b.*> 0"),
        ({"lr": 0.1, "lr_floor": 0.2}, r"lr_floor.*\[0, 0.1\]"),
        ({"lr_floor": -0.1}, "lr_floor.*>= 0"),
        ({"momentum": 1.0}, r"momentum.*\[0, 1\)"),
        ({"dropout": 1.0}, r"dropout.*\[0, 1\)"),
        ({"drop_path": -0.1}, r"drop_path.*\[0, 1\)"),
        ({"label_smoothing": 1.0}, r"label_smoothing.*\[0, 1\)"),
        ({"weight_decay": -1e-4}, "weight_decay.*>= 0"),
        ({"color_jitter": float("nan")}, "color_jitter.*>= 0"),
        ({"erasing": 1.5}, r"erasing.*\[0, 1\]"),
        ({"clip_grad": 0.0}, "clip_grad.*> 0"),
        ({"mixup_alpha": 0.0}, "mixup_alpha.*> 0"),
        ({"cutmix_alpha": float("nan")}, "cutmix_alpha.*> 0"),
        ({"test_crop": 0.0}, r"test_crop.*\(0, 1\]"),
        ({"test_crop": 1.1}, r"test_crop.*\(0, 1\]"),
        ({"crop": "center"}, "crop.*none, pad, resized"),
        ({"optimizer": "adam"}, "optimizer.*sgd, adamw, lamb"),
        ({"loss": "mse"}, "loss.*ce, bce"),
        ({"balance": "weights"}, "balance.*none, sampling, loss"),
        ({"balance": "loss", "loss": "bce"}, "balance must be none or sampling if loss is bce"),
        ({"crop_scale": 0.0}, r"crop_scale.*\(0, 1\]"),
        ({"rand_augment": "9"}, "rand_augment.*MAGNITUDE/DEVIATION"),
        ({"rand_augment": "11/0.5"}, "rand_augment.*MAGNITUDE/DEVIATION"),
        ({"auto_augment": "v1"}, "auto_augment.*original, "),
        ({"auto_augment": "v0", "rand_augment": "9/0.5"}, "auto_augment and rand_augment"),
    ],
)
def test_wrong_values_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    recipes: list[type[Recipe]] = [Recipe, *RECIPES.values()]
    for recipe in recipes:  # a recipe with another default has the same range
        with pytest.raises(AutomixError, match=f"^{message}") as error:
            recipe(**{"rand_augment": None, "repeats": 1, "warmup_epochs": 0, **changes})
        assert "\n" not in str(error.value)


def test_the_policies_are_timms() -> None:
    for policy in POLICIES:
        assert timm.data.auto_augment.auto_augment_policy(policy)


def test_a_setting_can_be_changed_and_stays_checked() -> None:
    assert RECIPES["deit"](epochs=50) == RECIPES["deit"](epochs=50)
    assert differences(find_recipe("deit"), RECIPES["deit"](epochs=50)) == {"epochs": (300, 50)}
    with pytest.raises(ValueError, match=r"warmup_epochs.*\[0, 2\]"):
        RECIPES["deit"](epochs=3)


def test_unknown_recipe() -> None:
    with pytest.raises(ValueError, match=r"^unknown recipe 'rsb-a1'; did you mean 'rsb-a\d'\? Available: quick, "):
        find_recipe("rsb-a1")


@pytest.mark.parametrize(
    ("recipe", "model", "data", "options"),
    [
        ("cifar", "resnet18", "cifar100", {"lam_embedding": False}),
        ("cifar", "wrn_28_8", "cifar100", {"lam_embedding": False, "layer": 2}),
        ("tiny", "resnet18", "tiny-imagenet", {"lam_embedding": False, "block_lr": 0.5, "block_lr_floor": 0.005}),
        ("pytorch100", "resnet50", "imagenet", {"block_lr_floor": 0.01}),
        ("deit", "deit_small_patch16_224", "imagenet", {"block_lr_floor": 0.1, "layer": 2}),
        ("fine-grained", "resnet18", "cub200", {"block_lr": 10.0, "block_lr_floor": 0.5, "distinct_pairs": True}),
        ("quick", "resnet18", "shapes", {}),
    ],
)
def test_the_authors_values_come_with_the_preset_reference(
    recipe: str, model: str, data: str, options: dict[str, Any]
) -> None:
    settings = replace(find_recipe(recipe), preset="reference")
    assert settings.options_for("automix", model, data) == {"alpha": 2.0, "preset": "reference", **options}
    AutoMixSettings.from_preset("reference", **{name: value for name, value in options.items() if name != "layer"})
    assert "layer" not in find_recipe(recipe).options_for("automix", model, data)


def test_every_parameter_group_ends_at_its_own_floor() -> None:
    """CUB-200 in the authors' configuration: the student from 0.001 to 0, the Mix Block from 0.01 to 5e-4."""
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    groups = [
        {"params": weights[:1], "lr": 1e-3},
        {"params": weights[1:2], "lr": 1e-2, "lr_floor": 5e-4},
        {"params": weights[2:], "lr": 1e-5},
    ]
    optimizer = torch.optim.SGD(groups, lr=1e-3)
    schedule = build_schedule(replace(find_recipe("fine-grained"), epochs=10, lr_floor=1e-4), optimizer, 10)
    seen = []
    for step in (0, 50, 100):
        schedule.step_update(step)
        seen.append([group["lr"] for group in optimizer.param_groups])
    assert seen[0] == pytest.approx([1e-3, 1e-2, 1e-5])
    assert seen[1] == pytest.approx([5.5e-4, 5.25e-3, 1e-5])
    assert seen[2] == pytest.approx([1e-4, 5e-4, 1e-5])  # a rate below the floor stays
