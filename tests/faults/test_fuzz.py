"""Ten thousand random configurations and command lines: each is accepted, or refused in one line; no traceback."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fuzz_examples import buildable, command_lines, config_files, flat_configs
from fuzzing import check_command_line, check_file, check_network, check_values, examples, sandbox
from hypothesis import given

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with sandbox(tmp_path_factory.mktemp("fuzz")):
        yield


@pytest.mark.parametrize(
    ("name", "strategy", "verdict", "count"),
    [
        ("configurations", flat_configs, check_values, 5000),
        ("configuration files", config_files, check_file, 3000),
        ("command lines", command_lines, check_command_line, 2000),
        ("networks and methods", buildable, check_network, 400),
    ],
    ids=["values", "files", "lines", "networks"],
)
def test_each_is_accepted_or_refused_in_one_line(
    name: str, strategy: Any, verdict: Callable[[Any], int], count: int, record: Callable[..., None]
) -> None:
    codes: Counter[int] = Counter()

    @examples(count)
    @given(strategy)
    def try_all(example: Any) -> None:
        codes[verdict(example)] += 1

    try_all()
    tries = codes.total()
    assert tries >= count * 0.95, "too many examples were drawn twice"
    assert min(codes[0], codes[2]) > tries / 50, f"one-sided: {codes}"  # both sides of the checks were seen
    record(f"random {name}", tries, tries, f"0 tracebacks; {codes[0]} accepted, {codes[2]} refused in one line")
