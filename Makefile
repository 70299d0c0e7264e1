# make run · reproduce · test · check · bench · docs. Each sets up .venv first, once; `make help` lists them all.

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet -c constraints.txt
PYTHON ?=
RUN_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
REPRODUCE_ARGS ?=
SOURCES := src tests benchmarks docs examples

.DEFAULT_GOAL := help
.PHONY: help setup run reproduce test test-engines test-faults check bench docs clean

# One BLAS thread: results repeat bit for bit, and the worker processes do not compete for the cores.
run reproduce test test-engines test-faults bench: export OPENBLAS_NUM_THREADS = 1
run reproduce test test-engines test-faults bench: export OMP_NUM_THREADS = 1
run reproduce test test-engines test-faults bench: export MKL_NUM_THREADS = 1

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/.installed  ## create .venv and install the package with its development tools

run: $(VENV)/.installed  ## run the default experiment; the table and the figure go to results/
	$(VENV)/bin/spuir run --out results $(RUN_ARGS)

reproduce: $(VENV)/.installed  ## run the missing parts of the paper's evaluation and write docs/reproduction.md
	$(VENV)/bin/spuir reproduce --out results/reproduction $(REPRODUCE_ARGS)
	$(PY) docs/reproduction.py results/reproduction

test: $(VENV)/.installed  ## run the tests on two cores; PYTEST_ARGS="-k snapshot" selects some
	sh tools/postgres.sh
	$(PY) -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

test-engines: $(VENV)/.spark  ## run the engine tests on Spark too; installs Spark, and Java if it is missing and you are root
	$(PY) -m pytest -m spark -rs tests/contracts/test_engines.py $(PYTEST_ARGS)

test-faults: $(VENV)/.installed  ## run all tests of the service, also the long ones, and write their results into the documentation
	sh tools/postgres.sh
	mkdir -p results
	failed=0; \
	$(PY) -m pytest tests/service --junitxml=results/service-short.xml $(PYTEST_ARGS) || failed=1; \
	$(PY) -m pytest -m faults tests/service --junitxml=results/service-long.xml $(PYTEST_ARGS) || failed=1; \
	$(PY) docs/service_checks.py results/service-short.xml results/service-long.xml; \
	exit $$failed

check: $(VENV)/.installed docs  ## check lint, format, types, import layers and documentation
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/pyright --pythonpath $(PY)
	$(VENV)/bin/lint-imports --no-cache

bench: $(VENV)/.bench  ## compare speed with other libraries and write docs/benchmarks.md
	sh tools/wrk.sh
	$(PY) -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/.installed  ## build the documentation offline; a warning is an error
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html

clean:  ## remove .venv and generated files, except results/
	rm -rf $(VENV) docs/_build build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PY) -m pip --version >/dev/null 2>&1 || PYTHON="$(PYTHON)" VENV="$(VENV)" sh tools/venv.sh
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.spark: $(VENV)/.installed
	sh tools/java.sh
	$(PIP) -e '.[spark]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) -e '.[bench]'
	@touch $@
