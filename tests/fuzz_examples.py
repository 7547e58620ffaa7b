"""Random configurations, their files, and command lines: mostly plausible ones, with something wrong."""

import math
from typing import Any, get_args, get_type_hints

import yaml
from hypothesis import strategies as st

import automix
from automix.cli import main as cli
from automix.runs.config import TrainConfig
from automix.runs.recipes import RECIPES, Recipe

LONG = "x" * 5000

WORDS = [
    "", " ", "-", "--", "---", "-1", "+1", "0", "1", "1e400", "nan", "-inf", ".5", "0x10", "0b1", "1_000", "007",
    "10" * 20, "true", "null", "~x", "None", "[]", "{}", "[1,2", "{a: 1}", "{a: {b: 1}}", "[[[[]]]]", "a\nb",
    "a\rb", "\t", "\x1b[31m", "é", "漢字", "🙂", "\u202e", "\u2028", "\ufeff", "\udcff", "%s", "%(prog)s", "{0}",
    "$HOME", "$(id)", "`id`", "; id", "'", '"', "\\", "*", "&a", "*a", "!!python/name:os.system", "!x", "a: b",
    "# x", "2020-01-01", "12:30:45", "<<", "=", "a=b", "@good.yaml", LONG,
]  # fmt: skip
PATHS = [
    "run", "run/config.yaml", "run/last.safetensors", "photos", "photos/test", "photos/test/a/0.png",
    "photos/test/b/1.png", "good.yaml", "broken.yaml", "binary.yaml", "empty.yaml", "broken.png",
    "broken.safetensors", "empty", "none", "none/x.png", "good.yaml/x", "new", "empty/new.png", "new.onnx",
    "new.tar", ".", "/dev/null", "/dev/null/x", LONG, "x\ny.png", "\udcff.png", "wds/empty", "hfds/x", "torch/x",
    "tfds/x", "wds/", "hfds/",
]  # fmt: skip
DEVICES = [
    "cpu", "auto", "cuda", "cuda:9", "cuda:-1", "cpu:3", "mps", "xpu", "xla", "meta", "hpu", "mtia", "lazy",
    "vulkan", "privateuseone", "ipu", "maia", "CPU", "cpu:x", ":0",
]  # fmt: skip
MODELS = [
    "resnet18", "wrn_10_1", "wrn_0_0", "wrn_10_0", "wrn_9_1", "wrn_1_", "resnet10t", "vit_tiny_patch16_224",
    "resnet18.tv_in1k", "hf-hub:x", "hf_hub:x/y", "local-dir:x", "resnet18.nonsense", "ResNet18",
]  # fmt: skip

# Plausible values, so that many examples come past the first check
PLAUSIBLE: dict[str, list[Any]] = {
    "data": ["shapes", "digits", "photos", "cifar10", "shapse", *PATHS],
    "method": [*automix.methods(), "cutmx"],
    "model": MODELS,
    "recipe": [*RECIPES, "cifr"],
    "preset": ["tuned", "fast", "paper", "tunned", None],
    "out": ["run", "new", "good.yaml", "empty", "new/deep", None],
    "weights": ["run/last.safetensors", "broken.safetensors", "none", "empty", None],
    "data_root": ["photos", "none", None],
    "device": DEVICES,
    "precision": ["auto", "float32", "bf16", "fp16", "fp8"],
    "layer": [1, 2, 3, 4, 0, 5, -1, "layer1", "fc", "none", "layer1.0", None],
    "crop": ["none", "pad", "resized", "x"],
    "optimizer": ["sgd", "adamw", "lamb", "adam"],
    "loss": ["ce", "bce", "mse"],
    "rand_augment": ["9/0.5", "11/0", "9/", "/", "9/nan", "٣/٤", None],
    "auto_augment": ["original", "3a", "v0", "v1", None],
    "wandb": [False],
    "mlflow": [False],
    "compile": [False],
}
OPTIONS = [
    "alpha", "gamma", "layer", "layers", "channels", "momentum", "block", "lam_margin", "aux_loss", "paper",
    "seed", "switch", "weights", "criterion", "model", "mix", "x", "self", "num_classes", "depth", "drop_rate",
    "norm_layer", "act_layer", "in_chans", "img_size", "patch_size", "global_pool", "scope", "kind", "steps",
    "mix_block", "ema", "one_hot_loss", "preset", "block_share", "",
]  # fmt: skip

text = st.text(st.characters(exclude_characters="/"), max_size=20).filter(lambda word: ".." not in word)
numbers = st.one_of(
    st.integers(-2, 40),
    st.floats(0, 1),
    st.floats(),
    st.sampled_from([10**9, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), math.nan, math.inf, -0.0, 1e308, 5e-324]),
)
scalars = st.one_of(numbers, st.none(), st.booleans(), st.sampled_from(WORDS), text)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(OPTIONS) | text, inner, max_size=3),
)
strange = st.one_of(st.binary(max_size=5), st.dates(), st.datetimes(), st.sets(st.integers(), max_size=2))
options = st.dictionaries(
    st.sampled_from(OPTIONS), st.one_of(numbers, st.lists(st.integers(-1, 9), max_size=4), scalars, junk), max_size=2
)


def _plausible(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if name in PLAUSIBLE:
        return st.sampled_from(PLAUSIBLE[name])
    if name.endswith("_options"):
        return options
    usual = {bool: st.booleans(), int: st.integers(1, 40), float: st.floats(0, 0.9)}
    return usual.get(kind, st.none() | (st.integers(1, 40) if int in get_args(kind) else st.floats(0.1, 1)))


_hints = {**get_type_hints(TrainConfig), **get_type_hints(Recipe)}
FIELDS = {name: _plausible(name, _hints[name]) for name in TrainConfig.flat_names()}
UNKNOWN = [
    "learning_rate",
    "settings",
    "config",
    "resume",
    "",
    "a.b",
    "model_options.x",
    "method_options.alpha",
    "--epochs",
    "__class__",
]


def _value(name: str) -> st.SearchStrategy[Any]:
    """Mostly a plausible value, for a field that is known."""
    plausible = FIELDS.get(name, junk)
    return st.integers(0, 9).flatmap(
        lambda dice: plausible if dice < 8 else numbers if dice == 8 else junk | scalars | strange
    )


def _with_data(values: dict[Any, Any]) -> dict[Any, Any]:
    return {"data": "shapes", **values}


_names = st.sampled_from([*FIELDS] * 3 + UNKNOWN)
_pairs = st.lists(_names.flatmap(lambda name: st.tuples(st.just(name), _value(name))), max_size=5).map(dict)
flat_configs = st.one_of(
    _pairs.map(_with_data),
    _pairs.map(_with_data),
    _pairs,
    st.dictionaries(st.one_of(scalars.filter(lambda key: key == key), _names), junk, max_size=4),
)

# small networks, and options that they and the methods may have or not
buildable = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["wrn_10_1", "resnet18", "test_vit", "test_convnext"]),
        "method": st.sampled_from([name for name in automix.methods() if name != "stylemix"]),
    },
    optional={
        "method_options": options,
        "model_options": options,
        "layer": FIELDS["layer"],
        "alpha": numbers,
        "dropout": FIELDS["dropout"],
        "drop_path": FIELDS["drop_path"],
    },
)

# --- YAML files -------------------------------------------------------------------------------------------------------

SNIPPETS = [
    "data: !!python/object/apply:os.system ['touch hacked']\n", "data: !!python/name:os.system\n",
    "!!python/object:x {}\n", "a: &a [1, *a]\n",
    "data: shapes\nmodel_options: &m {layers: [1, 1, 1, 1]}\nmethod_options: *m\n", "data: &d shapes\nout: *d\n",
    "data: shapes\nmodel_options: &m\n  x: *m\n", "data: *nothing\n", "<<: {data: shapes}\n",
    "base: &b {data: shapes}\n<<: *b\n", "data: shapes\nepochs: 3\nepochs: 4\n", "data: shapes\n\tepochs: 3\n",
    "? [a, b]\n: c\n", "? {a: b}\n: c\n", "1: 2\n", "null: x\n", "data: shapes\n---\ndata: digits\n",
    "--- !!set {a, b}\n", "!!omap [a: 1]\n", "data: !!binary AAAA\n", "data: !!binary '~'\n",
    "data: shapes\nepochs: !!int x\n", "data: shapes\nlr: !!float x\n", "data: !!timestamp x\n",
    "epochs: 1:2:3\ndata: shapes\n", "data: 2020-13-45\n", "data: shapes\nlr: 1e-3\n", "data: shapes\nlr: .nan\n",
    "data: shapes\nlr: .inf\n", "data: shapes\nseed: 0o7\n", "data: \"\\0\"\n", "data: \"\\ud800\"\n", "data: '\n",
    "%YAML 9.9\n--- {}\n", "%TAG ! x\n", "data: |\n  shapes\n  more\n", "[" * 400,
    "data: " + "[" * 500 + "]" * 500 + "\n", "a: " * 50, "- " * 1000, "data: shapes\nseed: " + "9" * 5000 + "\n",
    "", "\n", "#", "---\n", "\ufeffdata: shapes\n", "data: shapes\r\nepochs: 3\r\n",
    "data: shapes\nsettings: {epochs: 3}\n", "data: shapes\nmethod_options: [1]\n",
    "data: shapes\nmethod_options:\n  alpha: {a: 1}\n", "data: shapes\nmodel_options: {1: 2}\n",
    "data: shapes\nmodel_options: {null: 2}\n", "data: shapes\nconfig: good.yaml\n", "data: shapes\nresume: 3\n",
    "data: shapes\noverwrite: true\n", "data: shapes\nmodel-options: {}\n",
    "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(9)),
]  # fmt: skip


def _dump(values: dict[Any, Any], flow: bool, ascii: bool) -> str:
    try:
        return yaml.safe_dump(values, default_flow_style=flow, allow_unicode=not ascii, sort_keys=False)
    except UnicodeEncodeError:
        return repr(values)


def _damage(parts: tuple[str, int, str]) -> str:
    """Other characters somewhere in the file."""
    content, place, word = parts
    place %= len(content) + 1
    return content[:place] + word + content[place:]


_written = st.builds(_dump, flat_configs, st.booleans(), st.booleans())
config_files = st.one_of(
    _written,
    _written,
    _written,
    st.tuples(_written, st.integers(0, 500), st.sampled_from(WORDS) | text).map(_damage),
    st.sampled_from(SNIPPETS),
    st.tuples(_written, st.sampled_from(SNIPPETS)).map("".join),
    st.text(max_size=60),
)

# --- command lines ----------------------------------------------------------------------------------------------------


def _spell(value: Any) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else "null" if value is None else str(value)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


_train_flags = [*map(_flag, FIELDS), "--config", "--resume", "--overwrite", "--no-flip", "--no-ema", "--no-epochs"]
_other_flags = [
    "--help", "-h", "--help=3", "--version", "--print_config", "--print_config=x", "--print_shtab", "-", "--",
    "---", "--=", "-x", "--out=", "--epochs=", "--method-options", "--model-options.", "--model-options.x.y",
    "--model-options+", "--model-options.layers+", "--epoch", "--epochs.x", "--epochs+", "--data", "--config.x",
    "-e3", "--no-", "--=x",
]  # fmt: skip
_values = st.one_of(st.sampled_from(PATHS), st.sampled_from(WORDS), scalars.map(_spell), junk.map(_spell))


def _train_pair(name: str) -> st.SearchStrategy[list[str]]:
    value = _value(name).map(_spell)
    return st.one_of(value.map(lambda v: [_flag(name), v]), value.map(lambda v: [f"{_flag(name)}={v}"]))


def _option(kind: str) -> st.SearchStrategy[list[str]]:
    name = st.sampled_from(OPTIONS) | text
    return st.tuples(name, _values).map(lambda pair: [f"--{kind}-options.{pair[0]}", pair[1]])


def _pair(flags: list[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.tuples(st.sampled_from(flags), values).map(list)


_anything = st.one_of(
    _values.map(lambda value: [value]),
    st.sampled_from(_train_flags + _other_flags).map(lambda flag: [flag]),
    _pair(_other_flags, _values),
)
_paths = st.sampled_from(PATHS)
_small = st.integers(-1, 64).map(str)


def _line(
    command: str, first: st.SearchStrategy[list[str]], further: st.SearchStrategy[list[str]], most: int = 4
) -> st.SearchStrategy[list[str]]:
    parts = st.lists(st.one_of(*[further] * 9, _anything), max_size=most)
    return st.tuples(first, parts).map(lambda line: [command, *line[0], *(word for part in line[1] for word in part)])


_train_further = st.one_of(
    st.sampled_from([*FIELDS]).flatmap(_train_pair),
    st.sampled_from([*FIELDS]).flatmap(_train_pair),
    _option("model"),
    _option("method"),
    _pair(["--config"], _paths),
    st.sampled_from([["--resume"], ["--overwrite"], ["--resume", "--out", "run"], ["--out", "run"]]),
)
_mix_further = st.one_of(
    _pair(["--method"], st.sampled_from([*automix.methods(), "cutmx", ""])),
    _pair(["--lams"], st.sampled_from(["0.3", "0", "1", "2", "-1", "nan", "x", ""])),
    _pair(["--size"], _small | st.sampled_from(["1e3", "x", ""])),
    _pair(["--out"], st.sampled_from(["new.png", "new.jpg", "new.xyz", "new", "none/x.png", "empty", "", LONG])),
    _paths.map(lambda path: [path]),
)
_export_further = st.one_of(
    _pair(["--format"], st.sampled_from(["onnx", "torchscript", "torch-export", "safetensors", "pt", ""])),
    _pair(["--out", "--which"], _paths | st.sampled_from(["last", "best", "worst", ""])),
)
_predict_further = st.one_of(
    _pair(["--top"], _small), _pair(["--which"], st.sampled_from(["last", "best", "x"])), _paths.map(lambda p: [p])
)
_one_path = _paths.map(lambda path: [path])
_run_first = st.one_of(st.just(["run"]), st.just(["run"]), _one_path)
_train_first: st.SearchStrategy[list[str]] = st.one_of(
    st.just(["shapes"]), st.just(["photos"]), st.just(["shapes"]), _one_path, st.just([])
)
_lists = st.sampled_from(["methods", "models", "recipes", "datasets"]).flatmap(
    lambda name: _line(
        name, st.sampled_from([[], ["cifar"], ["resnet1*"], ["[z-a]"], ["["], ["*" * 30]]), _anything, most=2
    )
)


def _can_be_typed(line: list[str]) -> bool:
    """Whether a shell can pass these words: none has a NUL in it."""
    return not any("\0" in word for word in line)


command_lines = st.one_of(
    _line("train", _train_first, _train_further),
    _line("train", _train_first, _train_further),
    _line("train", _train_first, _train_further),
    _line("predict", _run_first, _predict_further),
    _line("export", _run_first, _export_further),
    _line("mix", st.one_of(_run_first, st.just(["photos"])), _mix_further),
    _lists,
    st.lists(_values | st.sampled_from([*cli.COMMANDS, *_other_flags]), max_size=4),
).filter(_can_be_typed)
