"""Runs a chunk task's calls on the device or on the host, on a worker that owns a GPU.

A program that makes NumPy arrays has them in device memory where kernels compute with them, and in
host memory for everything else: `gpusched.graph.placement.devicechoice` decides for each group of
calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gpusched import placed
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.partials import name_of, slow_part
from gpusched.graph.placement.cupycalls import on_cupy
from gpusched.graph.placement.devicechoice import (
    COPIES,
    LEAVES,
    NUMBER,
    OWN,
    Refusal,
    can_stay,
    cut,
    is_own,
    segment_work,
    why_left,
    why_on_host,
)
from gpusched.graph.running.cutfirst import PieceReturnedError
from gpusched.graph.running.inputs import SMALL, flat
from gpusched.graph.running.moved import Moved, TaskCopies
from gpusched.graph.running.segment import Segment
from gpusched.placed import TAKES_PLACED, Placed, holds_placed, hosted
from gpusched.plan.overrides import REQUIRE, Overrides, bounds
from gpusched.store.statistics import updating

_EXEMPT = frozenset((SMALL.kind, COPIES.kind, OWN.kind, LEAVES.kind))
"""Reasons that are no errors where the device is required: nothing is lost by them."""

_UNABLE = (TypeError, ValueError, IndexError, AttributeError, NotImplementedError, ImportError)
"""What CuPy raises for arguments that NumPy's functions may take, besides errors that are NumPy's
too, and where a library of CUDA's is not installed; errors of the GPU itself are others."""


class DeviceRequiredError(RuntimeError):
    """A task was to run on the device, and cannot."""


def begin(overrides: Overrides, inputs: Iterable[Any]) -> Placing | None:
    """Return what decides for a task that is to run in this thread; None if there is no device.

    There is none either for what a task calls: it gives NumPy's arrays to whoever has called it.

    Parameters
    ----------
    overrides
        What is in effect for the task's program.
    inputs
        The task's.

    Raises
    ------
    DeviceRequiredError
        If the computation says that it must have one, and this process owns none.
    """
    mover = placed.take()
    if mover is not None:
        return Placing(mover, overrides)
    required = overrides.device == REQUIRE and placed.mover() is None
    if required and any(type(v) is np.ndarray for v in inputs):
        raise DeviceRequiredError(
            "gpusched.device is require, and this process is no worker that owns a GPU: use "
            "gpusched.Cluster on a machine that has one, or set it to auto"
        )
    return None


class Placing:
    """One run of a chunk task, and where its calls ran.

    Parameters
    ----------
    mover
        What copies arrays.
    overrides
        What is in effect for the task's program.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, mover: placed.Mover, overrides: Overrides) -> None:
        self._copies = TaskCopies(mover, overrides.bounds.elements)
        self._mode = overrides.device
        self._on_device = False
        self._reasons: list[Refusal] = []

    def run(self, segment: Segment, registers: list[Any]) -> None:
        """Run some calls of the task where they run best."""
        inputs = tuple([registers[k] for k in segment.inputs])
        if all(hasattr(step.function, TAKES_PLACED) for _, step in segment.steps):
            found = self._decided_inside(segment, registers)
        elif not any(map(_is_array, flat(inputs))) and not holds_placed(inputs):
            return segment.run(registers)
        else:
            try:
                found = self._placed(segment, registers)
            except PieceReturnedError:
                segment.cut = None
                found = self._placed(segment, registers)
        for k in segment.outputs:
            registers[k] = found[k]
        for k in segment.dying:
            registers[k] = None

    def _placed(self, segment: Segment, registers: list[Any]) -> list[Any]:
        """Run calls on the device, or on the host where that is said to be better."""
        with cut(segment, registers) as rest:
            reason = why_on_host(rest, registers)
            if reason is None:
                return self._moved(rest, registers)
            return self._on_host(rest, registers, reason)

    def finish(self) -> None:
        """Count the task: on the device if nothing but what is small there was done elsewhere.

        Copies of its inputs are kept if something was computed with them: not where kernels were
        missing, which others that find the chunks there would only copy back.
        """
        if self._on_device:
            self._copies.keep()
        exempt = {LEAVES.kind} | ({SMALL.kind} if self._on_device else set())
        lost = any(reason.kind not in exempt for _, reason in self._reasons)
        with updating() as counters:
            counters.device_tasks += self._on_device and not lost
            counters.host_tasks += lost
            counters.host_reasons.update(self._reasons)

    def _decided_inside(self, segment: Segment, registers: list[Any]) -> list[Any]:
        """Call functions that decide for each of their own calls."""
        found = list(registers)
        for register, step in segment.steps:
            with placed.lent(self._copies):
                found[register] = step.call(step.function, found)
        return found

    def _moved(self, segment: Segment, registers: list[Any]) -> list[Any]:
        if not segment.recorded:
            return self._by_cupy(segment, registers)
        values = flat(tuple([registers[k] for k in segment.inputs]))

        def pays(passes: int) -> bool:
            return replace(segment_work(segment, values), passes=passes).pays()

        moved = Moved(registers, segment.inputs, self._copies, self._refuse, pays)
        segment.run_whole(moved)
        self._on_device |= not moved.left
        return moved

    def _by_cupy(self, segment: Segment, registers: list[Any]) -> list[Any]:
        """Call functions on CuPy's arrays; on NumPy's where CuPy does not do what NumPy does."""
        found = list(registers)
        try:
            for k in segment.inputs:
                found[k] = self._copies.on_device(found[k])
            for register, step in segment.steps:
                found[register] = step.call(on_cupy(step.function), found)
            for k in segment.outputs:
                found[k] = self._copies.settled(found[k])
        except _UNABLE as error:
            told = f"{type(error).__name__}: {error}"
            failed = GraphBreak.NEEDS_HOST("CuPy does not do it", told)
        else:
            if not any(_holds_number(found[k]) for k in segment.outputs):
                self._on_device = True
                return found
            # NumPy's scalar, or an array without axes: which of them, only NumPy says.
            failed = NUMBER
        return self._on_host(segment, registers, (name_of(segment.steps[0][1].function), failed))

    def _on_host(self, segment: Segment, registers: list[Any], reason: Refusal) -> list[Any]:
        if _is_loss(segment, registers):
            self._refuse(reason)
        found = list(registers)
        for k in segment.inputs:
            found[k] = hosted(found[k])
        segment.run(found)
        return found

    def _refuse(self, reason: Refusal) -> None:
        """Note why calls run on the host; raise if they must not."""
        if reason[1].kind is OWN.kind:
            return
        if self._mode == REQUIRE and reason[1].kind not in _EXEMPT:
            raise DeviceRequiredError(
                f"{reason[0]} cannot run on the device: {reason[1]}. Set gpusched.device to auto "
                f"to have it run on the host"
            )
        self._reasons.append(reason)


def run_other(mover: placed.Mover, spec: Any, values: dict[Any, Any]) -> Any:
    """Return what a task returns that is no program, and has chunks on the device as inputs.

    Parameters
    ----------
    mover
        What copies arrays.
    spec
        The task, as dask sent it.
    values
        Its inputs by key.
    """
    if can_stay(spec, values):
        copies = TaskCopies(mover, bounds().elements)
        try:
            found = copies.settled(spec({k: copies.on_device(v) for k, v in values.items()}))
        except _UNABLE:
            found = None  # It is the program's own error, or CuPy's alone: NumPy knows.
        if found is not None and not _holds_number(found):
            with updating() as counters:
                counters.device_tasks += 1
            return found
    name, reason = why_left(spec)
    with updating() as counters:
        counters.host_tasks += reason.kind is not LEAVES.kind
        counters.host_reasons[name, reason] += 1
    return spec({key: hosted(value) for key, value in values.items()})


def _is_loss(segment: Segment, registers: list[Any]) -> bool:
    """Return whether it is worth a note that calls run on the host.

    It is not where they load chunks, or put them together in host memory, or are tasks themselves.
    """
    if segment.recorded or holds_placed([registers[k] for k in segment.inputs]):
        return True
    return any(slow_part(step.function) is not None for _, step in segment.steps)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Placed) or is_own(value)


def _holds_number(value: Any) -> bool:
    """Return whether a result is an array without axes, or holds one."""
    if type(value) in (tuple, list):
        return any(map(_holds_number, value))
    return isinstance(value, np.ndarray | Placed) and not value.shape
