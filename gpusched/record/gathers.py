"""Elements that are chosen by integers along one axis, which kernels read in place.

``x - means[months]`` is one kernel, which makes no array of the means of all days. Integers are
checked as NumPy checks them before a kernel reads anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import DECLARABLE
from gpusched.plan.expression import Leaf, Node, UnfusibleError
from gpusched.record.catalogue import own
from gpusched.record.chosen import choose
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.handlers import axis_of, records, records_special
from gpusched.record.record import Recorder
from gpusched.record.views import gather

LABEL = np.dtype(np.int64)
"""Of the labels that kernels read."""

CHOICES = 16
"""The most arrays that `numpy.choose` takes elements of in a kernel, which reads all of them."""


@own("portable", shown="take")
def located(labels: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Return positions along an axis as kernels take them: none of them counts from the end.

    Raises
    ------
    IndexError
        As NumPy raises it, for the first one that is beyond the axis.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.gathers import located
    >>> located(np.array([0, 2, -1], "i1"), 12, 0)
    array([ 0,  2, 11])
    """
    found = checked(labels.astype(LABEL), length, axis)
    return np.where(found < 0, found + length, found)


INTEGERS = frozenset(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)) - {
    np.dtype("u8")
}
"""Dtypes whose numbers are all of `numpy.intp`."""


def gathered(array: LazyChunk, labels: Any, axis: int) -> LazyChunk:
    """Record the elements of an array at some positions along an axis.

    Parameters
    ----------
    array
        What elements are taken of.
    labels
        Integers: a lazy chunk, or an array that does not depend on the chunk's values.
    axis
        Which axis, not negative.

    Raises
    ------
    UnfusibleError
        Where no kernel can do it; the message is the reason.
    """
    recorder, node = array._recorder, array._node
    if 0 in node.shape:  # NumPy does not look at the integers where it takes nothing.
        raise UnfusibleError(GraphBreak.EMPTY, "elements of an empty array")
    marks = operand(recorder, labels)
    if isinstance(marks, Node) and marks.ndim > 1 and node.ndim == 1:
        return looked_up(recorder, node, marks)
    if not isinstance(marks, Node) or marks.dtype.kind not in "iu" or marks.ndim != 1:
        raise UnfusibleError(GraphBreak.INDEX, "an index that is not one row of integers")
    places = recorder.derived(marks, located, node.shape[axis], axis)
    return LazyChunk(recorder, gather(recorder, node, places, axis), fresh=True)


TABLE = 1 << 16
"""Elements of the longest table that kernels look up: as many as integers of 16 bits can name."""


@own("portable")
def checked(places: np.ndarray, length: int, axis: int = 0) -> np.ndarray:
    """Return places along an axis as they are, if all of them are on it.

    Raises
    ------
    IndexError
        As NumPy raises it, for the first one that is not.
    """
    if places.size and (int(places.max()) >= length or int(places.min()) < -length):
        beyond = (places >= length) | (places < -length)
        told = f"index {int(places[beyond][0])} is out of bounds for axis {axis} with size {length}"
        raise IndexError(told)
    return places


@own("portable")
def contiguous(table: np.ndarray) -> np.ndarray:
    """Return the elements of a table next to each other."""
    return table.copy()


def looked_up(recorder: Recorder, table: Node, places: Node) -> LazyChunk:
    """Record the elements of a table of one axis at places that have several axes.

    Kernels read the places as they are, which no array of labels is made of.
    """
    (length,) = table.shape
    if length > TABLE or table.dtype not in DECLARABLE or places.dtype not in INTEGERS:
        raise UnfusibleError(GraphBreak.INDEX, f"an index of {places.ndim} axes of such an array")
    limits = np.iinfo(places.dtype)
    if limits.min < 0 or limits.max >= length:
        places = recorder.derived(places, checked, length)
    found: Any = LazyChunk(recorder, recorder.cast(places, LABEL))
    if limits.min < 0:
        found = np.where(found < 0, found + length, found)
    whole = recorder.table(recorder.derived(table, contiguous))
    size = recorder.cast(length, LABEL)
    return LazyChunk(recorder, recorder.apply("element", (whole, found._node, size), table.dtype),
                     fresh=True)  # fmt: skip


def at(array: LazyChunk, labels: Leaf, axis: int) -> LazyChunk:
    """Record elements at labels that are as kernels take them, and known to be in bounds."""
    recorder = array._recorder
    return LazyChunk(recorder, gather(recorder, array._node, labels, axis), fresh=True)


@records_special("__getitem__")
def _getitem(recorder: Recorder, array: LazyChunk, items: tuple[Any, ...]) -> Any:
    """Record an index of slices and one row of integers."""
    found = choose(recorder, array, items)
    if found is not None:
        return found
    rows = [k for k, item in enumerate(items) if isinstance(item, LazyChunk | np.ndarray)]
    others = [item for item in items if not isinstance(item, LazyChunk | np.ndarray)]
    ranges = all(isinstance(i, slice | type(Ellipsis)) for i in others)
    if len(rows) != 1 or not ranges or others.count(Ellipsis) > 1:
        raise UnfusibleError(
            GraphBreak.INDEX,
            "an index that is not of slices, integers, None or one row of integers",
        )
    if Ellipsis in others:
        rest = (slice(None),) * (array.ndim - len(items) + 1)
        items = tuple(e for i in items for e in (rest if i is Ellipsis else (i,)))
        return _getitem(recorder, array, items)
    (axis,) = rows
    if len(items) > array.ndim:
        raise UnfusibleError(GraphBreak.INDEX, "too many indices")
    slices = tuple(slice(None) if k == axis else item for k, item in enumerate(items))
    whole = all(item == slice(None) for item in slices)
    return gathered(array if whole else array[slices], items[axis], axis)


@records(np.take, method="take")
def _take(recorder: Recorder, a: Any, indices: Any, axis: Any = None) -> Any:
    node = operand(recorder, a)
    if not isinstance(node, Node) or not node.ndim or (axis is None and node.ndim != 1):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "elements of an array made flat")
    place = axis_of(0 if axis is None else axis, node.ndim)
    return gathered(LazyChunk(recorder, node), indices, place)


@records(np.ravel_multi_index)
def _ravel_multi_index(recorder: Recorder, multi_index: Any, dims: Any, mode: Any = "raise") -> Any:
    """Record places in an array made flat, of places along its axes that are in it, or are made so.

    As NumPy's loop has it: ``wrap`` is the remainder, which has no sign, and ``clip`` the nearest.
    """
    if mode not in ("wrap", "clip") or type(multi_index) is not tuple or type(dims) is not tuple:
        raise UnfusibleError(GraphBreak.OPTION, "places that may be beyond the array")
    plain = all(type(n) is int and n > 0 for n in dims) and len(dims) == len(multi_index) > 0
    if not plain or math.prod(dims) > np.iinfo(np.intp).max:
        raise UnfusibleError(GraphBreak.OPERAND, "lengths of axes that NumPy refuses")
    for each in multi_index:
        if not isinstance(each, LazyChunk) or not each.shape or each.dtype not in INTEGERS:
            raise UnfusibleError(GraphBreak.OPERAND, "places that are not arrays of integers")
    found: Any = 0
    for each, length in zip(multi_index, dims, strict=True):
        found = found * length + _inside(each, length, mode)
    return found


def _inside(places: Any, length: int, mode: str) -> Any:
    """Return places that are made such of an axis: those of the nearest elements, or remainders."""
    found = places.astype(LABEL)
    return found % length if mode == "wrap" else np.clip(found, 0, length - 1)


@own("portable")
def within(index: np.ndarray, count: int) -> np.ndarray:
    """Return places among some arrays as kernels compare them.

    Raises
    ------
    ValueError
        As `numpy.choose` raises it, where one is beyond them.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.gathers import within
    >>> within(np.array([0, 2], "i1"), 3)
    array([0, 2])
    """
    found = index.astype(LABEL)
    if ((found < 0) | (found >= count)).any():
        raise ValueError("invalid entry in choice array")
    return found


@records(np.choose)
def _choose(recorder: Recorder, a: Any, choices: Any, *, mode: Any = "raise") -> Any:
    """Record elements of the array that each place says, by comparing it with every one."""
    count = len(choices) if type(choices) in (list, tuple) else 0
    if not 1 < count <= CHOICES or mode not in ("raise", "wrap", "clip"):
        raise UnfusibleError(GraphBreak.OPTION, "choices that are not a list of a few arrays")
    if not isinstance(a, LazyChunk) or not a.shape or a.dtype not in {np.dtype(bool), *INTEGERS}:
        raise UnfusibleError(GraphBreak.OPERAND, "places that are not an array of integers")
    if not all(type(each) in (LazyChunk, np.ndarray) for each in choices):
        raise UnfusibleError(GraphBreak.OPERAND, "a choice that is not an array")
    dtype = np.result_type(*(each.dtype for each in choices))
    if dtype.kind not in "biufc":
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {dtype}")
    index: Any = a
    if mode == "raise" and a.dtype != bool:
        index = LazyChunk(recorder, recorder.derived(a._node, within, count))
    elif a.dtype != bool:
        index = _inside(a, count, mode)
    found = choices[-1].astype(dtype)
    for place in range(count - 2, -1, -1):
        found = np.where(index == place, choices[place], found)
    return found
