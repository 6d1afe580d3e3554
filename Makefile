# make demo     run the main example on this machine, and once more with plain dask to compare
# make check    style, types, layers and links: a minute
# make test     run the tests of the default tier: minutes
# make test-all run everything, an hour and more, and write down that it ran
# make bench    measure against other libraries
# make docs     make the pages of the documentation, in docs/_build
#
# Parts of test-all:
# make test-processes   tests that start processes: clusters, commands, pages, faults
# make test-exhaustive  all combinations of which the default tier runs some, and slow tests
# make test-cuda        compile for GPUs and run their kernels on the CPU: needs no GPU
# make test-gpu         tests with CuPy: on a GPU if there is one, else on an emulated one
# make test-gpu-chunks  tests of graphs, plans, recordings, workers and models, their chunks on it
# make test-models      call models of torch, JAX, ONNX and scikit-learn, and send their arrays
# make test-peers       run the tests of dask.array, dask-array and xarray with all chunks fused
# make test-python      fusion with another Python and its newest NumPy: PYTHON=python3.13 VENV=build/python3.13
# make test-interop     use other libraries beside it: xarray, scikit-learn, dask-ml, sparse, ...
# And beside it: make test-ecosystem runs the tests of packages that use dask's arrays with all chunks
# fused, make gpu-report measures a GPU, make test-nightly searches for new defects, make fuzz
# loads a million forged files, make coverage says what tests reach.
#
# PYTHON=python3.12 chooses the interpreter, VENV=path the virtual environment, ARGS="-k name" adds
# arguments to the command that a target runs. make demo passes ARGS="--scale 32" to the example, and
# FLAGS="--workers 2" to gpusched run; COMPARE=no leaves plain dask out. INSTALL="uv pip install"
# installs with uv instead of pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL ?= $(BIN)/python -m pip install
PYTEST = $(BIN)/python -m pytest
PARALLEL := -n auto --maxprocesses 4 --dist worksteal
# What all parts of test-all but the default tier look for new examples with.
EVERY := --hypothesis-profile=ci
# More examples than the default tier, and all tests of the files that are named.
WHOLE = $(PARALLEL) $(EVERY) -m "not nightly"

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all test-processes test-processes-common test-exhaustive test-cuda test-gpu \
    test-gpu-chunks test-gpu-common gpu-report test-models test-python test-interop test-peers test-peers-common test-ecosystem test-nightly fuzz coverage bench docs lint format clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

demo: $(VENV)/.demo
	$(BIN)/python -m tests.demo $(if $(filter no,$(COMPARE)),--once) $(FLAGS) docs/examples/terrain.py $(ARGS)

check: lint
	$(PYTEST) -q tests/test_layers.py tests/test_documentation.py -k "layers or layer or link" $(ARGS)

test: $(VENV)/.test
	$(PYTEST) $(PARALLEL) $(ARGS)

# SHARD=2/4 runs the second of four shares of the parts.
test-all: $(VENV)/.test
	$(BIN)/python -m tests.everything $(if $(SHARD),--shard $(SHARD)) $(ARGS)

test-processes: $(VENV)/.test
	$(PYTEST) $(PARALLEL) $(EVERY) -m "processes and not (peers or nightly)" $(ARGS)

# Those that have found most: all but combinations, repetitions on more machines, and most pages.
test-processes-common: $(VENV)/.test
	$(PYTEST) $(PARALLEL) -m "processes and not (slow or exhaustive or peers or nightly)" $(ARGS)

test-exhaustive: $(VENV)/.test
	$(PYTEST) $(PARALLEL) $(EVERY) -m "(exhaustive or slow) and not (processes or peers or nightly)" $(ARGS)

test-cuda: $(VENV)/.cuda-test
	$(PYTEST) $(WHOLE) tests/backends/cuda tests/kernels/test_cuda.py \
	    tests/kernels/test_cuda_scan.py tests/inspection/test_source.py $(ARGS)

# A GPU's driver is asked, as tests/tiers.py does; where there is none, every process gets the
# emulated GPU of tests/emulated_gpu. GPUSCHED_EMULATED_GPU=devices=2,protect sets its modes.
GPUSCHED_EMULATED_GPU ?= $(shell $(BIN)/python -c "from tests import tiers; print(int(not tiers.has_gpu()))")
ON_GPU = GPUSCHED_EMULATED_GPU=$(GPUSCHED_EMULATED_GPU) \
    PYTHONPATH=$(CURDIR)/tests/emulated_gpu/start$${PYTHONPATH:+:$$PYTHONPATH}
test-gpu: $(VENV)/.gpu-test
	$(ON_GPU) $(PYTEST) $(PARALLEL) $(EVERY) -m "gpu and not nightly" $(ARGS)

# Tests that know nothing of a GPU, with their chunks on it; tests/placing/host_only.py has those
# that cannot be.
test-gpu-chunks: $(VENV)/.gpu-test
	$(ON_GPU) $(PYTEST) $(PARALLEL) -p tests.placing.on_gpu \
	    -m "not (gpu or processes or peers or nightly or slow or exhaustive)" \
	    tests/graph tests/plan tests/record tests/workers tests/serialization tests/threadsafe \
	    tests/models $(ARGS)

# Those that have found most: programs, memory, the emulator's own, and one of each kind of cluster.
test-gpu-common: $(VENV)/.gpu-test
	$(ON_GPU) $(PYTEST) $(PARALLEL) -m "gpu and (essential or not processes) and not (nightly or peers or slow)" \
	    tests/gpu tests/placing tests/emulated_gpu tests/workers/test_cuda_device.py \
	    tests/serialization/arrays $(ARGS)

# Measures this machine's GPU in minutes and writes what came of it: results.jsonl and a page.
# Needs no network where the packages are installed. ARGS=--rehearsal takes little, ARGS=--help
# lists the steps.
gpu-report: $(VENV)/.gpu-test
	$(ON_GPU) $(BIN)/python -m tests.gpu_report --write docs/reference/gpu-report.md $(ARGS)

# What of the tests needs the libraries of that extra.
test-models: $(VENV)/.models-test
	$(PYTEST) $(WHOLE) tests/models tests/ops/test_torch.py tests/serialization/arrays \
	    tests/threadsafe/test_real.py tests/workers/memory/test_sizes.py $(ARGS)
	$(PYTEST) $(WHOLE) tests/test_examples.py tests/test_documentation.py \
	    -k "arrays or models or saved" $(ARGS)

# Those that notice other bytecode, other functions in NumPy and what its compiler makes of them.
test-python: $(VENV)/.python-test
	$(PYTEST) $(PARALLEL) tests/graph/test_fusion_counts.py $(wildcard tests/graph/test_safety*.py) \
	    tests/record/test_rearranging.py \
	    tests/emit/test_floating_point_errors.py::test_ordinary_numbers_and_nan_raise_nothing \
	    tests/backends/cuda/test_simulated.py::test_agrees_with_numpy[forwards-sum-uint8] $(ARGS)

test-interop: $(VENV)/.interop-test
	$(PYTEST) $(WHOLE) tests/interop $(ARGS)
	$(PYTEST) $(WHOLE) tests/graph/test_filling.py $(ARGS)
	$(PYTEST) $(WHOLE) tests/frontends -k "columns or hdf5" $(ARGS)
	$(PYTEST) $(WHOLE) tests/test_documentation.py -k interoperate $(ARGS)

test-peers: $(VENV)/.test
	$(PYTEST) $(PARALLEL) tests/peers -m "peers and exhaustive" $(ARGS)

# Each third test of the modules that use chunks most.
test-peers-common: $(VENV)/.test
	$(PYTEST) $(PARALLEL) tests/peers -m "peers and not exhaustive" $(ARGS)

# Hours; writes docs/reference/compatibility.md. ARGS="--only flox xgcm" measures those packages and
# keeps what was measured of the others, --missing those of which nothing is kept;
# --sources /folder takes clones that lie there, as /folder/dask/dask-ml; --before /a/checkout counts
# with the gpusched of another checkout, for the column beside today's.
test-ecosystem: $(VENV)/.test
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m tests.peers.compatibility $(ARGS)

test-nightly: $(VENV)/.test
	$(PYTEST) $(PARALLEL) --hypothesis-profile=nightly -m "not peers" $(ARGS)

# Forged files and damaged messages, with Python's checks of its memory and msgpack's assertions.
CASES ?= 1000000
fuzz: $(VENV)/.asserts
	PYTHONPATH=$(VENV)/asserts $(BIN)/python -X dev -m tests.saving.fuzz --cases $(CASES) --seed "$$(date +%j)" $(ARGS)
	PYTHONPATH=$(VENV)/asserts $(BIN)/python -X dev -m tests.serialization.fuzz --seconds 600

# Of the default tier; make test-all prints it for all tests.
coverage: $(VENV)/.test
	$(PYTEST) $(PARALLEL) --cov --cov-branch --cov-report= $(ARGS)
	$(BIN)/python -m tests.folder_coverage

# More than an hour on two quiet cores. ARGS="--only clip heat" measures some works alone, with
# ARGS="--merge FILE" beside what an earlier run has kept. README's table alone, in minutes:
# .venv/bin/python -m tests.benchmarks --readme README.md
bench: $(VENV)/.bench
	$(BIN)/python -m tests.benchmarks --write docs/explanation/performance.md --readme README.md $(ARGS)

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
$(VENV)/.demo $(VENV)/.test $(VENV)/.cuda-test $(VENV)/.gpu-test $(VENV)/.models-test $(VENV)/.python-test $(VENV)/.interop-test $(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "installing gpusched with its $* packages in $(VENV): a minute or two"
	VIRTUAL_ENV=$(abspath $(VENV)) $(INSTALL) --quiet --editable '.[$*]'
	@touch $@

$(VENV)/.asserts: pyproject.toml | $(VENV)/.test
	CFLAGS=-UNDEBUG $(BIN)/python -m pip install --quiet --upgrade --no-deps --no-binary msgpack \
	    --target $(VENV)/asserts msgpack
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
