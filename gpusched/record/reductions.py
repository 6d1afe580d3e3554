"""Reductions: what NumPy joins along axes, also without NaN, and what is computed of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial, reduce
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import HALF, part
from gpusched.emit.floatingpoint import REPORTED, note
from gpusched.emit.kernel import FIRSTS
from gpusched.plan.expression import Apply, Node, UnfusibleError, postorder
from gpusched.record.accumulation import firsts, reduction
from gpusched.record.catalogue import own
from gpusched.record.chunk import (
    LazyChunk,
    compute,
    node_of,
    node_operand,
    recorder_of,
    viewed,
)
from gpusched.record.compound import Compound
from gpusched.record.functions import complex_parts
from gpusched.record.handlers import UFUNC_METHODS, is_integer, records
from gpusched.record.moments import moments
from gpusched.record.record import PYTHON_SCALARS, Recorder
from gpusched.record.ufuncs import complex_chunk
from gpusched.record.windows import shows_again, window_total


def _axes(node: Node | LazyChunk, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(node.ndim))
    given = axis if type(axis) is tuple else (axis,)
    if not all(map(is_integer, given)):
        raise UnfusibleError(GraphBreak.OPTION, f"axis {axis!r}")
    return tuple(sorted(normalize_axis_tuple(given, node.ndim)))


def _keeps(keepdims: Any) -> bool:
    if type(keepdims) not in (bool, int):
        raise UnfusibleError(GraphBreak.OPTION, f"keepdims {keepdims!r}")
    return bool(keepdims)


def total_dtype(dtype: np.dtype, wanted: Any) -> np.dtype:
    """Return the dtype in which NumPy adds up: at least 64 bits for integers."""
    if wanted is not None:
        return np.dtype(wanted)
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def joined_dtype(combine: str, dtype: np.dtype, wanted: Any = None) -> np.dtype:
    """Return the dtype in which NumPy joins values of another one.

    Raises
    ------
    UnfusibleError
        If another one is wanted where values are neither added nor multiplied, and of dtypes that
        NumPy does not join so.
    """
    if combine.startswith("bitwise") and dtype.kind not in "biu":
        raise UnfusibleError(GraphBreak.DTYPE, f"{combine} of {dtype}")
    if combine in ("add", "multiply"):
        return total_dtype(dtype, wanted)
    found = np.dtype(bool) if combine in ("logical_or", "logical_and") else dtype
    if wanted is not None and np.dtype(wanted) != found:
        raise UnfusibleError(GraphBreak.OPTION, "option dtype")
    return found


NOTHING = object()
"""Stands for no value that a reduction starts from."""


def _only(a: Any, where: Any, neutral: Any) -> Any:
    """Return an array with a neutral number wherever a mask of reductions chooses nothing."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(where))
    if shape != np.shape(a) or np.result_type(where).kind != "b":
        raise UnfusibleError(GraphBreak.OPTION, "where= of another shape or dtype")
    return np.where(where, a, _start(neutral, a.dtype))


def _start(initial: Any, dtype: np.dtype) -> Any:
    """Return the number that a reduction starts from, in the dtype of its result."""
    known = type(initial) in PYTHON_SCALARS or isinstance(initial, np.generic)
    # Sums of negative zeros are zero where they start from another one.
    negative = known and initial == 0 and math.copysign(1, np.real(initial)) < 0
    if not known or negative or np.result_type(initial, dtype) != dtype:
        raise UnfusibleError(GraphBreak.OPTION, f"initial={initial!r}")
    try:
        return dtype.type(initial)
    except OverflowError as error:
        raise UnfusibleError(GraphBreak.OPTION, f"initial={initial!r}") from error


def reduced(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
            keepdims: Any = False, initial: Any = NOTHING, where: Any = True,
            combine: str = "add") -> LazyChunk:  # fmt: skip
    """Record the values of an array joined along axes."""
    if where is not True:
        known = getattr(np, combine).identity
        neutral = initial if known is None else known
        if type(a) is not LazyChunk or neutral is NOTHING:
            raise UnfusibleError(GraphBreak.OPTION, "where= without initial=, or of no chunk")
        a = _only(a, where, neutral)
    if initial is not NOTHING:
        rest = reduced(recorder, a, axis, dtype, keepdims=keepdims, combine=combine)
        joined = getattr(np, combine)(rest, _start(initial, rest.dtype))
        assert isinstance(joined, LazyChunk)
        return joined
    if isinstance(a, LazyChunk) and a.shape and _are_few(a, axes := _axes(a, axis)):
        return _joined_at_once(a, axes, _keeps(keepdims), dtype, combine)
    given = node_operand(recorder, a)
    wanted = joined_dtype(combine, given.dtype, dtype)
    node = recorder.cast(given, wanted)
    if not node.shape and is_integer(axis) and axis in (0, -1):
        axis = None  # as NumPy has it
    keep, axes = _keeps(keepdims), _axes(node, axis)
    if (keep and not node.shape) or (node.shape and not axes):
        raise UnfusibleError(GraphBreak.OPTION, "a reduction without an axis")
    if node.dtype.kind == "c" and combine != "add" and axes:
        whole = _of_complex(LazyChunk(recorder, node), combine, axes)
        found = node_of(_without_axes(whole, axes, keep))
    elif _is_alone(recorder, node, axes):
        alone = _from_zero(LazyChunk(recorder, node), combine)
        found = node_of(_without_axes(alone, axes, keep))
    else:
        if combine == "add":
            node = recorder.cast(given, window_total(recorder, given, wanted, _count(node, axes)))
        found = recorder.cast(reduction(recorder, combine, node, axes, keep), wanted)
    return LazyChunk(recorder, found, scalar=not found.shape, fresh=bool(found.shape))


FEW = 8
"""Values of a result that are joined by calls, as operands are, rather than in a loop of their own.
Means of blocks of 2 x 2 of 32 MB take 5.9 ms so, not 46, sums of the three bands of an image of 27
MB 7.5, not 17, and `any` of four bands of bytes 9, not 24 (AMD EPYC, one thread)."""
RESULTS = 1 << 10
"""Results from which on they are: of fewer, any loop is done at once."""
OPERATIONS = 32
"""Operations that are recorded again for all of these values at most."""


def _are_few(a: LazyChunk, axes: tuple[int, ...]) -> bool:
    """Return whether each of many results is joined of but few values.

    Overlapping windows share what they join (`gpusched.record.windows`).
    """
    count = math.prod(a.shape[k] for k in axes)
    few = 1 < count <= FEW and a.size // count >= RESULTS
    if not few or a.dtype.kind not in "biuf" or a.dtype == HALF:
        return False
    nodes = () if type(a._view) is Compound else postorder([node_of(a)])
    return not any(shows_again(recorder_of(a), node) for node in nodes)


def _joined_at_once(a: LazyChunk, axes: tuple[int, ...], keep: bool, dtype: Any,
                    combine: str) -> LazyChunk:  # fmt: skip
    """Return values joined along axes by a call for each but the first, in NumPy's order."""
    wanted, recorder = joined_dtype(combine, a.dtype, dtype), recorder_of(a)
    places = list(itertools.product(*(range(a.shape[k]) for k in axes)))
    compound = type(a._view) is Compound
    if not compound:
        inner = postorder([node_of(a)], lambda node: id(node) in recorder.done)
        if len(places) * sum(isinstance(node, Apply) for node in inner) > OPERATIONS:
            recorder.register(node_of(a))
    index: list[Any] = [slice(None)] * a.ndim
    parts = []
    for place in places:
        for axis, k in zip(axes, place, strict=True):
            # A part of what is in parts itself is one of these, with all its axes.
            index[axis] = slice(k, k + 1) if keep or compound else k
        parts.append(viewed(a, itemgetter(tuple(index))).astype(wanted))
    found = reduce(getattr(np, combine), [_from_zero(parts[0], combine), *parts[1:]])
    return _without_axes(found, axes, keep) if compound and not keep else found


def _from_zero(a: LazyChunk, combine: str) -> Any:
    """Return the first of some values that are joined: NumPy's sums of negative zeros are zero."""
    return a + 0.0 if combine == "add" and a.dtype.kind == "f" else a


def _without_axes(a: LazyChunk, axes: tuple[int, ...], keep: bool) -> Any:
    """Return an array without axes of one element, or with them if they are to be kept."""
    return a[tuple([0 if k in axes and not keep else slice(None) for k in range(a.ndim)])]


def _of_complex(a: LazyChunk, combine: str, axes: tuple[int, ...]) -> Any:
    """Return products or extremes of complex numbers, with axes of length 1."""
    if 0 in a.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
    if combine == "multiply":
        for axis in axes:
            a = _product(a, axis)
        # NumPy's product starts from this number, which changes infinite ones and signs of zeros.
        return _checked(a * (1 + 0j), _report_if_infinite)
    if combine not in ("maximum", "minimum", "fmax", "fmin"):
        raise UnfusibleError(GraphBreak.DTYPE, f"{combine} of complex numbers")
    return _extreme_of_complex(a, combine, axes)


def _product(a: LazyChunk, axis: int) -> LazyChunk:
    """Return products along an axis: of its halves, and of those of the results, until one is left.

    Both parts of a product take both parts of its factors, so that no kernel joins parts alone.
    """
    before, rest = (slice(None),) * axis, []
    while (length := a.shape[axis]) > 1:
        if length % 2:
            rest.append(a[*before, -1:])
        half = length // 2
        a = a[*before, :half] * a[*before, half : 2 * half]
        recorder_of(a).register(node_of(a))  # What is computed of a view is computed for each.
    for each in rest:
        a = a * each
    return a


def _extreme_of_complex(a: LazyChunk, combine: str, axes: tuple[int, ...]) -> LazyChunk:
    """Return the largest or least complex numbers: by real parts, and of these by imaginary ones.

    Of several zeros, it has any one's signs. Where NumPy takes one of several NaN, the first of
    them, it repeats the calls.
    """
    first, second = complex_parts(a)
    end = -math.inf if combine in ("maximum", "fmax") else math.inf
    join = partial(reduced, a._recorder, axis=axes, keepdims=True)
    order, unknown = "maximum" if end < 0 else "minimum", np.isnan(a)
    skips = combine in ("fmax", "fmin")
    lost = join(unknown, combine="logical_and" if skips else "logical_or")
    real = join(np.where(unknown, end, first), combine=order)
    imaginary = join(np.where(~unknown & (first == real), second, end), combine=order)
    nothing = math.nan
    pair = np.where(lost, nothing, real), np.where(lost, nothing, imaginary)
    return report_if_nan(complex_chunk(a._recorder, pair))


def _is_alone(recorder: Recorder, node: Node, axes: tuple[int, ...]) -> bool:
    """Return whether each result is one value that is computed, to which nothing is joined.

    So it is where dask joins the results of chunks of which there is one: rolling means of 30 MB
    read and write 234 MB so, and 293 with one more kernel.
    """
    computed = recorder.is_to_be_computed(node)
    return computed and node.dtype.kind in "biuf" and all(node.shape[k] == 1 for k in axes)


def _count(node: Node, axis: Any) -> int:
    return math.prod(node.shape[k] for k in _axes(node, axis))


@records(np.mean, method="mean")
def _mean(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
          keepdims: Any = False, where: Any = True) -> Any:  # fmt: skip
    node = node_operand(recorder, a)
    halves = dtype is None and node.dtype == HALF
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    # NumPy adds float16 up in float32, and rounds the quotient.
    within = np.float32 if halves else dtype
    total = reduced(recorder, a, axis, within, keepdims=keepdims, where=where)
    if total.dtype.kind not in "fc":
        raise UnfusibleError(GraphBreak.DTYPE, f"mean in dtype {total.dtype}")
    count: Any = _count(node, axis)
    if where is not True:
        ones = np.broadcast_to(where, node.shape)
        count = reduced(recorder, ones, axis, keepdims=keepdims)
    found = np.true_divide(total, count).astype(total.dtype)
    return found.astype(HALF) if halves else found


@records(np.var, method="var")
def _var(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0,
         keepdims: Any = False) -> Any:  # fmt: skip
    node = node_operand(recorder, a)
    if dtype is None and node.dtype.kind in "biu":
        dtype = np.float64
    # NumPy takes deviations of complex numbers from a mean of what such a dtype keeps of them.
    if dtype is not None and (np.dtype(dtype).kind != "f" or node.dtype.kind == "c"):
        raise UnfusibleError(GraphBreak.DTYPE, f"variance of {node.dtype} in dtype {dtype}")
    if dtype is None and node.dtype.kind == "c":
        dtype = part(node.dtype)
    kept = np.dtype(dtype or node.dtype)
    count = _count(node, axis)
    divisor = count - ddof
    if divisor <= 0:
        raise UnfusibleError(GraphBreak.EMPTY, "no degrees of freedom left")
    axes = _axes(node, axis)
    if not axes or 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "variance of nothing")
    keep = _keeps(keepdims)
    if kept == HALF:
        # As NumPy computes it: each step is rounded, but the quotients are of float64.
        values = a.astype(HALF)
        mean = (np.sum(values, axis=axes, keepdims=True) / np.int64(count)).astype(HALF)
        found = np.sum(np.square(values - mean), axis=axes, keepdims=keep)
        return (found / np.int64(divisor)).astype(HALF)
    if node.dtype.kind == "c":
        both = (moments(each, axes, count, keep, dtype=kept) for each in complex_parts(a))
        first, second = (each.squares for each in both)
        squares = first + second
    else:
        squares = moments(a, axes, count, keep, dtype=kept).squares
    found = recorder.cast((squares / divisor)._node, kept)
    return LazyChunk(recorder, found, scalar=not found.shape)


@records(np.std, method="std")
def _std(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0,
         keepdims: Any = False) -> Any:  # fmt: skip
    return np.sqrt(_var(recorder, a, axis, dtype, ddof=ddof, keepdims=keepdims))


@records(np.count_nonzero)
def _count_nonzero(recorder: Recorder, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if axis is None:
        raise UnfusibleError(GraphBreak.OPTION, "count_nonzero gives a Python integer")
    return reduced(recorder, a != 0, axis, keepdims=keepdims)


# Without NaN ------------- ---------------------------------------------------------------


def without_nan(recorder: Recorder, a: Any, instead: float) -> Any:
    """Return a lazy chunk with a number instead of NaN."""
    return np.where(np.isnan(a), instead, a) if a.dtype.kind in "fc" else a


def _nansum(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
            keepdims: Any = False) -> Any:  # fmt: skip
    if not isinstance(a, LazyChunk):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(a).__name__}")
    replaced = without_nan(recorder, a, 1.0 if combine == "multiply" else 0.0)
    return reduced(recorder, replaced, axis, dtype, keepdims=keepdims, combine=combine)


@own("portable")
def _report_if_all_nan(array: np.ndarray) -> np.ndarray:
    """Return an array; where it has NaN, NumPy repeats the calls and warns of slices of NaN."""
    if np.isnan(array).any():
        note(REPORTED)
    return array


@own("portable")
def _report_if_infinite(array: np.ndarray) -> np.ndarray:
    """Return products; where one is not finite, NumPy repeats the calls, whose order decides it."""
    if not np.isfinite(array).all():
        note(REPORTED)
    return array


def report_if_nan(found: LazyChunk) -> LazyChunk:
    """Record that NumPy repeats the calls where there is NaN, since it may warn of it."""
    return _checked(found, _report_if_all_nan)


def _checked(found: LazyChunk, check: Callable[[np.ndarray], np.ndarray]) -> LazyChunk:
    recorder = found._recorder
    checked = recorder.made_leaf(recorder.register(found._node), check)
    return LazyChunk(recorder, checked, scalar=not checked.shape)


@records(np.nanmean)
def _nanmean(recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
             keepdims: Any = False) -> Any:  # fmt: skip
    """Record NumPy's mean without NaN: the sum by the count, in the dtype of the sum."""
    node = node_operand(recorder, a)
    if node.dtype.kind not in "fc":
        return _mean(recorder, a, axis, dtype, keepdims=keepdims)
    if dtype is not None:
        raise UnfusibleError(GraphBreak.OPTION, "a mean without NaN in another dtype")
    total = _nansum("add", recorder, a, axis, keepdims=keepdims)
    count = reduced(recorder, ~np.isnan(a), axis, keepdims=keepdims)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.true_divide(total, count).astype(total.dtype)
    return report_if_nan(found)


def _nanextreme(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
                keepdims: Any = False) -> Any:  # fmt: skip
    found = reduced(recorder, a, axis, keepdims=keepdims, combine=combine)
    # Complex ones are looked at already.
    return report_if_nan(found) if found.dtype.kind == "f" else found


def _total(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, *,
           keepdims: Any = False, initial: Any = NOTHING, where: Any = True) -> Any:  # fmt: skip
    return reduced(recorder, a, axis, dtype, keepdims=keepdims, initial=initial, where=where,
                   combine=combine)  # fmt: skip


def _extreme(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
             keepdims: Any = False, initial: Any = NOTHING, where: Any = True) -> Any:  # fmt: skip
    return reduced(recorder, a, axis, keepdims=keepdims, initial=initial, where=where,
                   combine=combine)  # fmt: skip


# Where the largest and the least are -----------------------------------------------------


def first(recorder: Recorder, combine: str, a: Any, axis: Any = None,
          keepdims: Any = False) -> tuple[LazyChunk, LazyChunk]:  # fmt: skip
    """Record the first of the largest or least values along an axis, or of all, and its place.

    Parameters
    ----------
    combine
        Name in `gpusched.emit.kernel.FIRSTS`.
    a, axis, keepdims
        As `numpy.argmax` has them.
    """
    node = node_operand(recorder, a)
    if type(axis) is tuple or not node.shape:
        raise UnfusibleError(GraphBreak.OPTION, f"a search along axis {axis!r}")
    axes = _axes(node, axis)
    found = firsts(recorder, combine, recorder.cast(node, node.dtype), axes, _keeps(keepdims))
    value, place = (LazyChunk(recorder, n, scalar=not n.shape, fresh=bool(n.shape)) for n in found)
    return value, place


def _place(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
           keepdims: Any = False) -> Any:  # fmt: skip
    return first(recorder, combine, a, axis, keepdims)[1]


@own("portable")
def report_if_any(place: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Return places; where there is nothing but NaN, NumPy repeats the calls: it is an error."""
    if empty.any():
        note(REPORTED)
    return place


def _nanplace(combine: str, /, recorder: Recorder, a: Any, axis: Any = None, *,
              keepdims: Any = False) -> Any:  # fmt: skip
    node = node_operand(recorder, a)
    if node.dtype.kind != "f":
        return _place(combine, recorder, a, axis, keepdims=keepdims)
    unknown = np.isnan(a)
    place = _place(combine, recorder, np.where(unknown, nothing_in(combine), a), axis,
                   keepdims=keepdims)  # fmt: skip
    lost = reduced(recorder, unknown, axis, keepdims=keepdims, combine="logical_and")
    return compute(recorder, report_if_any, (place, lost), {})


def nothing_in(combine: str) -> float:
    """Return what NaN is replaced by where the first largest or least number is looked for."""
    return -math.inf if FIRSTS[combine] == "maximum" else math.inf


for _name, _combine in {"argmax": "first_maximum", "argmin": "first_minimum"}.items():
    records(getattr(np, _name), method=_name)(partial(_place, _combine))
    records(getattr(np, f"nan{_name}"))(partial(_nanplace, _combine))
for _name, _combine in {"sum": "add", "prod": "multiply"}.items():
    records(getattr(np, _name), method=_name)(partial(_total, _combine))
for _name, _combine in {"min": "minimum", "max": "maximum", "any": "logical_or",
                        "all": "logical_and"}.items():  # fmt: skip
    records(getattr(np, _name), method=_name)(partial(_extreme, _combine))
records(np.amin)(partial(_extreme, "minimum"))
records(np.amax)(partial(_extreme, "maximum"))
records(np.nansum)(partial(_nansum, "add"))
records(np.nanprod)(partial(_nansum, "multiply"))
records(np.nanmin)(partial(_nanextreme, "fmin"))
records(np.nanmax)(partial(_nanextreme, "fmax"))


def _reduce(self: LazyChunk, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None, *,
            keepdims: Any = False, initial: Any = NOTHING, where: Any = True) -> Any:  # fmt: skip
    """Record ``ufunc.reduce``."""
    return reduced(self._recorder, self, axis, dtype, keepdims=keepdims, initial=initial,
                   where=where, combine=ufunc.__name__)  # fmt: skip


UFUNC_METHODS["reduce"] = _reduce
