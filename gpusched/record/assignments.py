"""Assignments to elements of a lazy chunk, which shows another value from then on."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import SUPPORTED
from gpusched.plan.expression import UnfusibleError, UnrecordableError
from gpusched.record.chosen import as_mask, chosen
from gpusched.record.chunk import LazyChunk, operand, parts_within
from gpusched.record.compound import Box, Compound
from gpusched.record.handlers import is_integer, records_special
from gpusched.record.record import PYTHON_SCALARS, Recorder
from gpusched.record.views import is_basic


@records_special("__setitem__")
def _assign(recorder: Recorder, chunk: LazyChunk, index: Any, value: Any) -> None:
    """Record ``chunk[index] = value``, for a number or an array.

    For a number, a mask chooses elements, or all of what its axes lead to. Anything else chooses
    positions along each axis, by itself. An array is written to what slices and positions choose.
    """
    if type(value) is LazyChunk and _is_of(value, chunk, index):
        return  # As ``y[1:] += x`` ends: what changed the part has changed the whole.
    if not chunk.whole._fresh or not chunk.shape:
        recorder.stop(GraphBreak.CHANGES("assigns to elements of a chunk"))
    index = as_mask(recorder, chunk, index)
    if type(value) is LazyChunk and value._scalar and type(index) is not LazyChunk:
        check_number(value.dtype, chunk.dtype)
    view, real = chosen(value), chunk.dtype.kind != "c"
    mine = type(index) is LazyChunk and index.shape == chunk.shape and real
    if view is not None and mine and index._node is view.mask:
        number = _converted(recorder, chunk, view.guarded())
        chunk._node = recorder.apply("where", (view.mask, number, chunk._node), chunk.dtype)
    elif type(value) in (LazyChunk, np.ndarray) and (np.shape(value) or not mine):
        write_part(recorder, chunk, index, value)
    else:
        plain = type(value) in PYTHON_SCALARS or getattr(value, "dtype", None) in SUPPORTED
        mask = _chosen(recorder, chunk, index)
        if mask is None or not plain or not real:
            recorder.stop(GraphBreak.CHANGES("assigns to elements of a chunk"))
        number = _converted(recorder, chunk, value)
        chunk._node = recorder.apply("where", (mask._node, number, chunk._node), chunk.dtype)
    changed(recorder, chunk)


def check_number(given: np.dtype, dtype: np.dtype) -> None:
    """End the recording where NumPy may not have a number in the dtype that it is assigned to.

    It makes an integer of Python's of the number, and raises an error if the dtype has no such one.
    Kernels report that of floats that no int64 is, and of nothing else.
    """
    reported = given.kind == "f" and dtype == np.int64
    if dtype.kind in "iu" and not reported and not np.can_cast(given, dtype, "safe"):
        raise UnrecordableError(GraphBreak.DTYPE(f"assigns a number of {given} to {dtype}"))


def changed(recorder: Recorder, chunk: LazyChunk) -> None:
    """Have what a chunk shows by slices, and what else shows that, change as the chunk has."""
    chunk.follow()
    if chunk._place is not None:
        whole, index = chunk._place
        write_part(recorder, whole, index, chunk)
        changed(recorder, whole)


def _is_of(value: LazyChunk, chunk: LazyChunk, index: Any) -> bool:
    """Return whether a chunk shows a part of another one, which an index chooses."""
    of, place = value._place or (None, None)
    return of is chunk and is_basic(index) and index == place


def _converted(recorder: Recorder, chunk: LazyChunk, value: Any) -> Any:
    """Return a value in the chunk's dtype as NumPy converts it, with the errors that it reports."""
    try:
        return recorder.cast(operand(recorder, value), chunk.dtype)
    except UnfusibleError as reason:
        recorder.stop(reason.reason.told(f"assigns to elements of a chunk ({reason})"))


def write_part(recorder: Recorder, chunk: LazyChunk, index: Any, value: Any) -> None:
    """Record ``chunk[index] = array``: a part of what the chunk shows from now on."""
    recorder.go_through(1)
    found = _region(index, chunk.shape)
    if found is None:
        recorder.stop(GraphBreak.CHANGES("assigns an array to what no slices choose"))
    region, single = found
    lengths = [each.stop - each.start for each in region]
    shape = [n for axis, n in enumerate(lengths) if axis not in single]
    part: Any = LazyChunk(recorder, _converted(recorder, chunk, value))
    while part.ndim > len(shape) > 0 and part.shape[0] == 1:
        part = part[0]  # As NumPy does without them.
    if part.ndim > len(shape):
        recorder.stop(GraphBreak.CHANGES("assigns an array of more axes than there are"))
    if part.shape != tuple(shape):
        part = np.broadcast_to(part if part.shape else part[None], shape)
    if single:
        part = part[tuple(None if k in single else slice(None) for k in range(chunk.ndim))]
    if 0 not in lengths:
        parts = parts_within(chunk, tuple([slice(0, n) for n in chunk.shape]))
        chunk._known = chunk._like
        chunk._view = Compound(recorder, [*parts, (region, part._node)], chunk._known)


def _region(index: Any, shape: tuple[int, ...]) -> tuple[Box, frozenset[int]] | None:
    """Return what an index chooses along each axis, and where that is a position; None if more.

    Slices with gaps, masks and lists choose elements that are not side by side.
    """
    items = index if type(index) is tuple else (index,)
    before = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    items = (*items[:before], *items[before + 1 :]) if before < len(items) else items
    if len(items) > len(shape) or not all(_is_place(item) for item in items):
        return None
    rest = (slice(None),) * (len(shape) - len(items))
    items = (*items[:before], *rest, *items[before:])
    region = []
    for item, length in zip(items, shape, strict=True):
        if type(item) is not slice:
            if not -length <= item < length:
                return None  # NumPy says so best, on the array itself.
            item = slice(int(item) % length, int(item) % length + 1)
        start, stop, step = item.indices(length)
        if step != 1:
            return None
        region.append(slice(start, max(start, stop)))
    single = frozenset(k for k, item in enumerate(items) if type(item) is not slice)
    return tuple(region), single


def _is_place(item: Any) -> bool:
    return type(item) is slice or is_integer(item)


def _chosen(recorder: Recorder, chunk: LazyChunk, index: Any) -> Any:
    """Return a mask of what an index chooses; None if that is no mask, and not one per axis."""
    shape, ndim = chunk.shape, chunk.ndim
    if isinstance(index, LazyChunk):
        fits = index.dtype == bool and index.shape and index.shape == shape[: index.ndim]
        return index[(..., *(None,) * (ndim - index.ndim))] if fits else None
    recorder.go_through(1)
    items = index if type(index) is tuple else (index,)
    before = next((k for k, item in enumerate(items) if item is Ellipsis), None)
    if before is not None:
        rest = (slice(None),) * (ndim - len(items) + 1)
        items = (*items[:before], *rest, *items[before + 1 :])
    lists = [list(item) for item in items if type(item) in (list, tuple)]
    single = [[item] for item in items if type(item) not in (list, tuple, slice)]
    # Two lists choose pairs of positions. A bool is a mask, and no number.
    if len(lists) > 1 or len(items) > ndim or not all(map(_is_of_integers, lists + single)):
        return None
    chosen = []
    for axis, item in enumerate(items or (slice(None),)):
        along = np.zeros(shape[axis], bool)
        along[list(item) if type(item) is tuple else item] = True
        places = recorder.constant(along.reshape([-1 if k == axis else 1 for k in range(ndim)]))
        chosen.append(LazyChunk(recorder, places))
    return reduce(and_, chosen)


def _is_of_integers(items: list[Any]) -> bool:
    return bool(items) and all(map(is_integer, items))
