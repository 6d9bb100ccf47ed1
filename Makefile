# make demo: set up .venv and show what partlabel does
# make test: set up .venv and run the tests
# make attack: attack partlabel with damaged files, kills and full disks; takes long
# make docs: build the documentation site into docs/_build/html
# make exact: test exact results with other CPU kernels and numbers of threads
# make dist: build the package, and install it in a new environment
# make lock: write the exact versions and hashes of all packages, after a change of pyproject.toml
# make locked: set up .venv from files with these hashes only

PYTHON ?= python3
BIN := .venv/bin

EXTRAS = $(shell $(PYTHON) -c 'import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep=",")')

# Versions are exact, so that everyone tests the same. Hashes are not compared here: mirrors have
# builds of their own, above all of torch (CPU, CUDA), which differ in their hashes and are as good.
# `make locked` compares them.
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: demo test check exact attack bench docs dist lock locked clean

demo: .venv/.ready
	rm -rf demo
	$(BIN)/partlabel demo --out demo

test: .venv/.ready
	$(BIN)/python -m pytest -n 2

check: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# What a run gives must not depend on a resume, whatever kernels the CPU has: every method with the
# oldest ones on one thread, the optimisers and one method with AVX2 on two threads. `make test` has
# this CPU's own.
exact: .venv/.ready
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 \
	$(BIN)/python -m pytest -n 2 -m exact
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OMP_NUM_THREADS=2 \
	$(BIN)/python -m pytest -m exact tests/test_checkpoint.py tests/test_data.py tests/test_optimizers.py \
	  tests/test_trainer.py tests/test_methods_em.py

attack: .venv/.ready
	$(BIN)/python -m attacks --jobs 2

bench: .venv/.ready
	$(BIN)/python -m benchmarks

docs: .venv/.docs-ready
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

dist: .venv/.release-ready
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet dist/*.whl
	cd build && clean/bin/partlabel scenes scenes --count 24 --classes 3 --size 32 \
	&& clean/bin/partlabel train scenes/labels.csv --images scenes/images --method bce --frozen \
	   --size 32 --epochs 1 --val 0.5 --cache cache --out run \
	&& clean/bin/partlabel report run --cache cache

clean:
	rm -rf .venv demo build dist docs/_build

# Keeps the versions that still fit. `make lock UPGRADE=1` takes the newest ones.
lock: .venv/.ready
	mkdir -p build
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report build/lock.json \
	  $(if $(UPGRADE),,--constraint constraints.txt) --editable ".[$(EXTRAS)]"
	$(BIN)/python .ci/lock.py build/lock.json

# The second installation adds this package, and what a build of torch with CUDA needs besides.
locked:
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement hashes.txt
	$(INSTALL) ".[$(EXTRAS)]"
	cp constraints.txt .venv/
	touch .venv/.ready .venv/.release-ready .venv/.docs-ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) ".[dev]"
	cp constraints.txt .venv/
	touch $@

.venv/.release-ready: .venv/.ready
	$(INSTALL) ".[release]"
	touch $@

# Sphinx is an extra of its own: neither the demo nor the tests need it
.venv/.docs-ready: .venv/.ready
	$(INSTALL) ".[docs]"
	touch $@
