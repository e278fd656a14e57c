# Two commands do everything on a fresh machine: make demo, make test. They need python3 >= 3.11; make test
# needs Node 20, Chromium and Firefox as well.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto

# Errors only: pip's own warnings say nothing about hdpmf.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --root-user-action=ignore
# Test processes share the cores among them: libraries must not start threads for all cores as well. Bytecode is kept:
# tests start hundreds of interpreters.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS)

.PHONY: help demo app format check test web lint style types docs statement dist bench soak image mutants clean

help:
	@echo "make demo   set up .venv, train and measure hdp-pairs on a synthetic world (about a minute the first time), and open the app"
	@echo "make app    open the person's app on a made-up world, in the browser (Node 20 or newer, npm)"
	@echo "make check  while you work: format, lint, types, contracts and the fast tests, and the shape of the tree"
	@echo "make format format the code, and fix what can be fixed without thinking"
	@echo "make test   set up .venv and run every check: ruff, mypy, import-linter, all tests in parallel (JOBS=2)"
	@echo "make web    types, build and tests of the person's app (clients/web): Node 20 or newer, npm, Chromium, Firefox"
	@echo "make docs   build the site of these pages into build/site (open build/site/index.html)"
	@echo "make dist   build the wheel and the sdist into dist"
	@echo "make bench  compare speed with Surprise and libmf in one run (needs ../shared/data or HDPMF_DATA)"
	@echo "make soak   100 kills of two servers whose clocks jump, and docs/deploy.md ten times (root; about two hours)"
	@echo "make image   the container image, built without a daemon, and a federation in it (root, buildah, debootstrap; minutes)"
	@echo "make mutants 120 small faults at random, one at a time; an error if fewer than 110 have a test that fails (N=120 SEED=11, which no test was written for: about nine of ten have one, docs/threat-model.md; an hour or two)"
	@echo "make clean  remove .venv and caches"

# pip would compile all that it installs, on one core; this does it on all of them. What does not compile is never
# imported.
define INSTALL
	@$(PYTHON) -c 'import sys; sys.exit("hdpmf needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile --editable '$(1)'
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
	@touch $@
endef

# One stamp per set of extras: pip runs again only when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV) and installing hdpmf into it (the first time only) ..."
	$(call INSTALL,.)

$(VENV)/.installed-dev: pyproject.toml
	@echo "Setting up $(VENV) and installing hdpmf and what the checks need into it (the first time only) ..."
	$(call INSTALL,.[dev])
	@touch $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@echo "Installing what the benchmarks compare with into $(VENV) ..."
	$(call INSTALL,.[bench])

# At a terminal the app is opened as well, until Enter; a machine without Node is told how.
demo: $(VENV)/.installed
	@echo "Training on a made-up world: hdpmf evaluate hdp-pairs --data synthetic"
	@$(BIN)/hdpmf evaluate hdp-pairs --data synthetic
	@if test -t 0 && test -t 1 && command -v npm >/dev/null; then \
	$(MAKE) --no-print-directory app || echo "The app could not be built; above is why."; \
	else echo "The person's app on a made-up world, in your browser: make app (Node 20 or newer, npm)"; fi

app: clients/web/node_modules/.installed
	@cd clients/web && node_modules/.bin/vite-node app/demo/serve.ts

lint: style types

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# mypy takes most of a minute when it has no cache, on one core: it runs beside the tests, and what it says comes after
# theirs.
define BESIDE_TYPES
	@mkdir -p build
	@$(MAKE) --no-print-directory types >build/types.log 2>&1 & types=$$!; \
	echo '$(1)'; $(1); tested=$$?; \
	wait $$types; typed=$$?; cat build/types.log; exit $$((tested || typed))
endef

check: style
	$(BIN)/python tools/house.py
	$(call BESIDE_TYPES,$(PYTEST) -m "not slow and not paper")

test: style web
	$(call BESIDE_TYPES,$(PYTEST))

# The packages' own scripts are not run: nothing here needs them.
clients/web/node_modules/.installed: clients/web/package-lock.json
	npm --prefix clients/web ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

web: clients/web/node_modules/.installed
	npm --prefix clients/web run types
	npm --prefix clients/web run build
	npm --prefix clients/web test

docs: $(VENV)/.installed-dev
	$(BIN)/python tools/site.py

# The privacy statement of the demo federation: docs/statement.
statement: $(VENV)/.installed-dev
	rm -rf out/statement && mkdir -p out/statement docs/statement
	$(BIN)/hdpmf federate demo --devices 20 --keep out/statement/demo
	$(BIN)/hdpmf privacy statement out/statement/demo/recommender --out docs/statement/demo.html

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.aggregator.soak_servers --kills 100
	$(BIN)/python -m tests.deploy.test_three_hosts 10

# Root, buildah and debootstrap, and no daemon: the image, and a federation of three services in it. Minutes.
image: $(VENV)/.installed-dev
	$(BIN)/python -m tests.deploy.image

# Not for CI: all 13,000 take days. ARGS=--planted plants those that were once missed, which takes minutes.
N ?= 120
SEED ?= 11
ARGS ?= --sample $(N) --seed $(SEED)
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants/run.py --jobs 2 $(ARGS)

clean:
	rm -rf $(VENV) build out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
