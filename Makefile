# Two commands do everything on a fresh machine: make demo, make test. They need python3 >= 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint bench soak clean

help:
	@echo "make demo   set up .venv and compare all methods on a synthetic world (about a minute the first time)"
	@echo "make test   set up .venv and run every check: ruff, mypy, import-linter, pytest"
	@echo "make bench  compare speed with Surprise and libmf in one run (needs ../shared/data or HDPMF_DATA)"
	@echo "make soak   100 runs of a real federation with a random kill -9 in each (about an hour)"
	@echo "make clean  remove .venv and caches"

# One stamp per set of extras: pip runs again only when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("hdpmf needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/hdpmf demo --out out/demo

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py

soak: $(VENV)/.installed-dev
	$(BIN)/python tests/federation/soak.py --runs 100

clean:
	rm -rf $(VENV) build out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
