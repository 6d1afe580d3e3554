"""Functions that dask.array puts into tasks under private names: gpusched must know them there.

Tasks hold the functions themselves, so whatever reads a graph needs the same objects. dask has no
public list of them, and no issue asks for one.
"""

from __future__ import annotations

try:
    # Indexing by an array, and the join after it: take, shuffle, sort along an axis.
    from dask.array._shuffle import _getitem as take
    from dask.array._shuffle import concatenate_arrays

    # Joins the partial results of a reduction, and of `finalize`.
    from dask.array.core import _concatenate2 as concatenate2

    # Around functions of `map_blocks` and `blockwise` whose dtype the user states.
    from dask.array.core import _enforce_dtype as enforce_dtype

    # Calls a function with where its chunk is, for `block_id` and `block_info`, and for `trim`.
    from dask.array.core import _pass_extra_kwargs as pass_located

    # What `map_overlap` takes off the results.
    from dask.array.overlap import _trim as trim

    # Random chunks, of a generator and of `RandomState`.
    from dask.array.random import _apply_random as apply_random
    from dask.array.random import _apply_random_func as apply_random_func

    # What joins running totals to those of the chunks before, and does that for Blelloch's method.
    from dask.array.reductions import _cumprod_merge as cumprod_merge
    from dask.array.reductions import _cumsum_merge as cumsum_merge

    # Quantiles of chunks whose lanes are short.
    from dask.array.reductions import _custom_nanquantile as custom_nanquantile

    # Chunk functions of reductions: `nanmax` and `nanmin` of empty chunks, `nanargmax` and
    # `nanargmin` of chunks of nothing but NaN, and `std` of `var`.
    from dask.array.reductions import _nanargmax as nanargmax
    from dask.array.reductions import _nanargmin as nanargmin
    from dask.array.reductions import _nanmax_skip as nanmax_skip
    from dask.array.reductions import _nanmin_skip as nanmin_skip
    from dask.array.reductions import _prefixscan_combine as prefixscan_combine
    from dask.array.reductions import _prefixscan_first as prefixscan_first
    from dask.array.reductions import _sqrt as sqrt

    # Histograms, searches and products of chunks.
    from dask.array.routines import _block_hist as block_histogram
    from dask.array.routines import _block_histogramdd_multiarg as block_histogramdd
    from dask.array.routines import _chunk_sum as chunk_sum
    from dask.array.routines import _gradient_kernel as gradient_kernel
    from dask.array.routines import _inner_apply_along_axis as apply_along_axis
    from dask.array.routines import _int_piecewise as piecewise
    from dask.array.routines import _isin_kernel as isin_kernel
    from dask.array.routines import _matmul as matmul
    from dask.array.routines import _searchsorted_block as searchsorted_block
    from dask.array.routines import _select as select
    from dask.array.routines import _tensordot as tensordot

    # What `ones`, `zeros` and `full` make their chunks with.
    from dask.array.wrap import _broadcast_trick_inner as broadcast_trick

    # How a blockwise layer's indices become its tasks' keys; the layer writes itself out.
    from dask.blockwise import _get_coord_mapping as coordinate_mapping
except ImportError as error:
    from gpusched.adapters.tested_releases import moved

    raise moved(error) from error

__all__ = [
    "apply_along_axis",
    "apply_random",
    "apply_random_func",
    "block_histogram",
    "block_histogramdd",
    "broadcast_trick",
    "chunk_sum",
    "concatenate2",
    "concatenate_arrays",
    "coordinate_mapping",
    "cumprod_merge",
    "cumsum_merge",
    "custom_nanquantile",
    "enforce_dtype",
    "gradient_kernel",
    "isin_kernel",
    "matmul",
    "nanargmax",
    "nanargmin",
    "nanmax_skip",
    "nanmin_skip",
    "pass_located",
    "piecewise",
    "prefixscan_combine",
    "prefixscan_first",
    "searchsorted_block",
    "select",
    "sqrt",
    "take",
    "tensordot",
    "trim",
]
