"""Branches that a function takes by what a chunk holds: ``if np.isnan(x).any():``.

A recording goes one way through a function, as its chunk does: where the function asks whether an
array is true, what has been recorded runs. The plan asks the same at the same place, and holds for
the chunks for which the answer is the same one (`gpusched.plan.plan.ReplayError` if it is not).
Nothing of what a plan has done until then is seen outside. A function of five operations with one
such branch took 1.3 to 1.6 times the processor time where it ended the recording.

An answer is to be the one that NumPy's numbers have. Sums of floats have their terms in another
order in kernels, and functions such as `exp` other last bits: a comparison at its very edge would
go the other way, and what comes after it may be anything. So only those answers are taken that are
computed of values with NumPy's bits; all else ends the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.operations import COMBINES, has, named
from gpusched.plan.expression import Apply, Gather, Leaf, Node, Reduce, Scalar
from gpusched.plan.plan import Call, ReplayError, reads, written
from gpusched.record import catalogue
from gpusched.record.callers import frame_outside
from gpusched.record.record import Recorder

MOST = 16
"""Answers of one recording: a loop that ends by what a chunk holds would have any number."""

BRANCH = GraphBreak.OWN_DECIDES("a chunk decides what comes next")
"""Why what comes before an answer and what comes after it are not one kernel."""


def is_true(answer: np.ndarray) -> np.ndarray:
    """Return a copy of an array; `ReplayError` if it is not true.

    Examples
    --------
    >>> from gpusched.record.branches import is_true
    >>> is_true(np.asarray(1.5))
    array(1.5)
    >>> is_true(np.asarray(False))
    Traceback (most recent call last):
    ...
    gpusched.plan.plan.ReplayError: a function goes another way for this chunk
    """
    return _as_before(answer, True)


def is_false(answer: np.ndarray) -> np.ndarray:
    """Return a copy of an array; `ReplayError` if it is true."""
    return _as_before(answer, False)


def _as_before(answer: np.ndarray, expected: bool) -> np.ndarray:
    if bool(answer) != expected:
        raise ReplayError("a function goes another way for this chunk")
    return answer.copy()  # What shows an array may be done without.


def truth(recorder: Recorder, node: Node) -> bool:
    """Return whether a value is true, which the plan holds for.

    Parameters
    ----------
    recorder
        With `answers`.
    node
        Of an array of one element; `ValueError` as NumPy raises it for others.
    """
    assert recorder.answers is not None
    found = recorder.answers.get(id(node))
    if found is None:
        reason = _obstacle(recorder, node)
        if reason is not None:
            recorder.stop(reason.told(f"{reason}{_where()}"))
        found = recorder.answers[id(node)] = bool(recorder.array(node))
        recorder.made_leaf(recorder.register(node), is_true if found else is_false)
        recorder.apart.append(("branch", BRANCH))
    return found


def _where() -> str:
    """Return the line that asks, as refusals of functions have it that were not recorded."""
    frame = frame_outside(2)
    return "" if frame is None else f" (branch, line {frame.f_lineno})"


def _obstacle(recorder: Recorder, node: Node) -> Reason | None:
    """Return why no plan may depend on whether a value is true; None if one may."""
    if recorder.moved or not recorder.device.can.host_memory:
        return GraphBreak.OWN_DECIDES("decides by a chunk in device memory")
    assert recorder.answers is not None
    if len(recorder.answers) == MOST:
        return GraphBreak.OWN_DECIDES(f"decides by chunks more than {MOST} times")
    if _are_compared(node):
        # Lists that are compared take an array for equal to itself, whether it is NaN or not.
        return GraphBreak.OWN_DECIDES("decides whether two numbers are equal")
    if not has_numpys_bits(recorder, node):
        return GraphBreak.OWN_DECIDES("decides by a number that kernels may round in another way")
    return None


def _are_compared(node: Node) -> bool:
    """Return whether a value says if two floats of chunks are equal."""
    if not isinstance(node, Apply) or node.operation not in ("equal", "not_equal"):
        return False
    return all(not isinstance(a, Scalar) and a.dtype.kind == "f" for a in node.arguments)


def has_numpys_bits(recorder: Recorder, node: Node) -> bool:
    """Return whether a value is computed of nothing but what kernels compute as NumPy does.

    Nothing is known of arrays that are written part by part. Parts of complex numbers are real ones
    where they are computed, and those of products NumPy may round once less.
    """
    recorded = recorder.recorded()
    if not recorder.exact or any(each.dtype.kind == "c" for each in recorded):
        return False
    computed = {recorder.done[id(n)]: n for n in recorded if id(n) in recorder.done}
    steps = {register: step for step in recorder.steps for register in written(step)}
    waiting: list[Node | int] = [node]
    seen: set[int | Node] = set()
    names: set[str] = set()
    zeros = False
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if isinstance(each, Node):
            found: Iterable[Node | int] | None = _read_by(each)
            # A sum of zeros has the sign of what it starts from.
            zeros |= isinstance(each, Reduce) and each.dtype.kind == "f" and each.combine == "add"
            if isinstance(each, Apply | Reduce):
                names.add(each.operation if isinstance(each, Apply) else each.combine)
        elif each in computed:
            found = [computed[each]]
        else:
            found = _read_by_step(steps.get(each))
        if found is None:
            return False
        waiting += found
    zeros |= any(has(name, "any-zero") for name in names)
    return not (zeros and any(has(name, "sees-zeros") for name in names))


def _read_by(node: Node) -> Iterable[Node | int] | None:
    """Return the nodes and registers that a node is computed of; None if it may be rounded."""
    if node.dtype.kind == "c":
        return None
    if isinstance(node, Gather):
        return node.register, node.labels
    if isinstance(node, Leaf):
        return (node.register,)
    if isinstance(node, Apply):
        operation = named(node.operation)
        rounds = operation.ulp or operation.function is not None
        # Beyond its range NumPy's loops differ among themselves; it repeats what it reports.
        beyond = operation.name == "astype_uint32" and not node.reports
        differs = rounds or beyond or has(operation.name, "sees-signs")
        return None if differs else node.arguments
    if type(node) is Reduce and (COMBINES.get(node.combine) == 0 or _is_added_exactly(node)):
        return (node.argument,)
    return () if isinstance(node, Scalar) else None


def _is_added_exactly(node: Reduce) -> bool:
    """Return whether each order of the terms has the same result.

    So it is of integers, and of floats which are integers (or NaN) whose sums have all digits.
    """
    if node.dtype.kind in "biu":
        return node.combine in ("add", "multiply")
    largest = _largest(node.argument) if node.combine == "add" else None
    if largest is None or node.dtype.kind != "f":
        return False
    count = math.prod(node.argument.shape[axis] for axis in node.axes)
    return bool(largest * count <= 2 ** (np.finfo(node.dtype).nmant + 1))


def _largest(node: Node) -> int | None:
    """Return a bound of what integers are apart from zero; None of what may be no integers."""
    if isinstance(node, Scalar):
        whole = np.isfinite(node.value) and node.value == np.rint(node.value)
        return abs(int(node.value)) if whole else None
    if not isinstance(node, Apply):
        return None
    if node.operation == "sign":
        return 1
    first = node.arguments[0]
    if node.operation == "astype" and first.dtype.kind in "biu":
        return 1 if first.dtype.kind == "b" else 1 << 8 * first.dtype.itemsize
    if node.operation in ("absolute", "astype", "negative"):
        return _largest(first)
    if node.operation == "where":
        sides = [_largest(each) for each in node.arguments[1:]]
        return None if None in sides else max(side for side in sides if side is not None)
    return None


def _read_by_step(step: Any) -> Iterable[int] | None:
    """Return the registers that a step reads which moves elements or compares them, as NumPy does.

    None for other steps: NumPy's own sums and functions depend on where numbers are in memory. What
    no step writes is an input, or a constant.
    """
    if step is None:
        return ()
    if not isinstance(step, Call):
        return None
    ufunc = isinstance(step.function, np.ufunc) and step.function.signature is None
    compares = ufunc and all(dtype.kind == "b" for _, dtype, _, _ in step.kinds)
    compares = compares and step.function is not np.signbit
    moves = step.is_view or catalogue.has(step.function, "moves")
    return reads(step) if compares or moves or step.function == HOST.full else None
