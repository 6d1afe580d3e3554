# make demo   run the main example on this machine      make lint    style and types
# make test   run the tests                             make bench   measure against other libraries
# make test-cuda    compile for GPUs and run their kernels on the CPU: needs no GPU
# make test-models  call models of torch, JAX, ONNX and scikit-learn, and send their arrays
# make test-peers   run dask's own array tests with every chunk fused
# make test-interop use other libraries beside it: xarray, scikit-learn, dask-ml, sparse, ...
# make docs         make the pages of the documentation, in docs/_build
#
# PYTHON=python3.12 chooses the interpreter, VENV=path the virtual environment, ARGS="-k name" adds
# arguments to the command that a target runs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-cuda test-models test-interop test-peers bench docs lint format clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

demo: $(VENV)/.demo
	$(BIN)/gpusched run docs/examples/terrain.py $(ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-cuda: $(VENV)/.cuda-test
	$(BIN)/python -m pytest $(PARALLEL) tests/fusion/cuda tests/kernels/test_cuda.py \
	    tests/kernels/test_cuda_scan.py tests/inspection/test_source.py $(ARGS)

# What of the tests needs the libraries of that extra.
test-models: $(VENV)/.models-test
	$(BIN)/python -m pytest $(PARALLEL) tests/models tests/ops/test_torch.py \
	    tests/serialization/arrays \
	    tests/threadsafe/test_real.py tests/workers/memory/test_sizes.py $(ARGS)
	$(BIN)/python -m pytest $(PARALLEL) tests/test_examples.py tests/test_documentation.py \
	    -k "arrays or models or saved" $(ARGS)

test-interop: $(VENV)/.interop-test
	$(BIN)/python -m pytest $(PARALLEL) tests/interop $(ARGS)
	$(BIN)/python -m pytest tests/test_documentation.py -k interoperate $(ARGS)

test-peers: $(VENV)/.test
	$(BIN)/python -m pytest tests/peers -m "peers or not peers" -s $(ARGS)

# More than an hour on two quiet cores. ARGS="--only clip heat" measures some works alone.
bench: $(VENV)/.bench
	$(BIN)/python -m tests.benchmarks --write docs/explanation/performance.md $(ARGS)

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --quiet docs docs/_build $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/typos
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist docs/_build docs/reference/generated *.egg-info .mypy_cache .pytest_cache .ruff_cache

# One stamp for each set of extras: pip runs again only when pyproject.toml has changed.
$(VENV)/.demo $(VENV)/.test $(VENV)/.cuda-test $(VENV)/.models-test $(VENV)/.interop-test $(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# Installed first, with its own index, since PyPI's torch brings CUDA's libraries: gigabytes.
$(VENV)/.models-test $(VENV)/.interop-test $(VENV)/.bench: $(VENV)/.torch
$(VENV)/.torch: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps --retries 0 \
	    --index-url https://download.pytorch.org/whl/cpu \
	    "$$(sed -n 's/^ *"\(torch==[0-9.]*\)",$$/\1/p' pyproject.toml)"
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null || \
	    { echo "$(PYTHON) is not Python 3.11 or newer; choose one with make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Environments that .github/workflows makes before it runs tests, in a VENV of their own:
# make lowest VENV=.venv-lowest && make test VENV=.venv-lowest
.PHONY: lowest upstream wheels

# The oldest releases that pyproject.toml allows of what the tests need.
lowest: $(VENV)/.lowest
$(VENV)/.lowest: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --resolution lowest-direct \
	    --editable '.[test]'
	@touch $@ $(VENV)/.test

# What dask and distributed will release next. UPSTREAM=git+file:///folder takes clones that lie there.
UPSTREAM ?= git+https://github.com/dask
upstream: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall \
	    $(UPSTREAM)/dask $(UPSTREAM)/distributed

# The source archive and the wheel in dist/, and README's first example with the wheel alone.
wheels: $(VENV)/.test
	rm -rf dist build/wheels
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m venv build/wheels
	build/wheels/bin/python -m pip install --quiet dist/*.whl
	$(BIN)/python tests/first_example.py build/wheels/bin/python
