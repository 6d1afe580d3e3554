"""Runs a segment on parts of its chunks, one after the other, when the whole does not fit."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from gpusched.fusion.devices import Device, device_of
from gpusched.fusion.plan import Registers
from gpusched.fusion.recorded import RecordedFunction
from gpusched.graph.known import bare, enforced

ELEMENTWISE = (
    np.clip, np.where, operator.abs, operator.add, operator.and_, operator.eq, operator.floordiv,
    operator.ge, operator.gt, operator.inv, operator.invert, operator.le, operator.lshift,
    operator.lt, operator.mod, operator.mul, operator.ne, operator.neg, operator.or_, operator.pos,
    operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor, enforced,
)  # fmt: skip
"""Functions, besides ufuncs, whose value at a place depends on the inputs at that place only. A
user's function is none of them: it may ask for its input's shape."""

_wanted = threading.local()


class Runs(Protocol):
    """What of a segment is needed here."""

    steps: list[Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run_whole(self, registers: Registers) -> None: ...


@dataclass(frozen=True)
class HostResult:
    """A task's result in host memory, because the device had no room for it."""

    array: np.ndarray


@contextmanager
def in_pieces(count: int) -> Iterator[None]:
    """Let the segments that this thread runs meanwhile work on so many parts of their chunks.

    Examples
    --------
    >>> from gpusched.graph.pieces import in_pieces, wanted
    >>> with in_pieces(8):
    ...     wanted()
    8
    """
    _wanted.count = count
    try:
        yield
    finally:
        _wanted.count = 1


def wanted() -> int:
    """Return the number of parts that the calling thread is to work in."""
    return getattr(_wanted, "count", 1)


def run(segment: Runs, registers: Registers, count: int) -> bool:
    """Run a segment in parts along its first axis; return False where that cannot be done.

    The outputs are allocated whole, so what is saved is everything between inputs and outputs. An
    output that is the task's result and still does not fit is left in host memory.
    """
    arrays = {k: registers[k] for k in segment.inputs if device_of(registers[k]) is not None}
    if not arrays or not _is_elementwise(segment):
        return False
    shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    if not shape or shape[0] < 4:
        return False
    device = device_of(next(iter(arrays.values())))
    assert device is not None
    final = segment.outputs == (len(registers) - 1,)
    results: dict[int, Any] = {}
    for start, stop in _bounds(shape[0], count):
        part = list(registers)
        for k, array in arrays.items():
            if array.ndim == len(shape) and array.shape[0] == shape[0]:
                part[k] = array[start:stop]
        segment.run_whole(part)
        for k in segment.outputs:
            _put(results, k, part[k], slice(start, stop), shape, device, final)
    for k, result in results.items():
        on_host = isinstance(result, np.ndarray) and device.name != "cpu"
        registers[k] = HostResult(result) if on_host else result
    return True


def _is_elementwise(segment: Runs) -> bool:
    functions = [bare(step.function) for _, step in segment.steps]
    return all(
        f.signature is None
        if isinstance(f, np.ufunc)
        else (isinstance(f, RecordedFunction) and f.elementwise)
        or any(f is known for known in ELEMENTWISE)
        for f in functions
    )


def _bounds(length: int, count: int) -> list[tuple[int, int]]:
    # A part of one row could be taken for a broadcast axis.
    count = max(1, min(count, length // 2))
    edges = [length * k // count for k in range(count + 1)]
    return list(pairwise(edges))


def _put(results: dict[int, Any], k: int, value: Any, where: slice, shape: tuple[int, ...],
         device: Device, final: bool) -> None:  # fmt: skip
    if value.ndim < len(shape) or value.shape[0] != where.stop - where.start:
        # It does not depend on the axis that is divided.
        results.setdefault(k, value)
        return
    if k not in results:
        results[k] = _allocate(device, (shape[0], *value.shape[1:]), value.dtype, final)
    whole = results[k]
    on_host = isinstance(whole, np.ndarray) and hasattr(value, "get")
    whole[where] = value.get() if on_host else value


def _allocate(device: Device, shape: tuple[int, ...], dtype: np.dtype, final: bool) -> Any:
    try:
        return device.empty(shape, dtype)
    except MemoryError:
        if device.name == "cpu" or not final:
            raise
        return np.empty(shape, dtype)
