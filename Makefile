# make demo: set up .venv and show what partlabel does
# make test: set up .venv and run the tests
# make docs: build the documentation site into docs/_build/html

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench docs clean

demo: .venv/.ready
	rm -rf demo
	$(BIN)/partlabel demo --out demo

test: .venv/.ready
	$(BIN)/python -m pytest -n 2

check: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/.ready
	$(BIN)/python -m benchmarks

docs: .venv/.docs-ready
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf .venv demo build docs/_build

.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

# Sphinx is an extra of its own: neither the demo nor the tests need it
.venv/.docs-ready: .venv/.ready
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@
