"""Who is measured: one file each, imported only when it takes part."""

from __future__ import annotations

import importlib

from tests.benchmarks.contenders.base import Prepare

CONTENDERS = {
    "gpusched": "gpusched_threads",
    "dask": "dask_threads",
    "gpusched-cluster": "gpusched_distributed",
    "dask-cluster": "dask_distributed",
    "dask-numexpr": "dask_numexpr",
    "cubed": "cubed_threads",
    "numexpr": "numexpr_strings",
    "jax": "jax_jit",
    "torch": "torch_compile",
    "numba": "numba_by_hand",
    "numpy": "numpy_plain",
    "triad": "triad",
    "copy": "copy",
    "cupy": "cupy_plain",
    "cupy-fuse": "cupy_fuse",
    "dask-cupy": "dask_cupy",
}
"""Name on the command line and in the table, and the file in this folder."""

CHUNKED = "gpusched", "dask", "gpusched-cluster", "dask-cluster", "dask-numexpr", "cubed"
"""Those that work chunk by chunk, so that inputs may be larger than memory."""

LIMITS = "triad", "copy"
"""Those that compute nothing: what memory allows."""


def load(name: str) -> Prepare:
    """Return the contender's `prepare`; raises ImportError where its library is missing."""
    prepare: Prepare = importlib.import_module(f"{__name__}.{CONTENDERS[name]}").prepare
    return prepare
