"""Runs a segment on parts of its chunks, one after the other, when the whole does not fit."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.backends.devices import Device, device_of
from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.functions.independence import is_common, operands_of
from gpusched.graph.functions.partials import applied, bare
from gpusched.plan.plan import Register, Registers
from gpusched.plan.shortage import HostResult
from gpusched.record.catalogue import has
from gpusched.record.recorded import RecordedFunction, one_of
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import updating

if TYPE_CHECKING:
    from gpusched.graph.running.segment import Segment

WHOLE = GraphBreak.READ_WHOLE("memory is short, and calls need whole chunks")
SHAPES = GraphBreak.READ_WHOLE("memory is short, and calls are of chunks of several shapes")
SHORT = GraphBreak.SMALL("memory is short, and chunks have fewer than four rows")


def run(segment: Segment, registers: Registers, count: int) -> bool:
    """Run a segment in parts along its first axis; return False where that cannot be done.

    The outputs are allocated whole, so what is saved is everything between inputs and outputs. An
    output that is the task's result is left in host memory where it does not fit, or where it does
    and leaves the parts no room.
    """
    inputs = [item for k in segment.inputs for item in _items(registers[k])]
    arrays = [item for item in inputs if device_of(item) is not None]
    if not arrays:
        return False  # There is nothing to divide.
    if any(device_of(item) is None and getattr(item, "shape", ()) for item in inputs):
        return _left_whole(WHOLE)  # Arrays of a dtype that no kernel takes stay whole.
    several = {k for k in segment.inputs if type(registers[k]) in (tuple, list)}
    if not all(_may_run_in_parts(step, several) for _, step in segment.steps):
        return _left_whole(WHOLE)
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        # Tasks are one that only share an operand. What is divided is known by its length.
        return _left_whole(SHAPES)
    if not shape or shape[0] < 4:
        return _left_whole(SHORT)
    device = device_of(arrays[0])
    assert device is not None
    found = _Results(segment, registers, shape, device)
    for start, stop in _bounds(shape[0], count):
        if not found.fill(slice(start, stop)):
            # The error is gone by now, and with it the arrays that it held.
            found.fill(slice(start, stop))
    found.store()
    return True


def _left_whole(reason: Reason) -> bool:
    with updating() as counters:
        counters.apart["divide", reason] += 1
    return False


class _Results:
    """The outputs of a segment, filled part after part.

    Parameters
    ----------
    segment, registers
        What is run, on what.
    shape
        Of the arrays that are divided.
    device
        Where they are.
    """

    def __init__(self, segment: Segment, registers: Registers, shape: tuple[int, ...],
                 device: Device) -> None:  # fmt: skip
        self._segment, self._registers = segment, registers
        self._shape, self._device = shape, device
        self._final = segment.outputs == (len(registers) - 1,)
        self._wholes: dict[int, list[Any]] = {k: [] for k in segment.outputs}
        self._several: set[int] = set()
        """Outputs that are tuples of arrays, none of which can be left in host memory."""

    def fill(self, where: slice) -> bool:
        """Compute some rows; return False, with more room made for them, if they did not fit."""
        part = list(self._registers)
        for k in self._segment.inputs:
            part[k] = _part(part[k], where, self._shape)
        try:
            self._segment.run_whole(part)
            for k, wholes in self._wholes.items():
                if type(part[k]) is tuple:
                    self._several.add(k)
                alone = self._final and k not in self._several
                for number, item in enumerate(_items(part[k])):
                    _put(wholes, number, item, where, self._shape, self._device, alone)
        except MemoryError:
            if not self._leave_device():
                raise
            return False
        return True

    def store(self) -> None:
        """Write the outputs to the registers."""
        for k, wholes in self._wholes.items():
            several = k in self._several
            self._registers[k] = tuple(wholes) if several else _result(wholes[0], self._device)

    def _leave_device(self) -> bool:
        """Move the task's one result to host memory; return False if it cannot be, or is there."""
        if self._device.can.host_memory or not self._final or self._several:
            return False
        (wholes,) = self._wholes.values()
        if not wholes or isinstance(wholes[0], np.ndarray):
            return False
        wholes[0] = wholes[0].get()
        return True


def _items(value: Any) -> tuple[Any, ...]:
    """Return the arrays of a kernel with several results, or the one."""
    return tuple(value) if type(value) in (tuple, list) else (value,)


def _part(value: Any, where: slice, shape: tuple[int, ...]) -> Any:
    """Return the rows of an input, or all of one that does not depend on the divided axis."""
    if type(value) in (tuple, list):
        return type(value)(_part(item, where, shape) for item in value)
    divided = device_of(value) is not None and value.ndim == len(shape)
    return value[where] if divided and value.shape[0] == shape[0] else value


def _result(whole: Any, device: Device) -> Any:
    on_host = isinstance(whole, np.ndarray) and not device.can.host_memory
    return HostResult(whole) if on_host else whole


def _may_run_in_parts(step: ProgramStep, several: set[int]) -> bool:
    """Return whether a call gives for some rows what it gives there for the whole.

    Parameters
    ----------
    step
        The call.
    several
        Registers of inputs that are several arrays.
    """
    function = bare(step.function)
    if function is not one_of and several & step.registers:
        return False  # To others, a tuple of arrays is one array with another axis.
    if isinstance(function, RecordedFunction):
        return function.elementwise
    return has(function, "passes") or _is_elementwise(step)


def _is_elementwise(step: ProgramStep) -> bool:
    """Return whether a call is elementwise, and given as a whole what is no part of a chunk."""
    function, args, kwargs = applied(step.function, step.args, step.kwargs)
    others = {name: kwargs[name] for name in kwargs.keys() - _OF_NO_PLACE}
    operands: Any
    if isinstance(function, np.ufunc) and function.signature is None:
        operands = args if len(args) == function.nin and not others else None
    else:
        operands = operands_of(function, args, others)
    return operands is not None and all(
        type(each) in (Register, str) or is_common(each) for each in operands
    )


_OF_NO_PLACE = frozenset(["casting", "copy", "dtype", "order"])
"""Options that are the same for all elements, of ufuncs and of `astype`."""


def _bounds(length: int, count: int) -> list[tuple[int, int]]:
    # A part of one row could be taken for a broadcast axis.
    count = max(1, min(count, length // 2))
    edges = [length * k // count for k in range(count + 1)]
    return list(pairwise(edges))


def _put(wholes: list[Any], number: int, value: Any, where: slice, shape: tuple[int, ...],
         device: Device, final: bool) -> None:  # fmt: skip
    new = number == len(wholes)
    if value.ndim < len(shape) or value.shape[0] != where.stop - where.start:
        # It does not depend on the axis that is divided.
        if new:
            wholes.append(value)
        return
    if new:
        wholes.append(_allocate(device, (shape[0], *value.shape[1:]), value.dtype, final))
    whole = wholes[number]
    on_host = isinstance(whole, np.ndarray) and hasattr(value, "get")
    whole[where] = value.get() if on_host else value


def _allocate(device: Device, shape: tuple[int, ...], dtype: np.dtype, final: bool) -> Any:
    try:
        return device.empty(shape, dtype)
    except MemoryError:
        if device.can.host_memory or not final:
            raise
        return np.empty(shape, dtype)
