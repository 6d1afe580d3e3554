"""Which functions of a task may be given lazy chunks, and what runs instead of some.

That is also what a call comes to that dask gives the place of its chunk: ``map_overlap`` trims its
results by where a chunk is, and ``dask.array.gradient`` takes the points of a chunk from those of
the whole array. A program that depended on the place itself would be another one for each chunk:
slopes of ten chunks are four kernels, which move 10 MB, rather than one, and 32 MB.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from dask.array import chunk as dask_chunk
from dask.array import reductions
from dask.array.core import concatenate_shaped
from dask.array.dispatch import numel_lookup
from dask.utils import funcname, methodcaller

from gpusched.adapters import filling
from gpusched.adapters.arrays import (
    block_histogram,
    block_histogramdd,
    cumprod_merge,
    cumsum_merge,
    custom_nanquantile,
    gradient_kernel,
    isin_kernel,
    nanmax_skip,
    nanmin_skip,
    pass_located,
    piecewise,
    prefixscan_combine,
    prefixscan_first,
    searchsorted_block,
    take,
    trim,
)
from gpusched.adapters.tasks import DataNode, GraphNode, Task
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.operations import operation_of
from gpusched.graph.functions import extremes, lanes, moments
from gpusched.graph.functions.accumulations import BY_ROWS
from gpusched.graph.functions.lonejoins import own_part, recorded_join, recorded_own_part
from gpusched.graph.functions.partials import bare, ufunc_of
from gpusched.plan.expression import UnfusibleError
from gpusched.record import (  # noqa: F401
    assignments,
    changing,
    functions,
    gathers,
    gradients,
    products,
    scans,
    searches,
    segments,
    selection,
    written,
)
from gpusched.record.catalogue import LIBRARIES, has, learn, own, recorded_form
from gpusched.record.chunk import LazyChunk, is_scalar, node_of, recorder_of
from gpusched.record.handlers import METHODS
from gpusched.record.recorded import RecordedFunction, StandIn, recorder_among
from gpusched.record.reductions import reduced
from gpusched.record.ufuncs import is_recorded_method

LIBRARIES["numba.np.ufunc.dufunc"] = "gpusched.kernels.vectorized"
LIBRARIES["numba.core.registry"] = "gpusched.kernels.jitted"
LIBRARIES.update(dict.fromkeys(filling.MODULES, "gpusched.record.fills"))


@own("view", "elementwise", "moves", shown="")
def enforced(result: Any, dtype: np.dtype, function: Callable[..., Any]) -> Any:
    """Return `result` in the dtype that dask has inferred for `function`, which gave it.

    dask's ``_enforce_dtype`` calls the function too; it stands around every operation with a 0-d
    array among its operands.

    Raises
    ------
    ValueError
        As dask raises it, for a dtype that `result` cannot be converted to safely.

    Examples
    --------
    >>> import operator
    >>> from gpusched.graph.functions.known import enforced
    >>> enforced(np.float64(2), np.dtype("f4"), operator.add)
    np.float32(2.0)
    """
    found = getattr(result, "dtype", dtype)
    if found == dtype or dtype.hasobject:
        return result
    if not np.can_cast(found, dtype, "same_kind"):
        raise ValueError(
            f"Inferred dtype from function {funcname(function)!r} was {str(dtype)!r} "
            f"but got {str(found)!r}, which can't be cast using casting='same_kind'"
        )
    return result.astype(dtype)


@own("view", "elementwise", "moves", shown="")
def of_ndim(result: Any, ndim: int, function: Callable[..., Any]) -> Any:
    """Return `result`, which is to have as many axes as dask has announced for `function`.

    dask's ``apply_and_enforce`` calls the function too.

    Raises
    ------
    ValueError
        As dask raises it, for another number of axes.

    Examples
    --------
    >>> from gpusched.graph.functions.known import of_ndim
    >>> of_ndim(np.ones(2), 1, np.ones)
    array([1., 1.])
    """
    found = getattr(result, "ndim", 0)
    if found != ndim:
        raise ValueError(
            f"Dimension mismatch: expected output of {function} "
            f"to have dims = {ndim}.  Got {found} instead."
        )
    return result


@own("passes", "moves", shown="")
def together(*results: Any) -> tuple[Any, ...]:
    """Return the results of several tasks that run as one.

    Examples
    --------
    >>> from gpusched.graph.functions.known import together
    >>> together(1, 2)
    (1, 2)
    """
    return results


Cut = tuple[Callable[..., Any], Any]
"""A function that takes a piece of what it is given, and the index of the piece."""


@own("view", "moves", shown="getitem")
def pieces(chunk: Any, cuts: tuple[tuple[Cut, ...], ...]) -> tuple[Any, ...]:
    """Return pieces of a chunk, each of what is left by the cut before.

    Examples
    --------
    >>> from operator import getitem
    >>> import numpy as np
    >>> from gpusched.graph.functions.known import pieces
    >>> pieces(np.arange(9), (((getitem, slice(6, None)), (getitem, slice(1))),))
    (array([6]),)
    """
    found = []
    for each in cuts:
        piece = chunk
        for cut, index in each:
            piece = cut(piece, index)
        found.append(owned(piece))
    return tuple(found)


COMPUTED_BY = "__gpusched_library__"
"""Attribute of functions that another library computes, with its name for people."""


def _getitem(array: Any, index: Any) -> Any:
    """dask's ``chunk.getitem``, which copies small pieces; only those that others see here."""
    if not isinstance(array, LazyChunk):
        return dask_chunk.getitem(array, index)
    piece = array[index]
    if isinstance(piece, LazyChunk) and not is_scalar(piece) and array.size >= 2 * piece.size:
        recorder_of(piece).pieces.add(node_of(piece))
    return piece


def _taken(array: Any, index: Any) -> Any:
    """dask's ``_shuffle._getitem``: an index beside a number that keeps dask from looking at it."""
    return array[index[1]]


def owned(array: Any) -> Any:
    """Return `array`, copied if it keeps a much larger one alive."""
    base = getattr(array, "base", None)
    if base is None:
        return array
    # The base of an array of NumPy's may be something else, such as a file in memory.
    if isinstance(base, np.ndarray | type(array)) and base.size >= 2 * array.size:
        return array.copy()
    return array


def _skip_nan(combine: str, plain: Callable[..., Any], x: Any, axis: Any, keepdims: Any) -> Any:
    """dask's ``_nanmin_skip`` or ``_nanmax_skip``, which warn of nothing.

    What they call would warn in a plan, which runs when they no longer leave warnings out.
    """
    if not isinstance(x, LazyChunk) or x.size == 0:
        return plain(x, axis, keepdims)
    if not x.ndim or axis == ():
        recorder_of(x).stop(GraphBreak.OPTION("a reduction without an axis"))
    try:
        return reduced(recorder_of(x), x, axis, keepdims=keepdims, combine=combine)
    except UnfusibleError as error:
        recorder_of(x).stop(error.reason)


def _custom_nanquantile(a: Any, q: Any, axis: Any = None, method: Any = "linear",
                        keepdims: Any = False, **kwargs: Any) -> Any:  # fmt: skip
    if isinstance(a, LazyChunk) and not kwargs:  # which would be weights
        return selection.short_nanquantile(a, q, axis, method, keepdims)
    return custom_nanquantile(a, q, axis, method, keepdims, **kwargs)


def _merged(join: Callable[..., Any], plain: Callable[..., Any], a: Any, b: Any) -> Any:
    """dask's ``_cumsum_merge`` or ``_cumprod_merge``, which ask for masked arrays."""
    masked = isinstance(a, np.ma.MaskedArray) or isinstance(b, np.ma.MaskedArray)
    return plain(a, b) if masked else join(a, b)


def _prefixscan_first(func: Any, x: Any, axis: Any, dtype: Any) -> Any:
    return _recorded(func, x)(x, axis=axis, dtype=dtype)


def _prefixscan_combine(func: Any, binop: Any, pre: Any, x: Any, axis: Any, dtype: Any) -> Any:
    scanned = _prefixscan_first(func, x, axis, dtype)
    return _recorded(binop, pre, scanned)(pre, scanned)


def _block_histogram(x: Any, bins_range: Any, weights: Any = None) -> Any:
    bins, ends = bins_range
    return np.histogram(x, bins, range=ends, weights=weights)[0][np.newaxis]


def _block_histogramdd(*args: Any) -> Any:
    *sample, bins, ranges, weights = args
    return np.histogramdd(tuple(sample), bins, range=ranges, weights=weights)[0][np.newaxis]


def _searchsorted_block(x: Any, y: Any, side: Any) -> Any:
    found = np.searchsorted(x, y, side=side)
    return np.where(found == 0, -1, found)[np.newaxis, :]


def _isin_block(x: Any, values: Any, assume_unique: bool = False) -> Any:
    return np.isin(x, values, assume_unique).reshape(x.shape + (1,) * values.ndim)


@own("examined", shown="coarsen")
def coarsened(reduction: Any, x: Any, axes: Any, trim_excess: bool = False, **kwargs: Any) -> Any:
    """Do what dask's ``chunk.coarsen`` does, which adds to its axes: those of all chunks."""
    sizes = [axes.get(k, 1) for k in range(x.ndim)]
    if trim_excess:
        x = x[tuple([slice(n - n % size) for n, size in zip(x.shape, sizes, strict=True)])]
    each = zip(x.shape, sizes, strict=True)
    shape = tuple([part for n, size in each for part in (n // size, size)])
    return reduction(x.reshape(shape), axis=tuple(range(1, 2 * x.ndim, 2)), **kwargs)


def _piecewise(x: Any, *conditions: Any, funclist: Any, func_args: Any, func_kw: Any) -> Any:
    """dask's ``_int_piecewise``, recorded where its choices are numbers, and no functions."""
    recorder = recorder_among((x, *conditions))
    if recorder is not None and (func_args or func_kw or any(map(callable, funclist))):
        recorder.stop(GraphBreak.OWN_CALLS("calls functions of the elements that are chosen"))
    return np.piecewise(x, list(conditions), funclist, *func_args, **func_kw)


def _recorded(function: Any, *operands: Any) -> Any:
    """Return what to call instead of a function that another one is given, if it is known."""
    found = recorded_form(function) or substitute_for(function)
    lazy = next((a for a in operands if isinstance(a, LazyChunk)), None)
    if lazy is not None and found is function and not known(function):
        recorder_of(lazy).stop(GraphBreak.OWN_CALLS(f"calls {funcname(function)}"))
    return found


SUBSTITUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    dask_chunk.getitem: _getitem,
    take: _taken,
    concatenate_shaped: recorded_join,
    own_part: recorded_own_part,
    nanmin_skip: partial(_skip_nan, "fmin", nanmin_skip),
    nanmax_skip: partial(_skip_nan, "fmax", nanmax_skip),
    cumsum_merge: partial(_merged, operator.add, cumsum_merge),
    cumprod_merge: partial(_merged, operator.mul, cumprod_merge),
    prefixscan_first: _prefixscan_first,
    prefixscan_combine: _prefixscan_combine,
    block_histogram: _block_histogram,
    block_histogramdd: _block_histogramdd,
    searchsorted_block: _searchsorted_block,
    isin_kernel: _isin_block,
    piecewise: _piecewise,
    custom_nanquantile: _custom_nanquantile,
}
"""What is called with lazy chunks instead of a function that would not take them."""
learn(SUBSTITUTES, "recorded")


EXACT: dict[Callable[..., Any], Callable[..., Any]] = {
    reductions.moment_chunk: moments.moment_chunk,
    reductions.moment_combine: moments.moment_combine,
    reductions.moment_agg: moments.moment_agg,
    dask_chunk.coarsen: coarsened,
    np.apply_along_axis: lanes.applied_along,
    **BY_ROWS,
}
"""What programs call instead of a function of dask's: what loses fewer digits, takes all lanes at
once, changes no argument, or takes rows in the order of memory."""
_PLAIN = {exact: plain for plain, exact in EXACT.items()} | {
    last: plain for plain, _, _, last in moments.LAST_STEPS
}


@numel_lookup.register(LazyChunk)
def _numel(x: LazyChunk, **kwargs: Any) -> LazyChunk:
    """Return the number of elements per result, known from the shape, on the chunk's device."""
    counted = numel_lookup.dispatch(np.ndarray)(x, **kwargs)
    return LazyChunk(recorder_of(x), recorder_of(x).constant(counted))


def last_for(function: Any, maker: Any) -> Any:
    """Return what programs call to join the results of one chunk, or `function` itself.

    Parameters
    ----------
    function
        What joins results of chunks.
    maker
        The function of the same program that makes the only one.

    Examples
    --------
    >>> from dask.array import reductions
    >>> from gpusched.graph.functions.known import last_for
    >>> last_for(reductions.mean_agg, reductions.mean_chunk).__name__
    'mean_agg_of_one'
    """
    return _LAST.get((id(function), id(maker)), function)


_LAST = {(id(joins), id(makes)): last for _, joins, makes, last in moments.LAST_STEPS}


def substitute_for(function: Any) -> Any:
    """Return what to call with lazy chunks instead of `function`."""
    return replaced_by(function, SUBSTITUTES)


def exact_for(function: Any) -> Any:
    """Return what programs call instead of `function`: what loses fewer digits, or has a kernel.

    Examples
    --------
    >>> from dask.array import reductions
    >>> from gpusched.graph.functions.known import exact_for
    >>> exact_for(reductions.moment_agg).__module__
    'gpusched.graph.functions.moments'
    """
    found = replaced_by(function, EXACT, recorded_form)
    if type(found) is partial and "flox.dask" in sys.modules:
        from gpusched.graph.functions.grouped import grouped_for

        found = grouped_for(found)
    return extremes.first_for(lanes.interpolated_for(lanes.vectorized_for(found)))


def plain_for(function: Any) -> Any:
    """Return the function of dask's that programs call another one for, or `function` itself."""
    return function.plain if isinstance(function, StandIn) else replaced_by(function, _PLAIN)


def replaced_by(function: Any, table: dict[Callable[..., Any], Callable[..., Any]],
                form: Callable[[Any], Any] = lambda function: None) -> Any:  # fmt: skip
    """Return what a table has for a function, or for what a `functools.partial` calls.

    What `form` returns of it comes before that, if it is anything.
    """
    if type(function) is partial:
        inner = replaced_by(function.func, table, form)
        if inner is not function.func:
            return partial(inner, *function.args, **function.keywords)
        return function
    found = form(function)
    if found is not None:
        return found
    try:
        return table.get(function, function)
    except TypeError:
        return function


def known(function: Any) -> bool:
    """Return whether `function` is one of NumPy's, Python's or dask's that can be recorded.

    Examples
    --------
    >>> import operator
    >>> known(np.exp), known(operator.add), known(np.linalg.svd)
    (True, True, False)
    """
    function = bare(function)
    if isinstance(function, np.ufunc):
        return operation_of(function) is not None or has(function, "recorded")
    if isinstance(function, RecordedFunction):
        return True
    if type(function) is methodcaller:
        return function.method in METHODS or function.method == "astype"
    owner = ufunc_of(function)
    if owner is not None:
        return is_recorded_method(owner, function.__name__) and function.__name__ != "at"
    return has(function, "recorded")


def is_elementwise_call(function: Any, count: int) -> bool:
    """Return whether each element of a call's result depends on the operands at its place only.

    Parameters
    ----------
    function
        The function.
    count
        How many operands it is given by position: one more would be what the result is written to,
        and of less than three `numpy.where` returns where its condition is true.

    Examples
    --------
    >>> from gpusched.graph.functions.known import is_elementwise_call
    >>> is_elementwise_call(np.add, 2), is_elementwise_call(np.add, 3)
    (True, False)
    """
    if isinstance(function, np.ufunc):
        known = function.nout == 1 and operation_of(function) is not None
        return known and count == function.nin
    fits = count == 3 if function is np.where else count <= 3
    return fits and has(function, "elementwise") and not has(function, "passes")


def computes(function: Any) -> bool:
    """Return whether a known function does arithmetic, rather than make a view."""
    return not has(bare(function), "view")


# Calls for the place of a chunk -----------------------------------------------------------


def called_for_place(function: Any, args: Sequence[Any]) -> Any:
    """Return what is called with where a chunk is, if a function calls that; or the function.

    Examples
    --------
    >>> from gpusched.adapters.arrays import pass_located
    >>> from gpusched.graph.functions.known import called_for_place
    >>> called_for_place(pass_located, (max, ("block_id",), (0, 1))), called_for_place(min, ())
    (<built-in function max>, <built-in function min>)
    """
    first = args[0] if function is pass_located and args else None
    first = first.value if isinstance(first, DataNode) else first
    return first if callable(first) else function


@dataclass(frozen=True)
class Located:
    """A call for one place."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def located(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Located | None:
    """Return what `pass_located` calls with what, for functions of dask's own; None for others.

    Parameters
    ----------
    args, kwargs
        Its arguments. Only those that are chunks may be something else than plain values.
    """
    function, keys, *rest = args
    if type(keys) is not tuple or len(keys) != 1 or len(rest) != 2:
        return None
    place, chunk = rest
    if type(place) is not tuple or any(isinstance(v, GraphNode) for v in kwargs.values()):
        return None
    if bare(function) is trim and keys == ("_overlap_trim_info",) and not kwargs:
        index = function(_Indexed(len(place[0])), _overlap_trim_info=place)
        return Located(trimmed, (chunk, index), {})
    if function is gradient_kernel and keys == ("block_id",):
        return _gradient(chunk, place, **kwargs)
    return None


@own("picks", shown="trim")
def trimmed(chunk: Any, index: tuple[slice, ...]) -> Any:
    """Return what dask's ``_trim`` leaves of a chunk, which may have fewer axes than its array.

    Examples
    --------
    >>> from gpusched.graph.functions.known import trimmed
    >>> trimmed(np.arange(5), (slice(1, -1), slice(1, -1)))
    array([1, 2, 3])
    """
    return chunk[index[: chunk.ndim]]


def _gradient(chunk: Any, place: tuple[int, ...], coord: Any, axis: int, array_locs: Any,
              grad_kwargs: Mapping[str, Any]) -> Located:  # fmt: skip
    points = coord
    if array_locs is not None:
        starts, stops = array_locs
        points = coord[starts[place[axis]] : stops[place[axis]]]
    return Located(np.gradient, (chunk, points), {"axis": axis, **grad_kwargs})


class _Indexed:
    """Stands for a chunk of which a view is taken: what it returns is the index."""

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim

    def __getitem__(self, index: Any) -> Any:
        return index


def computes_located(task: Task) -> bool:
    """Return whether a task has such a call that is recorded, and more than a view."""
    inner = task.args[0].values()
    if not any(isinstance(node, Task) and node.func is pass_located for node in inner):
        return False
    given = (value.value for value in task.args[3:] if type(value) is DataNode)
    return any(value is gradient_kernel for value in given)
