"""Elements that a mask chooses: ``y[mask] -= 1`` and ``y[mask] = np.log(y[mask])``.

How many there are depends on values, so that NumPy makes an array of them. But where a function
only computes with them element by element, and writes them back to where the same mask chooses, the
same is computed of whole arrays: at each place that the mask chooses of the element there, and at
any other of a one, whose result nobody sees. It has NumPy's bits, since kernels compute elements
one by one; and what such a one reports, as ``1 / 0`` does, has NumPy repeat the calls, which then
reports what it finds itself (`gpusched.graph.running.segment`). Functions with such lines take 5 to
8 times the processor time without kernels (2M float64).
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import SUPPORTED
from gpusched.plan.expression import Node
from gpusched.record.chunk import LazyChunk, compute
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
    view = value._view if type(value) is LazyChunk else None
    return view if type(view) is Chosen else None


def choose(recorder: Recorder, array: LazyChunk, items: tuple[Any, ...]) -> LazyChunk | None:
    """Return the elements that a mask of an array's shape chooses; None if the index is another.

    They are a copy, as NumPy makes one: nobody else sees changes of them.
    """
    mask = items[0] if len(items) == 1 else None
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
