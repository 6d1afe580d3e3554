"""Elements that a mask chooses: ``y[mask]``, ``np.where(mask)``.

How many there are, as of ``y[mask] -= 1`` and ``y[mask] = np.log(y[mask])``, depends on values, so
that NumPy makes an array of them. But where a function only computes with them element by element,
and writes them back to where the same mask chooses, the same is computed of whole arrays: at each
place that the mask chooses of the element there, and at any other of a one, whose result nobody
sees. It has NumPy's bits, since kernels compute elements one by one; and what such a one reports,
as ``1 / 0`` does, has NumPy repeat the calls, which then reports what it finds itself
(`gpusched.graph.running.segment`). Functions with such lines take 5 to 8 times the processor time
without kernels (2M float64).

The places of all that a mask chooses, as an index, choose what the mask does.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import SUPPORTED
from gpusched.plan.expression import Node, UnfusibleError
from gpusched.record.chunk import LazyChunk, compute, operand
from gpusched.record.handlers import records
from gpusched.record.record import PYTHON_SCALARS, Recorder


@dataclass
class Chosen:
    """What a chunk shows that is to have the elements of an array that a mask chooses.

    Once something else reads it, NumPy chooses them.
    """

    recorder: Recorder
    array: Node
    """Of the mask's shape."""
    mask: Node

    def __call__(self) -> Node:
        """Return the elements, one after the other."""
        self.recorder.broke("getitem", GraphBreak.INDEX("elements that a mask chooses"))
        given = LazyChunk(self.recorder, self.array), LazyChunk(self.recorder, self.mask)
        return compute(self.recorder, getitem, given, {})._node

    @property
    def dtype(self) -> np.dtype:
        """Of the elements."""
        return self.array.dtype

    def guarded(self) -> LazyChunk:
        """Return the array with a one wherever the mask chooses nothing."""
        found: Any = np.where(
            LazyChunk(self.recorder, self.mask),
            LazyChunk(self.recorder, self.array),
            self.array.dtype.type(1),
        )
        assert isinstance(found, LazyChunk)
        return found


def chosen(value: Any) -> Chosen | None:
    """Return what a lazy chunk is to have that has elements which a mask chooses."""
    view = _view(value)
    return view if type(view) is Chosen else None


def _view(value: Any) -> Any:
    return value._view if type(value) is LazyChunk else None


def choose(recorder: Recorder, array: LazyChunk, items: tuple[Any, ...]) -> LazyChunk | None:
    """Return the elements that a mask of an array's shape chooses; None if the index is another.

    They are a copy, as NumPy makes one: nobody else sees changes of them.
    """
    mask = as_mask(recorder, array, items[0] if len(items) == 1 else items)
    if not (recorder.closed and type(mask) is LazyChunk and array.dtype in SUPPORTED):
        return None
    if mask.dtype != bool or not array.shape or mask.shape != array.shape:
        return None
    if array.dtype.kind == "c":
        return None
    view = Chosen(recorder, array._node, mask._node)
    return LazyChunk(recorder, array._node, fresh=True, view=view)


def computed_with(recorder: Recorder, compute: Any, inputs: tuple[Any, ...]) -> Chosen | None:
    """Return what a function of elements makes of such chunks and of numbers.

    Parameters
    ----------
    recorder
        Of the recording.
    compute
        The function, of as many lazy chunks and numbers.
    inputs
        Its operands.

    Returns
    -------
    Chosen or None
        None if others are among them, or such as other masks choose.
    """
    views = [view for view in map(chosen, inputs) if view is not None]
    if not views or any(view.mask is not views[0].mask for view in views):
        return None
    if not all(chosen(each) or _is_number(each) for each in inputs):
        return None
    given = [view.guarded() if (view := chosen(each)) else each for each in inputs]
    found = compute(*given)
    if type(found) is not LazyChunk or found.shape != views[0].array.shape:
        return None
    return Chosen(recorder, found._node, views[0].mask)


def _is_number(value: Any) -> bool:
    if type(value) is LazyChunk:
        return value.shape == () and not value.waits
    return type(value) in PYTHON_SCALARS or isinstance(value, np.generic)


# Where they are ------------------------------------------------------------------------------


class Places:
    """Where a mask chooses elements: an array for each axis, once something reads one of them."""

    def __init__(self, recorder: Recorder, mask: Node) -> None:
        self._recorder = recorder
        self.mask = mask
        self._found: tuple[Any, ...] = ()

    def along(self, axis: int) -> Node:
        """Return the places along an axis, which NumPy finds for all axes at once."""
        if not self._found:
            self._recorder.broke("nonzero", GraphBreak.INDEX("places of what a mask chooses"))
            self._found = compute(
                self._recorder, np.nonzero, (LazyChunk(self._recorder, self.mask),), {}
            )
        found: Node = self._found[axis]._node
        return found


@dataclass
class Along:
    """What a chunk shows that is to have the places along one axis."""

    places: Places
    axis: int

    def __call__(self) -> Node:
        """Return the places."""
        return self.places.along(self.axis)

    @property
    def dtype(self) -> np.dtype:
        """Of the places."""
        return np.dtype(np.intp)


@records(np.nonzero, method="nonzero")
def where_true(recorder: Recorder, a: Any) -> Any:
    """Return where an array is not zero, in a function of the user's."""
    if not recorder.closed or not isinstance(a, LazyChunk) or not a.shape or a.dtype.kind == "c":
        raise UnfusibleError(GraphBreak.INDEX, "places of what a mask chooses")
    mask = recorder.cast(operand(recorder, a), np.dtype(bool))
    places = Places(recorder, mask)
    return tuple(
        LazyChunk(recorder, mask, fresh=True, view=Along(places, k)) for k in range(a.ndim)
    )


def as_mask(recorder: Recorder, array: LazyChunk, index: Any) -> Any:
    """Return the mask for an index that is where it chooses; others as they are."""
    items = index if type(index) is tuple else (index,)
    views = list(map(_view, items))
    if not views or type(views[0]) is not Along:
        return index
    places = views[0].places
    if any(view != Along(places, axis) for axis, view in enumerate(views)):
        return index
    shape = places.mask.shape
    same = len(shape) == len(items) and shape == array.shape[: len(shape)]
    return LazyChunk(recorder, places.mask) if same else index
