"""Functions that dask.array puts into tasks under private names: gpusched must know them there."""

from __future__ import annotations

from dask.array._shuffle import _getitem as take
from dask.array._shuffle import concatenate_arrays
from dask.array.core import _concatenate2 as concatenate2
from dask.array.core import _enforce_dtype as enforce_dtype
from dask.array.overlap import _trim as trim
from dask.array.random import _apply_random as apply_random
from dask.array.random import _apply_random_func as apply_random_func
from dask.array.reductions import _nanmax_skip as nanmax_skip
from dask.array.reductions import _nanmin_skip as nanmin_skip
from dask.array.reductions import _sqrt as sqrt
from dask.blockwise import _get_coord_mapping as coordinate_mapping

__all__ = [
    "apply_random",
    "apply_random_func",
    "concatenate2",
    "concatenate_arrays",
    "coordinate_mapping",
    "enforce_dtype",
    "nanmax_skip",
    "nanmin_skip",
    "sqrt",
    "take",
    "trim",
]
