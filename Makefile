# make demo: set up .venv and show what partlabel does
# make test: set up .venv and run the tests

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench clean

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

clean:
	rm -rf .venv demo build

.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@
