"""What comes of a recording: whether a single operation gains, errors nobody sees, and results.

Results are arrays of their own where the program makes such.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.kernel import MOMENTS
from gpusched.emit.operations import has
from gpusched.plan.expression import Apply, Node, Reduce, Scan, postorder
from gpusched.plan.plan import Register
from gpusched.record.chunk import LazyChunk, is_scalar, node_of, references, was_own
from gpusched.record.record import Recorder
from gpusched.record.views import own
from gpusched.record.windows import shows_again


def gains_alone(recorder: Recorder, least: int) -> bool:
    """Return whether what has been recorded is one operation that is faster as a kernel.

    NumPy takes memory from the system for every large result, which costs more than most
    operations do, and has no vectors for some functions. Its sums wait for memory more than kernels
    do, its products for each other; columns of any kind it joins row by row. Its scans take 4 ns
    for each element, of which kernels take 1. Its largest and least of contiguous elements are as
    good, and so are CuPy's reductions; but not of windows, each of which it reads by itself (the
    largest of 30 takes kernels a seventh to a half of its time). A float that no integer is equal
    to becomes what NumPy makes of it.

    Parameters
    ----------
    recorder
        What has recorded it.
    least
        Bytes of its result, or of what it sums up, from which on it may; 0 for never.
    """
    if not recorder.device.can.cheap or recorder.operations != 1 or not least:
        return False
    recorded = recorder.recorded()
    if not recorded:
        return False  # A kernel of the user's own, which runs as well by itself.
    # A reduction that comes again without the axes it has reduced is one operation.
    node = recorded[-1]
    if isinstance(node, Reduce):
        gains = _reduces_faster(node) or shows_again(recorder, node.argument)
    else:
        gains = _is_faster(node)
    computed = node.argument if isinstance(node, Reduce) else node
    large = math.prod(computed.shape) * computed.dtype.itemsize >= least
    return large and gains


def _reduces_faster(node: Reduce) -> bool:
    if isinstance(node, Scan):
        return True
    return node.combine in ("add", "multiply", MOMENTS) or node.argument.ndim - 1 not in node.axes


def _is_faster(node: Apply) -> bool:
    to_integers = node.dtype.kind in "iu" and node.arguments[0].dtype.kind == "f"
    return not has(node.operation, "alone") and not to_integers


def unseen(recorder: Recorder, wanted: list[Node], calls: Container[int]) -> list[Node]:
    """Return what has been recorded, and nothing needs, of which NumPy may report errors.

    Parameters
    ----------
    recorder
        What has recorded it.
    wanted
        The results of the program.
    calls
        Which calls of the program to look at, by the registers of their results.

    Notes
    -----
    Those that others among them need are left out, and so are further results of operations
    that have a needed one: either shows the errors.
    """
    made_by = recorder.made_by
    found = [n for n in recorder.recorded() if n.reports and made_by.get(id(n)) in calls]
    if not found:
        return []
    computed = [node for node in recorder.nodes() if id(node) in recorder.done]
    needed = list(postorder([*wanted, *computed, *recorder.in_parts]))
    used, calls_of = {id(n) for n in needed} | recorder.views.again, set(map(_call, needed))
    roots: list[Node] = []
    for node in reversed(found):  # A node is recorded before those that use it.
        if id(node) not in used and _call(node) not in calls_of:
            roots.append(node)
            used.update(map(id, postorder([node])))
    return roots


def _call(node: Node) -> object:
    """Return what the results of one operation on the same operands have in common."""
    if isinstance(node, Apply):
        return node.operation, *map(id, node.arguments)
    return id(node)


class ResultRegisters:
    """Turns lazy chunks into references to registers.

    Two calls that compute the same share a register, as does a copy with what it is a copy of. What
    the program makes twice is two arrays, so that a change of one is not a change of the other.

    Parameters
    ----------
    recorder
        Of the recording.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._taken = set(recorder.given)
        self._found: dict[int, Any] = {}

    def reference(self, value: Any) -> Any:
        """Return a result with references instead of lazy chunks."""
        if type(value) in (list, tuple):
            return type(value)(map(self.reference, value))
        if type(value) is dict:
            return {key: self.reference(each) for key, each in value.items()}
        if type(value) is np.ndarray and not self._recorder.escape:
            return self._copied(value)
        if not isinstance(value, LazyChunk):
            return references(self._recorder, value)
        if id(value) not in self._found:
            self._found[id(value)] = value, self._reference(value)
        return self._found[id(value)][1]

    def _copied(self, numbers: np.ndarray) -> Any:
        """Return a reference to a copy of an array of numbers: another one for each chunk."""
        recorder = self._recorder
        if not recorder.device.holds(numbers):
            recorder.escaped(GraphBreak.NOT_ARRAYS(f"an array of {numbers.dtype} is a result"))
            return numbers
        made = recorder.constant(numbers)
        return Register(recorder.made_leaf(made.register, np.copy, copies=True).register)

    def _reference(self, chunk: LazyChunk) -> Any:
        recorder = self._recorder
        register = recorder.register(node_of(chunk))
        if register in recorder.pieces and not is_scalar(chunk):
            register = own(recorder, register)
            self._taken.add(register)
            return Register(register)
        if was_own(chunk) and register in self._taken:
            made = recorder.made_leaf(register, np.copy, copies=True)
            chunk = LazyChunk(recorder, made, scalar=is_scalar(chunk))
        self._taken.add(register)
        return references(recorder, chunk)
