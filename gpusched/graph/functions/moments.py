"""dask's reductions to variances, with means that are kept more exactly than dask keeps them.

dask joins the squares of chunks by their means, which it has as quotients of sums: data with a
large mean loses twice as many digits as the mean has before the point. Here each chunk's mean comes
with what rounding it loses. What else dask has in its dictionaries is as ever, so that its own
functions understand what these return, and these what dask's do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from dask.array import chunk, reductions
from dask.utils import deepmap

from gpusched.backends.devices import device_of
from gpusched.breaks import GraphBreak
from gpusched.emit.floatingpoint import INVALID, QUOTIENT, heeded, note
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, compute, node_of, recorder_of
from gpusched.record.moments import Moments, joined, moments
from gpusched.record.postponed import form_of
from gpusched.record.record import Recorder
from gpusched.record.recorded import recorder_among

_KINDS = frozenset("?bhilqBHILQfd")
"""Dtypes whose variances are computed here."""


@own("recorded")
def moment_chunk(
    A: Any,
    order: int = 2,
    sum: Any = chunk.sum,
    numel: Any = reductions.numel,
    dtype: Any = "f8",
    computing_meta: bool = False,
    implicit_complex_dtype: bool = False,
    **kwargs: Any,
) -> Any:
    """Return what dask's function of this name does, and the mean that it leaves out."""
    exact = order == 2 and not computing_meta and not implicit_complex_dtype
    if not exact or not _is_plain(A, sum, dtype, kwargs):
        return reductions.moment_chunk(A, order, sum, numel, dtype, computing_meta,
                                       implicit_complex_dtype, **kwargs)  # fmt: skip
    n = numel(A, dtype=np.int64, **kwargs)
    total = None
    if type(A) is np.ndarray:
        with np.errstate(all="ignore"):  # What is infinite or NaN is summed up again below.
            total = sum(A, dtype=dtype, **kwargs)
    found = moments(A, kwargs["axis"], n, skip=sum is chunk.nansum, total=total, dtype=dtype)
    if _is_beyond(found, n):
        return reductions.moment_chunk(A, order, sum, numel, dtype, **kwargs)
    if total is None:
        total = sum(A, dtype=dtype, **kwargs)
    return {"total": total, "n": n, "M": found.squares[..., None],
            "mean": found.mean, "rest": found.rest}  # fmt: skip


def _is_beyond(found: Moments, count: Any) -> bool:
    """Return whether moments are infinite, or NaN where there are values: dask computes them then.

    The mean of no values is NaN, and not beyond: a column of nothing but NaN, as an ocean's data
    have on land, would have each chunk computed twice.

    What is recorded is not looked at, as its kernels find such errors. Nor is what a device has,
    which would wait for it: nothing warns there, and what is made of NaN is NaN.
    """
    if not isinstance(found.mean, np.ndarray | np.generic):
        return False
    finite = np.isfinite(found.mean)
    known = finite.all() or (finite | (np.isnan(found.mean) & (count == 0))).all()
    return not (known and np.isfinite(found.squares).all())


def _is_plain(a: Any, sum: Any, dtype: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a chunk and what is asked of it are what `moments` takes."""
    array = isinstance(a, LazyChunk) or type(a) is np.ndarray
    axes = kwargs.get("axis")
    return (
        array
        and a.dtype.char in _KINDS
        and a.size > 0
        and np.dtype(dtype).char in "fd"
        and sum in (chunk.sum, chunk.nansum)
        and kwargs.keys() == {"axis", "keepdims"}
        and kwargs["keepdims"] is True
        and type(axes) is tuple
        and len(axes) > 0
        and all(type(axis) is int and 0 <= axis < a.ndim for axis in axes)
    )


@own("quick")
def moment_combine(pairs: Any, order: int = 2, ddof: Any = 0, dtype: Any = "f8",
                   sum: Any = np.sum, axis: Any = None, computing_meta: bool = False,
                   **kwargs: Any) -> Any:  # fmt: skip
    """Return what dask's function of this name does, and the mean that it leaves out."""
    flat = None if computing_meta else _of_chunks(pairs, order, axis, dtype)
    device = _on_device(flat)
    if device is not None:
        total, n, mean, rest, squares = _fused(_together)(*device)
        return {"total": total, "n": n, "M": squares[..., None], "mean": mean, "rest": rest}
    host = _on_host(flat)
    if host is None:
        return reductions.moment_combine(pairs, order, ddof, dtype, sum, axis, computing_meta,
                                         **kwargs)  # fmt: skip
    n, found = host
    assert flat is not None
    total = np.add.reduce(np.stack([pair["total"] for pair in flat]))
    return {"total": total, "n": n, "M": found.squares[..., None],
            "mean": found.mean, "rest": found.rest}  # fmt: skip


@own("quick")
def moment_agg(pairs: Any, order: int = 2, ddof: Any = 0, dtype: Any = "f8", sum: Any = np.sum,
               axis: Any = None, computing_meta: bool = False, **kwargs: Any) -> Any:  # fmt: skip
    """Return what dask's function of this name does."""
    flat = None if computing_meta else _of_chunks(pairs, order, axis, dtype)
    device = _on_device(flat)
    if device is not None and kwargs.keys() <= {"keepdims"}:
        variance = _fused(_variance, np.dtype(dtype).name)(ddof, *device)
        return variance if kwargs.get("keepdims") else variance.squeeze(axis)
    # Of results of no values, dask warns.
    host = _on_host(flat, whole=True)
    if host is None:
        return reductions.moment_agg(pairs, order, ddof, dtype, sum, axis, computing_meta,
                                     **kwargs)  # fmt: skip
    n, found = host
    # Of one number along these axes, the sum is that number, in the shape that is asked for.
    squares = found.squares.sum(axis=axis, **kwargs)
    freedom = n.sum(axis=axis, **kwargs) - ddof
    freedom = np.where(freedom < 0, np.nan, freedom)[()]
    return reductions.divide(squares, freedom, dtype=dtype)


# Of one chunk -----------------------------------------------------------------------------


@own("recorded", shown="moment_agg")
def moment_agg_of_one(pairs: Any, order: int = 2, ddof: Any = 0, dtype: Any = "f8",
                      sum: Any = np.sum, axis: Any = None, computing_meta: bool = False,
                      **kwargs: Any) -> Any:  # fmt: skip
    """Do what `moment_agg` does, recorded with what has made the moments of the only chunk.

    Where that warns of results of too few values, so does this.
    """
    given = (pairs, order, ddof, dtype, sum, axis, computing_meta), kwargs
    pair = _only(pairs)
    recorder = recorder_among(tuple(pair.values()))
    if recorder is None:
        return moment_agg(*given[0], **given[1])
    flat = None if computing_meta else _of_chunks(pairs, order, axis, dtype)
    shaped = _shaped(pair, axis, kwargs, ("n", "mean", "M"))
    if flat is None or shaped is None or type(ddof) is not int or not 0 <= ddof <= 1:
        return _called(recorder, moment_agg, *given)
    n, mean, squares = shaped
    freedom = checked(n, ddof) - ddof
    divisor = np.where(freedom < 0, np.nan, freedom).astype(dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (squares + 0.0).astype(dtype) / divisor  # The sum of a negative zero is positive.
    # dask takes the mean of chunks, this one, off its own mean: infinity off infinity.
    return np.where(np.isfinite(mean), found, np.nan)


@own("recorded", shown="mean_agg")
def mean_agg_of_one(pairs: Any, dtype: Any = "f8", axis: Any = None, computing_meta: bool = False,
                    **kwargs: Any) -> Any:  # fmt: skip
    """Do what dask's ``mean_agg`` does, recorded with what has made the sum of the only chunk."""
    given = (pairs, dtype, axis, computing_meta), kwargs
    pair = _only(pairs)
    recorder = recorder_among(tuple(pair.values()))
    if recorder is None:
        return reductions.mean_agg(*given[0], **given[1])
    shaped = None if computing_meta else _shaped(pair, axis, kwargs, ("total", "n"))
    if shaped is None or any(each.dtype != dtype for each in shaped):
        return _called(recorder, reductions.mean_agg, *given)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(shaped[0] + 0.0, shaped[1])  # The sum of a negative zero is positive.


LAST_STEPS = (
    (reductions.moment_agg, moment_agg, moment_chunk, moment_agg_of_one),
    (reductions.mean_agg, reductions.mean_agg, reductions.mean_chunk, mean_agg_of_one),
)
"""What joins the results of chunks, which are dictionaries: dask's function, the one that programs
call instead, the one that makes the results, and what is called where the same program makes the
only one. It is recorded with that; dictionaries of arrays are no input of what is recorded. Rolling
deviations are 61 launches so, which move 67 MB, rather than 91 that move 89 MB."""


def _only(pairs: Any) -> dict[str, Any]:
    """Return the dictionary of the only chunk; an empty one if there are several."""
    while type(pairs) is list and len(pairs) == 1:
        pairs = pairs[0]
    return pairs if type(pairs) is dict else {}


def _shaped(pair: dict[str, Any], axes: Any, options: dict[str, Any],
            names: tuple[str, ...]) -> list[Any] | None:  # fmt: skip
    """Return values of real numbers in the shape of results; None of other ones.

    Along the axes there is one of each, so that their sums are the values.
    """
    keeps = options.get("keepdims", False)
    if type(axes) is not tuple or not axes or options.keys() - {"keepdims"}:
        return None
    values: list[Any] = [pair.get(name) for name in names]
    if not all(isinstance(v, LazyChunk) and v.dtype.char in "fdlq" for v in values):
        return None
    values = [v[..., 0] if k == "M" else v for k, v in zip(names, values, strict=True)]
    least = min(each.ndim for each in values)
    if least <= len(axes) * (not keeps) or not all(-least <= axis < least for axis in axes):
        return None
    if any(each.shape[axis] != 1 for each in values for axis in axes):
        return None
    return values if keeps else [np.squeeze(each, axes) for each in values]


def _called(recorder: Recorder, function: Any, args: tuple[Any, ...],
            kwargs: dict[str, Any]) -> Any:  # fmt: skip
    """Return what a function returns of what has been recorded, which is computed for it."""
    recorder.broke(function.__name__, GraphBreak.OPERAND("results of other dtypes, or of no axes"))
    return compute(recorder, function, args, kwargs)


def checked(counts: LazyChunk, ddof: int) -> Any:
    """Return counts; dask's warning comes with those that leave no degree of freedom.

    On a GPU nothing warns.
    """
    recorder = recorder_of(counts)
    if not recorder.device.can.host_memory or not heeded() & INVALID:
        return counts
    known = recorder.known(node_of(counts))
    if known is not None and (known > ddof).all():
        return counts
    return compute(recorder, _reported_if_few, (counts, ddof), {}, copies=True)


@own("quick")
def _reported_if_few(counts: np.ndarray, ddof: int) -> np.ndarray:
    """Return counts; note if there are too few values for a variance, of which NumPy warns.

    NumPy need not repeat the task's calls for that: rolling deviations of 1,500 days of 40 x 40
    places, of which three in ten have no values, took 0.27 s, and 1.02 s with all calls repeated
    (plain dask: 1.19 s; processor time).
    """
    if (counts <= ddof).any():
        note(QUOTIENT)
    return counts


@form_of(_reported_if_few)
def _unfilled_counts(counts: np.ndarray, ddof: int) -> np.ndarray:
    """Return what `_reported_if_few` returns, of counts that are not there yet."""
    del ddof
    return counts


def _of_chunks(pairs: Any, order: int, axes: Any, dtype: Any) -> list[Any] | None:
    """Return the dictionaries of chunks, one after the other; None of what dask alone has.

    That is all but variances of real numbers along some axes, in arrays that kernels take, of one
    shape that is 1 along the axes.
    """
    if np.dtype(dtype).char not in "fd" or order != 2 or type(axes) is not tuple or not axes:
        return None
    flat: list[Any] = []
    deepmap(flat.append, pairs if isinstance(pairs, list) else [pairs])
    if not all(map(_is_moments, flat)):
        return None
    shape = flat[0]["total"].shape
    alike = all(pair[name].shape == shape for pair in flat for name in ("total", "n"))
    return flat if alike and all(shape[axis] == 1 for axis in axes) else None


def _on_host(flat: list[Any] | None, whole: bool = False) -> tuple[Any, Moments] | None:
    """Return how many values chunks have, and their moments together.

    None of chunks that dask alone has, of moments that it warns of, and, if they have to be
    `whole`, of moments of no values.
    """
    if flat is None:
        return None
    counts = np.stack([pair["n"] for pair in flat])
    count = np.add.reduce(counts)
    if whole and not count.all():
        return None
    parts = Moments(*(
        np.stack([value_of(pair) for pair in flat]) for value_of in (_mean, _rest, _squares)
    ))  # fmt: skip
    found = joined(parts, counts)
    return None if _is_beyond(found, count) else (count, found)


TOGETHER = 8
"""Chunks whose moments one launch joins: so many arrays are its arguments, times five."""


def _on_device(flat: list[Any] | None) -> list[Any] | None:
    """Return totals, counts and moments of a few chunks on a device, one after the other.

    None of chunks on the host. Nothing waits for the device.
    """
    if flat is None:
        return None
    device = device_of(flat[0]["total"])
    if device is None or device.can.host_memory:
        return None
    if any(device_of(pair["total"]) is not device for pair in flat):
        return None
    parts = [[pair["total"], pair["n"], _mean(pair), _rest(pair), _squares(pair)]
             for pair in flat]  # fmt: skip
    while len(parts) > TOGETHER:
        groups = [parts[k : k + TOGETHER] for k in range(0, len(parts), TOGETHER)]
        parts = [list(_fused(_together)(*itertools.chain(*group))) for group in groups]
    return list(itertools.chain(*parts))


@lru_cache(maxsize=4)
def _fused(function: Callable[..., Any], *options: str) -> Callable[..., Any]:
    """Return a function whose calls on CuPy's arrays are one kernel, which CuPy makes."""
    import cupy

    @cupy.fuse(kernel_name=f"gpusched{function.__name__}")
    def called(*values: Any) -> Any:
        return function(*options, *values)

    fused: Callable[..., Any] = called
    return fused


def _together(*parts: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return total, count and moments of chunks together, given these five of each."""
    import cupy

    total, count, mean, rest, squares = parts[:5]
    for k in range(5, len(parts), 5):
        added, more, other, other_rest, other_squares = parts[k : k + 5]
        # The mean of no values is NaN.
        mean, rest = cupy.where(count == 0, other, mean), cupy.where(count == 0, other_rest, rest)
        apart = cupy.where(more == 0, 0.0, (other - mean) + (other_rest - rest))
        share = more / cupy.maximum(count + more, 1)
        change = rest + apart * share
        moved = mean + change
        squares = squares + other_squares + apart * apart * (count * share)
        mean, rest = moved, (mean - moved) + change
        total, count = total + added, count + more
    return total, count, mean, rest, squares


def _variance(dtype: str, ddof: Any, *parts: Any) -> Any:
    """Return the variance of what chunks hold together; NaN of less than `ddof` values."""
    import cupy

    _, n, _, _, squares = _together(*parts)
    freedom = n - ddof
    return (squares / cupy.where(freedom < 0, np.nan, freedom)).astype(dtype)


def _is_moments(pair: Any) -> bool:
    """Return whether a chunk's dictionary is one of real numbers, in arrays that kernels take."""
    values = [pair["total"], pair["n"], pair["M"]]
    return all(_is_array(v) and v.dtype.char in "fdlq" for v in values)


def _is_array(value: Any) -> bool:
    return isinstance(value, LazyChunk | np.generic) or device_of(value) is not None


def _mean(pair: Any) -> Any:
    if "mean" in pair:
        return pair["mean"]
    with np.errstate(all="ignore"):
        found = pair["total"] / pair["n"]
        if isinstance(found, np.generic):
            return np.asarray(found, np.float64)
        return found.astype(np.float64)  # CuPy's arrays stay its own.


def _squares(pair: Any) -> Any:
    return pair["M"][..., 0]


def _rest(pair: Any) -> Any:
    return pair["rest"] if "rest" in pair else np.zeros_like(_mean(pair))
