# make run · test · check · bench · docs. Each sets up .venv first, once; `make help` lists them all.

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet -c constraints.txt
PYTHON ?=
RUN_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
SOURCES := src tests benchmarks docs

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench docs clean

# One BLAS thread: results repeat bit for bit, and the worker processes do not fight for the cores.
run test bench: export OPENBLAS_NUM_THREADS = 1
run test bench: export OMP_NUM_THREADS = 1
run test bench: export MKL_NUM_THREADS = 1

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(VENV)/.installed  ## create .venv and install the package with its development tools

run: $(VENV)/.installed  ## run the default experiment; tables and figures go to results/
	$(VENV)/bin/spuir run --out results $(RUN_ARGS)

test: $(VENV)/.installed  ## run the tests on two cores; PYTEST_ARGS="-k snapshot" chooses
	$(PY) -m pytest -n 2 $(PYTEST_ARGS)

check: $(VENV)/.installed docs  ## lint, format, types, import layers and docs
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/pyright --pythonpath $(PY)
	$(VENV)/bin/lint-imports --no-cache

bench: $(VENV)/.bench  ## measure against the peers and write docs/benchmarks.md
	$(PY) -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/.installed  ## build the documentation, offline, without a warning
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html

clean:  ## remove .venv and everything that was generated, but not results/
	rm -rf $(VENV) docs/_build build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PY) -m pip --version >/dev/null 2>&1 || PYTHON="$(PYTHON)" VENV="$(VENV)" sh tools/venv.sh
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) -e '.[bench]'
	@touch $@
