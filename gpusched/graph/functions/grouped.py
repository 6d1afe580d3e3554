"""What flox computes of each chunk for a group-by, as segmented reductions.

xarray's ``groupby`` and ``resample`` use flox where it is installed. It calls
`flox.core.chunk_reduce` with a chunk and the group of each element along an axis. Where a kernel
can do that, programs call `Grouped`, which computes the same dictionary.

Where chunks have all elements of their groups, as in ``resample``, and in ``groupby`` where time is
one chunk, flox calls `flox.core._reduce_blockwise`: there is nothing to combine afterwards, so that
it finds out itself which groups a chunk has, and gives their final results. Programs find the
groups with `labelled` and call `GroupedWhole`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import field
from functools import partial, reduce
from typing import Any

import numpy as np

from gpusched.adapters import flox
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.generate import identity_value
from gpusched.graph.functions.libraries import package
from gpusched.graph.functions.partials import COMPOSED
from gpusched.plan.expression import UnfusibleError
from gpusched.record import segments, selection
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, lazies, recorder_of
from gpusched.record.record import Recorder
from gpusched.record.recorded import StandIn

COMBINES = {"sum": "add", "nansum": "add", "prod": "multiply", "nanprod": "multiply",
            "max": "maximum", "nanmax": "maximum", "min": "minimum", "nanmin": "minimum",
            "nanlen": "add", "any": "logical_or", "all": "logical_and"}  # fmt: skip
"""How flox's reductions join values, by its names for them."""
MEANS = ("mean", "nanmean")
MOMENTS = ("var", "nanvar", "std", "nanstd")
RANKED = ("median", "nanmedian", "quantile", "nanquantile")
REAL = "biuf"
"""Kinds of dtypes whose groups are reduced here: flox squares complex deviations as they are."""
EXTREMES = {"nanmax": -math.inf, "nanmin": math.inf}
"""What NaN is replaced by in reductions that are NaN where there is nothing else."""


@dataclass(frozen=True)
class GroupedWhole(StandIn):
    """flox's function of a chunk and its groups, all of which end in this chunk.

    Equal ones compute the same, so that plans hold from graph to graph.
    """

    reduction: str
    """Its name: one of the tables above."""
    option: Any
    """Of variances, their ``ddof``; of quantiles, their ``q``: a number, or a tuple of several."""
    least: int
    """How many numbers a group needs: one with fewer has NaN as its result."""
    dtype: Any
    """What values are joined in."""
    final: Any
    """Of the result."""
    name: str
    """Key of the result in flox's dictionary."""
    axis: tuple[int, ...]
    engine: str
    sort: bool
    """Whether groups are in ascending order; as they are met if not."""
    given: Any = field(compare=False)
    """flox's own function, as flox gives it to dask."""

    __name__ = "_reduce_blockwise"

    def plain(self, array: Any, by: Any, groups: Any = None) -> Any:
        """Return what flox's own function does; it finds the groups itself."""
        del groups
        return self.given(array, by)

    def taken(self, args: tuple[Any, ...]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        """Return the call that finds the groups."""
        return {"groups": (labelled, (args[1], self.sort))}

    def user(self, function: Any) -> Any:
        """Return what takes the result out of the dictionary, for flox's function that does."""
        return extracted if flox.is_extract_result(function) else function

    def record(self, recorder: Recorder, array: Any, by: Any, groups: Any) -> dict[str, Any]:
        """Return flox's dictionary of results.

        Parameters
        ----------
        recorder
            Of the chunk.
        array, by
            A chunk, and the label of each element along its last axes.
        groups
            What `labelled` makes of the labels.
        """
        if groups is None:
            raise UnfusibleError(GraphBreak.OPERAND, "labels that are not integers")
        array = _flattened(array, by, self.axis)
        if array.dtype.kind not in REAL or array.dtype == np.float16:
            raise UnfusibleError(GraphBreak.DTYPE, f"groups of {array.dtype}")
        if self.engine != "flox" and _may_be_refused(self.reduction, array):
            raise UnfusibleError(GraphBreak.DTYPE, f"means of so many {array.dtype}")
        codes, found = groups
        result = self._result(array, codes, found.shape[0])
        return {self.name: result.astype(self.final), "groups": found}

    def _result(self, array: LazyChunk, codes: Any, count: int) -> Any:
        floats = array.dtype.kind == "f"
        number: Any = None
        if self.reduction in MOMENTS:
            found, number = self._variance(array, codes, count)
        elif self.reduction in RANKED:
            found, number = self._quantiles(array, codes, count)
        else:
            # Whoever has no NaN has a number in each group, since groups are made of elements.
            if floats and (self.least or self.reduction in (*MEANS, *EXTREMES)):
                number = self._joined(~np.isnan(array), codes, count, "nanlen", np.dtype(np.intp))
            elif self.least > 1 or self.reduction in MEANS:
                ones = np.ones_like(array, dtype=bool)
                number = self._joined(ones, codes, count, "nanlen", np.dtype(np.intp))
            found = self._total(array, codes, count)
            recorder_of(array).flush(lazies([found, number]))  # in one kernel
            found = self._finished(found, number, floats)
        if self.least and number is not None:
            found = np.where(number < self.least, np.nan, found)
        return found

    def _total(self, array: LazyChunk, codes: Any, count: int) -> Any:
        """Return the reductions, of which means and those that skip NaN make the results."""
        nothing = EXTREMES.get(self.reduction, 1.0 if self.reduction == "nanprod" else 0.0)
        values = joined_by(self.reduction, array, nothing, self.engine, self.dtype)
        return self._joined(values, codes, count, self.reduction, self.dtype)

    def _joined(self, values: Any, codes: Any, count: int, name: str, dtype: np.dtype) -> LazyChunk:
        combine = COMBINES.get(name, "add")
        # flox's own engine starts from each group's first element, which may be a negative zero.
        keeps = self.engine == "flox" and combine == "add" and dtype.kind == "f"
        initial = -0.0 if keeps else None
        return segments.reduced(values, codes, count, combine, -1, dtype, initial)

    def _finished(self, found: Any, number: Any, floats: bool) -> Any:
        if self.reduction in MEANS:
            # Where there is no number, there is no total either: flox divides zero by zero.
            mean = found.astype(np.float64) / np.maximum(number, 1)
            return np.where(number == 0, np.nan, mean).astype(self.dtype)
        if floats and self.reduction in EXTREMES:
            # flox takes what is infinite for what it has put there instead of NaN.
            flox = self.engine == "flox"
            nothing = found == EXTREMES[self.reduction] if flox else number == 0
            return np.where(nothing, found.dtype.type(np.nan), found)
        return found

    def _variance(self, array: LazyChunk, codes: Any, count: int) -> tuple[Any, Any]:
        skip = self.reduction.startswith("nan")
        parts = segments.moments(array, codes, count, -1, skip, self.dtype)
        left = parts.number - self.option
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(left < 0, np.nan, parts.squares / left)
        if self.reduction.endswith("std"):
            found = np.sqrt(found)
        return found.astype(self.dtype), parts.number

    def _quantiles(self, array: LazyChunk, codes: Any, count: int) -> tuple[Any, Any]:
        lanes = selection.lanes_by_label(array, codes, count)
        valid: Any = ~np.isnan(array)
        number: Any = segments.reduced(valid, codes, count, "add", -1, np.int64)
        # flox finds places among the numbers of all groups, one group after the other.
        before = np.cumsum(number, axis=-1) - number
        q = np.reshape(self.option, np.shape(self.option) + (1,) * array.ndim)
        places = q * (number - 1) + before
        low, high = np.floor(places), np.ceil(places)
        first = lanes.element(low.astype(np.int64) - before)
        second = lanes.next(high.astype(np.int64) - before, first)
        found = selection.between(first, second, places - low)
        needed = 1 if self.reduction.startswith("nan") else lanes.length
        return np.where(number < needed, np.nan, found).astype(self.dtype), number


def joined_by(reduction: str, array: LazyChunk, nothing: Any, engine: str, dtype: np.dtype) -> Any:
    """Return what one of flox's reductions joins in a dtype; some take `nothing` for NaN."""
    if reduction == "nanlen":
        return ~np.isnan(array)
    if array.dtype.kind == "f" and dtype.kind != "f" and reduction not in ("any", "all"):
        # Some engines convert the results rather than each element.
        raise UnfusibleError(GraphBreak.DTYPE, f"{array.dtype} joined in {dtype}")
    skips = reduction.startswith("nan") or (engine, reduction) == ("numbagg", "any")
    if skips and array.dtype.kind == "f":
        return np.where(np.isnan(array), array.dtype.type(nothing), array)
    return array


def _flattened(array: LazyChunk, by: Any, axis: tuple[int, ...]) -> Any:
    """Return a chunk with its last axes, along which groups are, made one."""
    ndim = getattr(by, "ndim", 0)
    last = tuple(range(array.ndim - ndim, array.ndim))
    if not ndim or tuple(sorted(axis)) != last or by.shape != array.shape[-ndim:]:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "groups not along the last axes")
    return array if ndim == 1 else np.reshape(array, (*array.shape[:-ndim], -1))


@own("quick")
def labelled(by: Any, sort: bool) -> Any:
    """Return the number of each element's group, and the groups, as flox numbers them.

    Parameters
    ----------
    by
        Labels of elements.
    sort
        Whether groups are in ascending order; as they are met if not.

    Returns
    -------
    tuple of arrays, or None
        None for labels that are not integers. Those of several axes are numbered row by row.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.grouped import labelled
    >>> labelled(np.array([7, 3, 3, 7]), True)
    (array([1, 0, 0, 1]), array([3, 7]))
    """
    import pandas as pd  # type: ignore[import-untyped]

    if type(by) is not np.ndarray or not by.ndim or by.dtype.kind not in "iu":
        return None
    codes, groups = pd.factorize(by.reshape(-1), sort=sort)
    return codes, groups


@own("view")
def extracted(result: Any, key: str) -> Any:
    """Do what flox's ``_extract_result`` does, for what `GroupedWhole` has given.

    Examples
    --------
    >>> from gpusched.graph.functions.grouped import extracted
    >>> extracted({"nanmean": 3, "groups": [0]}, "nanmean")
    3
    """
    while type(result) in (list, tuple):
        result = result[0]
    return result[key]


_WHOLE_OPTIONS = {"agg", "fill_value", "reindex", "axis", "expected_groups", "engine", "sort"}


def whole_for(function: partial[Any]) -> Any:
    """Return what programs call for flox's function of chunks with whole groups, or `function`.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.functions.grouped import whole_for
    >>> function = partial(max, 1)
    >>> whole_for(function) is function
    True
    """
    if not flox.is_reduce_blockwise(function.func) or function.args:
        return function
    options = function.keywords
    if options.keys() != _WHOLE_OPTIONS or options["expected_groups"] is not None:
        return function
    known = _known(options["agg"])
    if known is None or not _is_plain(options["reindex"]):
        return function
    if known[0] in RANKED and options["engine"] != "flox":
        return function  # other engines interpolate in other arithmetic
    return GroupedWhole(*known, options["axis"], options["engine"], options["sort"], function)


def _is_plain(reindex: Any) -> bool:
    """Return whether results are left in the order of a chunk's groups, as NumPy's arrays."""
    return reindex.blockwise is False and reindex.array_type.name in ("AUTO", "NUMPY")


def _known(agg: Any) -> tuple[str, Any, int, Any, Any, str] | None:
    """Return what `GroupedWhole` has of flox's aggregation; None for one that is not known."""
    name = _reduction(agg)
    wanted = () if not agg.min_count else ("nanlen",)
    if name is None or agg.numpy[1:] != wanted or agg.reduction_type != "reduce":
        return None
    if agg.new_dims and name not in RANKED:
        return None
    option = _option(name, agg.finalize_kwargs)
    if option is None:
        return None
    fills = [agg.fill_value["user"]] if agg.min_count else []
    fills += [agg.fill_value["numpy"][0]] if name in EXTREMES else []
    dtype, final = np.dtype(agg.dtype["numpy"][0]), np.dtype(agg.dtype["final"])
    if name in (*MEANS, *MOMENTS) and dtype.kind != "f":
        return None  # It may be an error.
    # What has no NaN is filled only where a group has fewer elements than it needs.
    if (final.kind == "f" or agg.min_count > 1) and not all(map(_is_missing, fills)):
        return None
    return name, option, int(agg.min_count), dtype, final, agg.name


def _option(name: str, options: dict[str, Any]) -> Any:
    """Return what `GroupedWhole` has of the options of a reduction; None for others."""
    if name in MOMENTS and options.keys() <= {"ddof"}:
        ddof = options.get("ddof", 0)
        return ddof if type(ddof) is int else None
    if name in RANKED:
        q = np.asarray(0.5 if name.endswith("median") else options.get("q"))
        plain = options.keys() <= {"q"} and q.dtype == float and q.ndim < 2 and q.size > 0
        known = plain and q.min() >= 0 and q.max() <= 1
        return (tuple(q.tolist()) if q.ndim else float(q)) if known else None
    return None if options else 0


def _reduction(agg: Any) -> str | None:
    """Return the name of an aggregation's reduction; None if it is not in the tables."""
    first = agg.numpy[0]
    if type(first) is partial:
        variance = getattr(sys.modules["flox.aggregations"], "blockwise_or_numpy_var", None)
        options = {"std": False, **first.keywords}
        if first.func is not variance or first.args or options.keys() != {"std", "skipna"}:
            return None
        return f"{'nan' if options['skipna'] else ''}{'std' if options['std'] else 'var'}"
    return first if type(first) is str and first in (*COMBINES, *MEANS, *RANKED) else None


def _may_be_refused(reduction: str, array: LazyChunk) -> bool:
    """Return whether flox's engines refuse what float64, or a difference, may not hold exactly."""
    if array.dtype.kind not in "iu" or reduction not in (*MEANS, *MOMENTS):
        return False
    exact = reduction in MEANS and array.size * int(np.iinfo(array.dtype).max) <= 2**53
    return not exact and (reduction in MEANS or array.dtype.itemsize == 8)


def _is_missing(fill: Any) -> bool:
    """Return whether a value is NaN, or stands for it."""
    if isinstance(fill, float | np.floating):
        return math.isnan(fill)
    return fill is sys.modules["flox.xrdtypes"].NA


VARIANCES = {"var": False, "nanvar": True}
"""Whether NaN is left out of variances, by flox's names for them without the chunks."""


@dataclass(frozen=True)
class Grouped(StandIn):
    """flox's function of a chunk and its groups, where these are ``range(count)``.

    Equal ones compute the same, so that plans hold from graph to graph.
    """

    reductions: tuple[str, ...]
    """Their names."""
    fill_values: tuple[Any, ...]
    """What groups without elements get, for each reduction."""
    dtypes: tuple[Any, ...]
    """Of the results."""
    axis: tuple[int, ...]
    engine: str
    sort: bool
    count: int
    """How many groups there are."""
    given: Any = field(compare=False)
    """flox's own function, as flox gives it to dask."""

    __name__ = "chunk_reduce"

    @property
    def finish(self) -> Any:
        """What is done with the dictionary of a lazy chunk in the end; None for nothing."""
        return finished if VARIANCES.keys() & set(self.reductions) else None

    def plain(self, *args: Any) -> Any:
        """Return what flox's own function does."""
        return self.given(*args)

    def record(self, recorder: Recorder, array: Any, by: Any) -> dict[Any, Any]:
        """Return flox's dictionary of intermediate results."""
        # numba has no arrays of float16, and numbagg raises an error.
        half = self.engine == "numbagg" and array.dtype == np.float16
        if array.dtype.kind not in REAL or half:
            raise UnfusibleError(GraphBreak.DTYPE, f"groups of {array.dtype}")
        array, axes = _flattened(array, by, self.axis), len(self.axis)
        by = by if axes == 1 else np.reshape(by, -1)
        results = [
            self._result(array, by, *each)
            for each in zip(self.reductions, self.fill_values, self.dtypes, strict=True)
        ]
        recorder.flush(lazies(results))  # in one kernel
        groups = np.broadcast_to(np.arange(self.count), (*(1,) * (axes - 1), self.count))
        return {"groups": groups, "intermediates": tuple([_expanded(r, axes) for r in results])}

    def _result(self, array: LazyChunk, by: Any, func: str, fill: Any, dtype: Any) -> Any:
        if func in VARIANCES:
            found = segments.moments(array, by, self.count, -1, VARIANCES[func], dtype)
            # NumPy's engine counts in integers, by which flox joins chunks in float64.
            number = found.number.astype(np.intp if self.engine == "numpy" else dtype)
            return found.squares.astype(dtype), found.total.astype(dtype), number
        combine, dtype = COMBINES[func], np.dtype(dtype)
        nothing = identity_value(combine, dtype)
        if nothing != fill:
            raise UnfusibleError(GraphBreak.NO_KERNEL, f"{func} that gives {fill!r} of nothing")
        values = joined_by(func, array, nothing, self.engine, dtype)
        return segments.reduced(values, by, self.count, combine, -1, dtype)


def _expanded(result: Any, axes: int) -> Any:
    """Return a result with axes of length 1: one instead of each but the last that is reduced.

    And the one along which flox puts those of chunks side by side.
    """
    from flox.core import DUMMY_AXIS

    if type(result) is tuple:
        return tuple([_expanded(each, axes) for each in result])
    several = np.expand_dims(result, tuple(range(-axes, -1))) if axes > 1 else result
    return np.expand_dims(several, DUMMY_AXIS)


@own("quick")
def finished(found: Any) -> Any:
    """Return a dictionary of intermediate results in which variances are as flox has them."""
    from flox.multiarray import MultiArray

    results = [MultiArray(each) if type(each) is tuple else each for each in found["intermediates"]]
    return found | {"intermediates": tuple(results)}


def _named(function: Any) -> Any:
    """Return the name of a reduction, or what is not one of those that are known."""
    variance = getattr(sys.modules.get("flox.aggregations"), "var_chunk", None)
    if not isinstance(function, partial) or function.func is not variance or function.args:
        return function
    names = (name for name, skip in VARIANCES.items() if function.keywords == {"skipna": skip})
    return next(names, function)


LEAST_IN_PAIRS = 8
"""How many numbers NumPy adds up pair by pair at least (``pairwise_sum`` in its loops)."""

_ADDED = "dflqLQ"
_COMPARED = "bhilqBHILQfd"
JOINS = {
    np.sum: (np.add, _ADDED), np.prod: (np.multiply, _ADDED),
    np.max: (np.maximum, _COMPARED), np.min: (np.minimum, _COMPARED),
    np.nanmax: (np.fmax, _COMPARED), np.nanmin: (np.fmin, _COMPARED),
    np.any: (np.logical_or, "?"), np.all: (np.logical_and, "?"),
}  # fmt: skip
"""What joins two results, by the function of NumPy's that flox joins several with; and for which
dtypes, by their characters, the result is of the same one."""


@own("quick")
def combined(given: partial[Any], pairs: Any, **options: Any) -> Any:
    """Do what flox's function does that joins the results of chunks, sooner.

    flox puts results of chunks next to each other, a dozen numbers at a time, and goes over them
    once, or for variances thirty times: means of ten chunks by month take 1.2 times the processor
    time so, and deviations 1.7 times. Here one is joined to the next, in the order and by the
    formula of flox, so that the bits are the same: what `given` gets is the results of a single
    chunk. Where an error is to be reported, flox does it.
    """
    joins = given.keywords["agg"].simple_combine
    try:
        with np.errstate(all="raise"):
            joined = _joined_one_by_one(pairs, joins)
    except FloatingPointError:
        joined = None
    return given(pairs if joined is None else [joined], **options)


def _joins_in_order(join: Any) -> bool:
    """Return whether a function of flox's joins results as one joined to the next would be."""
    return flox.is_var_combine(join) or any(join is each for each in JOINS)


def _joined_one_by_one(pairs: Any, joins: tuple[Any, ...]) -> dict[str, Any] | None:
    """Return a dictionary of what chunks' dictionaries hold together; None if flox must join it."""
    if type(pairs) is not list or len(pairs) < 2 or any(type(pair) is not dict for pair in pairs):
        return None
    found: list[Any] = []
    for k, join in enumerate(joins):
        parts, several = [pair["intermediates"][k] for pair in pairs], flox.is_var_combine(join)
        if any(hasattr(part, "arrays") != several for part in parts):
            return None
        arrays = [array for part in parts for array in (part.arrays if several else (part,))]
        combine, dtypes = JOINS[np.sum if several else join]
        if not _are_joined_in_order(arrays, len(parts), dtypes):
            return None
        joined = _joined_variances(parts) if several else reduce(combine, parts)
        if joined is None:
            return None
        found.append(joined)
    return {"groups": pairs[0]["groups"], "intermediates": tuple(found)}


def _are_joined_in_order(arrays: list[Any], count: int, dtypes: str) -> bool:
    """Return whether NumPy joins results of `count` chunks one after the other, in their dtype.

    It adds eight and more pair by pair where flox puts them next to each other in memory: those of
    one group, and of arrays that are not in C order.
    """
    shapes = {getattr(array, "shape", ()) for array in arrays}
    plain = all(type(array) is np.ndarray and array.dtype.char in dtypes for array in arrays)
    if not plain or len(shapes) > 1 or arrays[0].ndim < 2:
        return False
    alone, groups = arrays[0].shape[-2:]
    across = groups > 1 and all(array.flags.c_contiguous for array in arrays)
    return alone == 1 and (across or count < LEAST_IN_PAIRS)


def _joined_variances(parts: list[Any]) -> Any:
    """Return squares of deviations, totals and numbers of several chunks, by flox's formula.

    None where flox reports an invalid value: it multiplies what is infinite between chunks by 0.
    """
    from flox.multiarray import MultiArray

    squares, total, number = parts[0].arrays
    between: Any = 0
    for other, more, count in (part.arrays for part in parts[1:]):
        empty = (number == 0) | (count == 0)
        apart = (number * more - count * total) ** 2
        between = between + apart / (number * count * (number + count) + empty.astype(int))
        squares, total, number = squares + other, total + more, number + count
    return MultiArray((squares + between, total, number)) if np.isfinite(between).all() else None


_OPTIONS = {"func", "fill_value", "dtype", "axis", "engine", "sort", "reindex", "user_dtype",
            "expected_groups"}  # fmt: skip


def grouped_for(function: Any) -> Any:
    """Return what programs call for flox's function of a chunk, or `function` itself.

    Examples
    --------
    >>> from gpusched.graph.functions.grouped import grouped_for
    >>> grouped_for(max) is max
    True
    """
    if "flox.dask" not in sys.modules or not isinstance(function, partial):
        return function
    whole = whole_for(function)
    if whole is not function:
        return whole
    if flox.joins_alike(function):
        known = all(map(_joins_in_order, function.keywords["agg"].simple_combine))
        return partial(combined, function) if known else function
    options = _options(function)
    if options is None or options.keys() != _OPTIONS:
        return function
    if type(options["func"]) is tuple:
        options["func"] = tuple(map(_named, options["func"]))
    groups = options.pop("expected_groups")
    one = options.pop("user_dtype") is None and options.pop("reindex") is True
    if not one or not _is_range(groups) or not _is_known(options):
        return function
    return Grouped(options["func"], options["fill_value"], options["dtype"], options["axis"],
                   options["engine"], options["sort"], len(groups), function)  # fmt: skip


def keeps_groups(function: Any) -> bool:
    """Return whether a function is flox's, and calls nothing of somebody's own.

    flox has counted the groups when it built the graph, so that results are as long as dask knows.

    Examples
    --------
    >>> from functools import partial
    >>> import flox.core
    >>> from gpusched.graph.functions.grouped import keeps_groups
    >>> keeps_groups(partial(flox.core.chunk_reduce, func="nansum")), keeps_groups(np.unique)
    (True, False)
    """
    called = function
    while isinstance(called, partial | COMPOSED):
        called = called.func if isinstance(called, partial) else called.first
    return callable(called) and package(called) == "flox" and _calls_none_of_others(function)


def _calls_none_of_others(value: Any) -> bool:
    """Return whether what a function calls, or may call of what it is given, is no one else's."""
    if isinstance(value, partial):
        return all(map(_calls_none_of_others, (value.func, *value.args, *value.keywords.values())))
    if isinstance(value, COMPOSED):
        return all(map(_calls_none_of_others, (value.first, *value.funcs)))
    if type(value) in (tuple, list):
        return all(map(_calls_none_of_others, value))
    if flox.is_aggregation(value):
        return all(map(_calls_none_of_others, vars(value).values()))
    return not callable(value) or package(value) in ("flox", "numpy")


def _options(function: Any) -> dict[str, Any] | None:
    """Return the options of flox's function inside of what it gives to dask, or None."""
    composed = function.func
    inner: Any = getattr(composed, "first", None)
    others: Any = getattr(composed, "funcs", ())
    if len(others) != 1 or not flox.is_expand_dims(others[0]) or not isinstance(inner, partial):
        return None
    if inner.func is not sys.modules["flox.core"].chunk_reduce or inner.args or function.args:
        return None
    return inner.keywords | function.keywords


def _is_range(groups: Any) -> bool:
    """Return whether groups are numbers from 0 on."""
    import pandas as pd

    return isinstance(groups, pd.RangeIndex) and (groups.start, groups.step) == (0, 1)


def _is_known(options: dict[str, Any]) -> bool:
    """Return whether all reductions are in the table, and all options are as `Grouped` has them."""
    several = all(type(options[name]) is tuple for name in ("func", "fill_value", "dtype", "axis"))
    names = COMBINES | VARIANCES
    # Objects are filled with one that is larger or less than any: it cannot be hashed.
    return (
        several
        and all(type(each) is str and each in names for each in options["func"])
        and _are_numbers(options["fill_value"])
    )


def _are_numbers(fills: Any) -> bool:
    """Return whether what flox fills results with is numbers; of a variance, it is several."""
    if type(fills) is tuple:
        return all(map(_are_numbers, fills))
    return fills is None or isinstance(fills, int | float | complex | np.generic)
