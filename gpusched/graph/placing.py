"""Whether the calls of a chunk task run on the device, on a worker that owns one.

A program that makes NumPy arrays has them in device memory where kernels compute with them, and in
host memory for everything else. It is decided for each group of calls that run together, by what
the functions are, by where the inputs lie, and by what copying them costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusched import config, placed
from gpusched.fusion import shortage
from gpusched.fusion.devices import device_of
from gpusched.fusion.operations import replaced
from gpusched.fusion.placement import OFF, REQUIRE
from gpusched.fusion.statistics import updating
from gpusched.graph.batch import Batch
from gpusched.graph.examination import bare_name
from gpusched.graph.known import computes
from gpusched.graph.moved import Moved
from gpusched.graph.quick import slow_part
from gpusched.graph.segment import Segment, flat
from gpusched.graph.transfers import Work
from gpusched.placed import Placed, extent, holds_placed, hosted

SMALL = "small chunks"
COPIES = "copying the chunks takes longer than computing with them"
OWN = "the program has device arrays of its own"
NO_KERNEL = "no kernel computes it: it gets NumPy arrays"
SHORT = "there was no room on the device"

_EXEMPT = frozenset((SMALL, COPIES, OWN))
"""Reasons that are no errors where the device is required: nothing is lost by them."""

Reason = tuple[str, str]
"""A function's name, and why it is called on the host."""


class DeviceRequiredError(RuntimeError):
    """A task was to run on the device, and cannot."""


def begin(mode: str) -> Placing | None:
    """Return what decides for a task that is to run in this thread; None if there is no device.

    Parameters
    ----------
    mode
        What the task's computation says of the device.
    """
    mover = placed.mover()
    return None if mover is None else Placing(mover, mode)


class Placing:
    """One run of a chunk task, and where its calls ran.

    Parameters
    ----------
    mover
        What copies arrays.
    mode
        One of `gpusched.fusion.placement`.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, mover: placed.Mover, mode: str) -> None:
        self._mover = mover
        self._mode = mode
        self._uploads: dict[int, tuple[np.ndarray, Placed]] = {}
        self._on_device = False
        self._reasons: list[Reason] = []

    def run(self, segment: Segment, registers: list[Any]) -> None:
        """Run some calls of the task where they run best."""
        inputs = tuple([registers[k] for k in segment.inputs])
        if not any(map(_is_array, flat(inputs))) and not holds_placed(inputs):
            return segment.run(registers)
        reason = self.refusal(segment, inputs)
        if reason is None:
            found = self._moved(segment, registers)
        else:
            found = self._on_host(segment, registers, reason)
        for k in segment.outputs:
            registers[k] = found[k]
        for k in segment.dying:
            registers[k] = None

    def finish(self) -> None:
        """Count the task."""
        with updating() as counters:
            counters.device_tasks += self._on_device
            counters.host_tasks += bool(self._reasons) and not self._on_device
            counters.host_reasons.update(self._reasons)

    def refusal(self, segment: Segment, inputs: tuple[Any, ...]) -> Reason | None:
        """Return why calls are to run on the host, or None if they may run on the device."""
        name = bare_name(segment.steps[0][1].function)
        if self._mode == OFF:
            return name, "gpusched.device is off"
        if not segment.recorded:
            return segment.unsafe[0] if segment.unsafe else (name, NO_KERNEL)
        values = flat(inputs)
        reason = _unsuitable(values)
        if reason is not None:
            return name, reason
        if _largest(values) < config.get("fusion.minimum-elements"):
            return name, SMALL
        if shortage.wanted() > 1:
            return name, SHORT
        refused = segment.examined().refused
        if refused:
            return refused
        direct = segment.refusal(inputs)
        if direct is not None:
            return direct.operation, direct.reason
        return None if _work(segment, values).pays() else (name, COPIES)

    def _moved(self, segment: Segment, registers: list[Any]) -> list[Any]:
        moved = Moved(registers, segment.inputs, self._mover, self._uploads, self._refuse)
        segment.run_whole(moved)
        self._on_device |= not moved.left
        return moved

    def _on_host(self, segment: Segment, registers: list[Any], reason: Reason) -> list[Any]:
        self._refuse(reason, _is_loss(segment, registers))
        found = list(registers)
        for k in segment.inputs:
            found[k] = hosted(found[k])
        segment.run(found)
        return found

    def _refuse(self, reason: Reason, counts: bool = True) -> None:
        """Note why calls run on the host; raise if they must not."""
        if not counts or reason[1] == OWN:
            return
        if self._mode == REQUIRE and reason[1] not in _EXEMPT:
            raise DeviceRequiredError(
                f"{reason[0]} cannot run on the device: {reason[1]}. Set gpusched.device to auto "
                f"to have it run on the host"
            )
        self._reasons.append(reason)


def _is_loss(segment: Segment, registers: list[Any]) -> bool:
    """Return whether it is worth a note that calls run on the host.

    It is not where they load chunks, or put them together in host memory, or are tasks themselves.
    """
    if segment.recorded or holds_placed([registers[k] for k in segment.inputs]):
        return True
    functions = [step.function for _, step in segment.steps]
    return any(slow_part(f) is not None for f in functions if not isinstance(f, Batch))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Placed) or _is_own(value)


def _is_own(value: Any) -> bool:
    return hasattr(type(value), "__cuda_array_interface__")


def _unsuitable(values: tuple[Any, ...]) -> str | None:
    """Return why no kernel takes some inputs, or None."""
    missing = replaced()
    if missing:
        return f"numpy.{missing} is not NumPy's, so that no kernel can be compiled"
    if any(map(_is_own, values)):
        return OWN
    for value in values:
        if type(value) is np.ndarray:
            if device_of(value) is None:
                return f"dtype {value.dtype}"
        elif hasattr(value, "__array_ufunc__") and not isinstance(value, np.generic):
            return f"chunks of type {type(value).__name__}"
        elif type(value) is dict:
            return "chunks in a dictionary"
    return None


def _largest(values: tuple[Any, ...]) -> int:
    return max([math.prod(v.shape) for v in values if type(v) in (np.ndarray, Placed)], default=0)


def _work(segment: Segment, values: tuple[Any, ...]) -> Work:
    on_host = [v for v in values if type(v) is np.ndarray]
    on_device = [v for v in values if type(v) is Placed]
    calls = sum(computes(step.function) for _, step in segment.steps)
    upload, download = sum(map(extent, on_host)), sum(v.nbytes for v in on_device)
    nbytes = sum(v.nbytes for v in on_host) + download
    return Work(nbytes, calls, upload, len(on_host), download, len(on_device))
