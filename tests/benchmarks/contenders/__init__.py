"""Who is measured: one file each, imported only when it takes part."""

from __future__ import annotations

import importlib

from tests.benchmarks.contenders.base import Prepare

CONTENDERS = {
    "gpusched": "gpusched_threads",
    "dask": "dask_threads",
    "jax": "jax_jit",
    "torch": "torch_compile",
    "numexpr": "numexpr_string",
    "numpy": "numpy_plain",
    "numba": "numba_by_hand",
    "numba-warm": "numba_warm",
    "triad": "triad",
}
"""Name on the command line and in the table, and the file in this folder."""


def load(name: str) -> Prepare:
    """Return the contender's `prepare`; raises ImportError where its library is missing."""
    prepare: Prepare = importlib.import_module(f"{__name__}.{CONTENDERS[name]}").prepare
    return prepare
