# Two commands on a machine with nothing but Python (3.10 or later) and make:
#   make quickstart    train plainly and with AutoMix, side by side, and print both accuracies
#   make test          lint, types, tests
# Each sets up .venv by itself the first time and again only when the dependencies change.

# A waiting thread spins briefly, then sleeps: as fast on an idle machine, and ten times faster beside a busy process.
export GOMP_SPINCOUNT := 1000

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: quickstart test lint types tests docs nightly faults mutation audit format clean

quickstart: $(READY)
	$(BIN)/automix quickstart

test: lint types tests docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

tests: $(READY)
	$(BIN)/pytest -n 2 -m "not slow"

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# what takes too long for every change, every test in an order that differs from day to day: SHUFFLE=17 repeats one
SHUFFLE ?= $(shell date +%j)
nightly: $(READY)
	$(BIN)/pytest -n 2 -m "not slow" --shuffle $(SHUFFLE)
	$(BIN)/pytest -m slow --ignore=tests/faults --shuffle $(SHUFFLE)
	$(MAKE) faults

# would the tests notice a mistake: mutants of the core that have no result yet, and their table in docs/
mutation: $(READY)
	$(BIN)/python benchmarks/mutation.py run --minutes 60
	$(BIN)/python benchmarks/mutation.py page

# what a run survives: the slow fault suite, and its table in docs/
faults: $(READY)
	$(BIN)/python benchmarks/fault_table.py --out docs/results/faults.md

# known vulnerabilities of the pinned packages: needs the network, and tools that stay outside of the audited environment
audit:
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit==2.10.1; }
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "automix needs Python 3.10 or later; try: make PYTHON=python3.11"; exit 1; }
	@echo "Setting up .venv (the first time this takes a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-audit .mypy_cache .pytest_cache .ruff_cache
