# Two targets do everything on a machine that has Python 3.11+, pip and make:
#   make demo   the main job: BC and EDM on CartPole, a table and a figure
#   make test   the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test release lint types pages docs wheel bench clean

demo: $(VENV)/.core
	$(BIN)/sbil quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# Long tests, each much like one that `make test` runs.
release: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m release
	SBIL_KILLS=200 $(BIN)/python -m pytest -q tests/experiments/test_kills.py
	SBIL_FUZZ=2500 $(BIN)/python -m pytest -q tests/demonstrations/test_fuzz.py

lint: types pages

types: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pages: $(VENV)/.dev
	$(BIN)/python -m studies.publish --check

# The site in site/, from docs/ and the docstrings. The variable silences an advertisement of the theme.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel in dist/, tried in an environment that has nothing else.
wheel:
	rm -rf dist build/wheel
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && wheel/bin/sbil quickstart --updates 200 --out wheel/quickstart

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks all

clean:
	rm -rf $(VENV) build dist site quickstart .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("sbil needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.core

# PyTorch, which the benchmarks compare with, may bring several GB.
$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@
