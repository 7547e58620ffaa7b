"""The mutation score: how many wrong places in the core, the tasks and AutoMix the tests notice.

    python benchmarks/mutation.py run --share 0.15 --minutes 5     tries mutants; again to continue
    python benchmarks/mutation.py again                            tries survivors again, after new tests
    python benchmarks/mutation.py page                             writes docs/results/mutation.md

A mutant is a module with one wrong place (benchmarks/mutants.py). It exists in memory only: a process that has imported
torch forks, the child imports automix with the mutant in the place of the module and runs tests until one fails. Tests
are those of TESTS that run the line, the fastest first; a first pass of each test file finds their lines and times. A
child that takes too long counts as killed. Which mutants are tried is decided by a digest of the seed and the mutant,
so that a larger share contains a smaller one. Results are in docs/results/mutation.json.
"""

import argparse
import contextlib
import hashlib
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from mutants import Mutant, find_mutants

ROOT = Path(__file__).resolve().parents[1]
SOURCE, RESULTS = ROOT / "src", ROOT / "docs" / "results"
PAGE, FOUND, EQUIVALENT = RESULTS / "mutation.md", RESULTS / "mutation.json", RESULTS / "mutation-equivalent.json"
LINES = ROOT / ".mutation" / "lines.json"  # what the tests run; a cache
MODULES = (
    *(f"core/{name}.py" for name in ("blend", "draws", "target", "criteria", "objects", "validation", "tensor_checks")),
    "tasks/*.py",
    *(f"methods/automix/{name}.py" for name in ("mix_block", "exact_mean", "masks", "settings")),
    "networks/teacher.py",
)
TESTS = {
    "automix.core": (
        *("test_mixing", "test_core", "test_target", "test_many_images", "test_objects", "test_dense"),
        *("test_validation", "test_regmixup", "test_decoupled", "test_tasks", "test_methods"),
    ),
    "automix.tasks": (
        *("test_task_core", "test_own_loops", "test_mix_share", "test_early_backward", "test_fade", "test_manifoldmix"),
        *("test_objects", "test_many_images", "test_tasks"),
    ),
    "automix.methods.automix": (
        *("test_mix_block", "test_automix_core", "test_momentum", "test_many_masks", "test_samix", "test_paper_step"),
        "test_automix",
    ),
    "automix.networks": ("test_momentum", "test_automix_core", "test_automix", "test_tasks"),
}
"""Test files by the beginning of a module's name."""
SEED, SHARE = 29, 0.15
PRELOADED = ("torch", "torchvision", "timm", "scipy", "numpy", "PIL", "hypothesis")
LIMIT, BROKEN = 120, 99  # seconds of a child, after which it is killed; its exit code if pytest could not be called
BUDGET = 15.0  # seconds of tests, by their times without a mutant, that a mutant has to survive; of BROAD ones as many
BROAD = ("test_tasks", "test_methods")  # files with a test for every method, which take long to collect


def modules() -> dict[str, Path]:
    """The modules that are mutated, by name."""
    paths = sorted(path for pattern in MODULES for path in (SOURCE / "automix").glob(pattern))
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in paths}


def test_files(module: str) -> list[str]:
    """The test files of a module; those that exist."""
    names = next(names for beginning, names in TESTS.items() if module.startswith(beginning))
    return [f"tests/{name}.py" for name in dict.fromkeys(names) if (ROOT / "tests" / f"{name}.py").exists()]


# --- children ---------------------------------------------------------------------------------------------------------


class Chosen:
    """A plugin of pytest: the chosen tests alone, in the given order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid])


class Traced:
    """A plugin of pytest: the seconds of every test, and the lines of the mutated modules that it runs."""

    def __init__(self) -> None:
        self.names = {str(path): name for name, path in modules().items()}
        self.tests: dict[str, Any] = {}
        self.lines: set[tuple[str, int]] = set()

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        name = self.names.get(frame.f_code.co_filename)
        if name is None:
            return None

        def inside(frame: FrameType, event: str, argument: object) -> Any:
            self.lines.add((name, frame.f_lineno))
            return inside

        return inside(frame, event, argument)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.lines, begin = set(), time.perf_counter()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            lines: dict[str, list[int]] = defaultdict(list)
            for name, line in sorted(self.lines):
                lines[name].append(line)
            passed = item.nodeid not in self.tests
            self.tests[item.nodeid] = {"seconds": time.perf_counter() - begin, "lines": lines, "passed": passed}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.tests[report.nodeid] = None


def in_child(work: Callable[[], int], limit: float) -> int | None:
    """Run in a fork of this process; returns its exit code, or None after `limit` seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = work()
        except BaseException:
            code = BROKEN
        os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    _end_group(child)
    os.waitpid(child, 0)
    return None


def _end_group(child: int) -> None:
    """End the child and the processes that its tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def run_pytest(files: list[str], plugin: object) -> int:
    """Run tests in this process, quietly; the first failure ends it."""
    options = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow"]
    with tempfile.TemporaryDirectory() as folder:
        return int(pytest.main([*options, f"--basetemp={folder}/tests", *files], plugins=[plugin]))


def put_in_place(module: str, source: str) -> None:
    """Make the import of a module run another source."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return compile(source, self.path, "exec") if fullname == module else original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


# --- what tests run ---------------------------------------------------------------------------------------------------


def read_lines(files: list[str]) -> dict[str, dict[str, Any]]:
    """Tests by file, with their seconds and lines; files that have changed are run again."""
    kept: dict[str, Any] = json.loads(LINES.read_text()) if LINES.exists() else {}
    state = {name: digest(path) for name, path in modules().items()}
    for file in files:
        if state.items() | {(file, digest(ROOT / file))} <= kept.get(file, {}).get("digests", {}).items():
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "tests.json"

            def trace(file: str = file, out: Path = out) -> int:
                plugin = Traced()
                code = run_pytest([file, "--maxfail=1000"], plugin)
                imported = [name for name in sys.modules if is_foreign(name)]
                out.write_text(json.dumps({"tests": plugin.tests, "imported": imported, "code": code}))
                return 0

            if in_child(trace, 900) != 0 or not out.exists():
                sys.exit(f"{file}: could not be run")
            found = json.loads(out.read_text())
        kept[file] = {"digests": {**state, file: digest(ROOT / file)}, **found}
        kept[file]["tests"] = {name: test for name, test in found["tests"].items() if test and test["passed"]}
        LINES.parent.mkdir(exist_ok=True)
        LINES.write_text(json.dumps(kept))
        print(
            f"{file}: {len(kept[file]['tests'])} tests, {sum(t['seconds'] for t in kept[file]['tests'].values()):.0f} s"
        )
    return {file: kept[file] for file in files}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def is_foreign(name: str) -> bool:
    """Whether a module is of another package, so that it may be imported before the children fork."""
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and not Path(file).is_relative_to(ROOT) and not name.startswith(("automix", "__"))


def import_before(known: dict[str, dict[str, Any]]) -> None:
    """Import what the tests need from other packages, once for all children."""
    import automix  # noqa: F401  (before torchvision, which it mends)

    for name in sorted({name for file in known.values() for name in file["imported"]}):
        if name.split(".")[0] in PRELOADED:
            with contextlib.suppress(Exception):
                __import__(name)
    for name in [name for name in sys.modules if f"{name}.".startswith("automix.")]:
        if not name.startswith("automix._compat"):
            del sys.modules[name]


def choose_tests(
    module: str, lines: tuple[int, ...], known: dict[str, dict[str, Any]], budget: float = BUDGET
) -> tuple[list[str], list[str]]:
    """Choose tests that run one of the lines, or any where none is given: those of small files, and of the BROAD ones.

    The fastest come first, as far as the budget goes. Of a test for every method three are taken.
    """
    wanted = set(lines)
    chosen: tuple[list[str], list[str]] = ([], [])
    for is_broad in (False, True):
        spent, variants = 0.0, Counter[str]()
        found = [
            (test["seconds"], name)
            for file in test_files(module)
            for name, test in known[file]["tests"].items()
            if (Path(file).stem in BROAD) == is_broad
            if not wanted or wanted & set(test["lines"].get(module, ()))
        ]
        for seconds, name in sorted(found):
            function = name.partition("[")[0]
            variants[function] += 1
            if variants[function] <= 3 or not is_broad:
                spent += seconds
                if spent > budget and chosen[is_broad]:
                    break
                chosen[is_broad].append(name)
    return chosen


# --- mutants ----------------------------------------------------------------------------------------------------------


def place(mutant: Mutant) -> float:
    """Where a mutant is in the order in which they are tried, in [0, 1): by a digest of the seed and the mutant."""
    digest = hashlib.sha256(f"{SEED} {mutant.key}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def try_source(module: str, source: str, groups: Sequence[list[str]]) -> str:
    """Run groups of tests with another source of a module: "killed", "killed: time" or "survived"."""

    def run() -> int:
        put_in_place(module, source)
        codes = (run_pytest(sorted({test.partition("::")[0] for test in tests}), Chosen(tests)) for tests in groups)
        return next((code for code in codes if code), 0)

    code = in_child(run, LIMIT)
    if code in (BROKEN, int(pytest.ExitCode.NO_TESTS_COLLECTED)):
        sys.exit(f"{module}: the tests could not be run, exit code {code}")
    return "killed: time" if code is None else "killed" if code else "survived"


def check_original(module: str, known: dict[str, dict[str, Any]]) -> None:
    """Run tests of a module in a child with its own source: if they fail there, nothing is known about mutants."""
    source = modules()[module].read_text(encoding="utf-8")
    result = try_source(module, source, choose_tests(module, (), known, 2.0)[:1])
    if result != "survived":
        sys.exit(f"{module}: tests fail without a mutant")


def run(share: float, minutes: float, only: str, again: bool) -> None:
    """Try the mutants of the sample that have no result yet, or those that survived."""
    sys.path.insert(0, str(SOURCE))
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing them takes longer than most tests
    torch.set_num_threads(1)
    results = read_results()
    end = time.monotonic() + 60 * minutes
    chosen = []
    for module, path in modules().items():
        mutants = [m for m in find_mutants(module, path.read_text(encoding="utf-8")) if place(m) < share]
        for mutant in mutants:
            kept = results.get(mutant.key)
            is_known = kept is not None and kept["body"] == mutant.body
            is_alive = kept is not None and kept["result"].startswith("survived")
            if only in mutant.key and (not is_known or (again and is_alive)):
                chosen.append((module, mutant))
    chosen.sort(key=lambda found: place(found[1]))  # what is done early is a sample of all modules
    print(f"{len(chosen)} mutants to try")
    if not chosen:
        return
    known = read_lines(list(dict.fromkeys(file for module, _ in chosen for file in test_files(module))))
    import_before(known)
    for module in {tuple(test_files(module)): module for module, _ in chosen}.values():
        check_original(module, known)
    for number, (module, mutant) in enumerate(chosen):
        if time.monotonic() > end:
            print(f"{len(chosen) - number} are left: the same command continues")
            break
        begin = time.monotonic()
        tests = [group for group in choose_tests(module, mutant.lines, known) if group]
        result = try_source(module, mutant.source, tests) if tests else "survived: no test runs it"
        results[mutant.key] = {"result": result, "body": mutant.body, "line": mutant.line}
        FOUND.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{time.monotonic() - begin:5.1f} s  {result}  {mutant.line}: {mutant.key}", flush=True)


def read_results() -> dict[str, Any]:
    """What was found before, by the mutants' keys."""
    return json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}


# --- page -------------------------------------------------------------------------------------------------------------

TEXT = """# Mutation score

Would the tests notice a mistake? Each mutant is a module with one wrong place: a comparison changed, + for -, * for /,
a constant, a default or a string changed, `and` for `or`, a `not` or a sign dropped, a condition negated, branches
swapped, a call or a keyword left out, a value not returned. A mutant is killed if a test fails on it.

```bash
python benchmarks/mutation.py run --share {share:g} --minutes 5     # again, until none is left
python benchmarks/mutation.py page
```

{table}

- mutants: all that `benchmarks/mutants.py` makes of the module. tried: a sample by the seed {seed}.
- equivalent: changes nothing that a caller can see, see below; left out of the score.
- Not mutated: annotations, the texts of errors, `device=` and `non_blocking=`, `zip(strict=True)`.
- Tests of a mutant: those of the files in `benchmarks/mutation.py` that run its line, the fastest first, {budget:.0f} s
  at most, and as long again for files with a test for every method. Tests in processes of their own (torchrun, the
  command line) and slow tests do not see mutants, so that the score is a lower bound.

## Survivors

{survivors}

## Equivalent

{equivalent}

torch {torch}.
"""


def write_page() -> None:
    """Write the page from the results."""
    results = read_results()
    reasons: dict[str, str] = json.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}
    rows, survivors, equivalent = [], [], []
    totals = [0, 0, 0, 0, 0]
    for module, path in modules().items():
        mutants = find_mutants(module, path.read_text(encoding="utf-8"))
        tried = [m for m in mutants if m.key in results and results[m.key]["body"] == m.body]
        killed = [m for m in tried if results[m.key]["result"].startswith("killed")]
        alive = [m for m in tried if m not in killed]
        same = [m for m in alive if m.key in reasons]
        survivors += [f"- `{m.key}`, {results[m.key]['result']}" for m in alive if m not in same]
        equivalent += [f"- `{m.key}`: {reasons[m.key]}" for m in same]
        counts = [len(mutants), len(tried), len(killed), len(same), len(alive) - len(same)]
        if mutants:
            rows.append(row(f"`{module}`", counts))
            totals = [a + b for a, b in zip(totals, counts, strict=True)]
    header = "| module | mutants | tried | killed | equivalent | survived | score |\n| --- |" + " ---: |" * 6
    table = "\n".join([header, *rows, row("all", totals)])
    page = TEXT.format(
        table=table,
        share=SHARE,
        seed=SEED,
        budget=BUDGET,
        survivors="\n".join(survivors) or "None.",
        equivalent="\n".join(equivalent) or "None.",
        torch=torch.__version__,
    )
    PAGE.write_text(page, encoding="utf-8")
    print(table)


def row(name: str, counts: list[int]) -> str:
    """A row of the table, with the share of the killed among those that are not equivalent."""
    _, tried, killed, same, _ = counts
    score = f"{100 * killed / (tried - same):.0f} %" if tried > same else "-"
    return f"| {name} | {' | '.join(map(str, counts))} | {score} |"


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "again", "page"])
    parser.add_argument("--share", type=float, default=SHARE, help="share of the mutants that are tried")
    parser.add_argument("--minutes", type=float, default=5.0, help="leave after this long; the same command continues")
    parser.add_argument("--only", default="", help="mutants whose key contains this, such as core.blend")
    given = parser.parse_args()
    if given.command == "page":
        write_page()
    else:
        run(given.share, given.minutes, given.only, again=given.command == "again")


if __name__ == "__main__":
    main()
