"""docs/fidelity.md against the code and, where it lies beside the checkout, the paper's LaTeX source."""

import re
from pathlib import Path

import pytest

from automix.methods.automix import AutoMixSettings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
TEX = ROOT.parent / "shared" / "paper" / "automix.tex"
PRESETS = ("tuned", "paper", "reference")


def table_rows(section: str) -> list[list[str]]:
    """The cells of a marked table, without its header."""
    body = PAGE.split(f"<!-- {section} -->")[1].split(f"<!-- end of {section} -->")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_presets_have_the_values_of_the_page() -> None:
    settings = [AutoMixSettings.from_preset(name) for name in PRESETS]
    for name, *values in table_rows("presets"):
        found = [str(getattr(each, name.strip("`"))) for each in settings]
        assert found == values[:3], name


def test_every_setting_in_which_the_presets_differ_is_on_the_page() -> None:
    tuned, paper, reference = (vars(AutoMixSettings.from_preset(name)) for name in PRESETS)
    differing = {name for name in tuned if not tuned[name] == paper[name] == reference[name]}
    assert differing <= {name.strip("`") for name, *_ in table_rows("presets")}


def test_the_files_that_check_exist() -> None:
    named = set(re.findall(r"`((?:tests|src)/[\w/.]+)`", PAGE))
    assert len(named) > 5
    assert all((ROOT / name).is_file() for name in named)


@pytest.mark.skipif(not TEX.is_file(), reason="the paper's source is not beside this checkout")
def test_the_quotations_are_the_papers() -> None:
    tex = re.sub(r"\s+", " ", TEX.read_text(encoding="utf-8"))
    quoted = re.findall(r'"([^"]+)"', re.sub(r"`[^`]*`", "", PAGE))
    assert len(quoted) >= 5
    for text in quoted:
        assert text in tex, text
