"""Whether the calls of a chunk task run on the device, on a worker that owns one.

A program that makes NumPy arrays has them in device memory where kernels compute with them, and in
host memory for everything else. It is decided for each group of calls that run together, by what
the functions are, by where the inputs lie, and by what copying them costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dask.array import core, reductions

from gpusched import config, placed
from gpusched.breaks import GraphBreak, Reason
from gpusched.fusion import shortage
from gpusched.fusion.devices import device_of
from gpusched.fusion.operations import replaced
from gpusched.fusion.placement import OFF, REQUIRE
from gpusched.fusion.statistics import updating
from gpusched.graph import moments
from gpusched.graph.batch import Batch
from gpusched.graph.examination import bare_name
from gpusched.graph.known import computes, known
from gpusched.graph.moved import Moved, TaskCopies
from gpusched.graph.movement import functions_of, moves_elements
from gpusched.graph.partials import bare
from gpusched.graph.quick import slow_part
from gpusched.graph.segment import Segment, flat
from gpusched.graph.transfers import Work
from gpusched.placed import Placed, extent, holds_placed, hosted

SMALL = GraphBreak.SMALL_CHUNKS("small chunks")
COPIES = GraphBreak.COPIES("copying the chunks takes longer than computing with them")
OWN = GraphBreak.DEVICE_ARRAYS("the program has device arrays of its own")
NEEDS_HOST = GraphBreak.NEEDS_HOST("no kernel computes it: it gets NumPy arrays")
LEAVES = GraphBreak.LEAVES("it hands chunks to the program, or to what it stores them in")
SHORT = GraphBreak.NO_ROOM("there was no room on the device")
OFF_HERE = GraphBreak.SWITCHED_OFF("gpusched.device is off")

_EXEMPT = frozenset((SMALL.kind, COPIES.kind, OWN.kind, LEAVES.kind))
"""Reasons that are no errors where the device is required: nothing is lost by them."""

Refusal = tuple[str, Reason]
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
        self._copies = TaskCopies(mover)
        self._mode = mode
        self._on_device = False
        self._reasons: list[Refusal] = []

    def run(self, segment: Segment, registers: list[Any]) -> None:
        """Run some calls of the task where they run best."""
        inputs = tuple([registers[k] for k in segment.inputs])
        if not any(map(_is_array, flat(inputs))) and not holds_placed(inputs):
            return segment.run(registers)
        reason = self._refusal(segment, inputs)
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
            stayed = any(reason.kind is not LEAVES.kind for _, reason in self._reasons)
            counters.host_tasks += stayed and not self._on_device
            counters.host_reasons.update(self._reasons)

    def _refusal(self, segment: Segment, inputs: tuple[Any, ...]) -> Refusal | None:
        """Return why calls are to run on the host, or None if they may run on the device."""
        function = segment.steps[0][1].function
        values, name = flat(inputs), bare_name(function)
        if self._mode == OFF:
            return name, OFF_HERE
        if not segment.recorded:
            others = [s.function for _, s in segment.steps if not moves_elements(s.function)]
            if others and all(map(_leaves, others)):
                return bare_name(others[0]), LEAVES
            if others:
                return segment.unsafe[0] if segment.unsafe else (bare_name(others[0]), NEEDS_HOST)
            reason = OWN if any(map(_is_own, values)) else None
            return (name, reason or COPIES) if reason or not pays(values) else None
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
        calls = sum(effort(step.function) for _, step in segment.steps)
        return None if pays(values, calls) else (name, COPIES)

    def _moved(self, segment: Segment, registers: list[Any]) -> list[Any]:
        if segment.recorded:
            moved = Moved(registers, segment.inputs, self._copies, self._refuse)
            segment.run_whole(moved)
            self._on_device |= not moved.left
            return moved
        found = list(registers)
        for k in segment.inputs:
            found[k] = self._copies.on_device(found[k])
        segment.call(found)
        for k in segment.outputs:
            found[k] = self._copies.settled(found[k])
        self._on_device = True
        return found

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
    functions = list(functions_of(spec))
    if all(map(moves_elements, functions)) and pays(_arrays(tuple(values.values()))):
        copies = TaskCopies(mover)
        found = copies.settled(spec({k: copies.on_device(v) for k, v in values.items()}))
        with updating() as counters:
            counters.device_tasks += 1
        return found
    others = [f for f in functions if not moves_elements(f)]
    name = bare_name(others[0]) if others else "a task"
    leaves = all(map(_leaves, others))
    with updating() as counters:
        counters.host_tasks += not leaves
        counters.host_reasons[name, LEAVES if leaves else NEEDS_HOST] += 1
    return spec({key: hosted(value) for key, value in values.items()})


def _arrays(value: Any) -> tuple[Any, ...]:
    """Return what is in tuples, lists and dictionaries, one after the other."""
    kind = type(value)
    if kind is tuple or kind is list:
        return tuple(each for item in value for each in _arrays(item))
    if kind is dict:
        return _arrays(list(value.values()))
    return (value,)


def _leaves(function: Any) -> bool:
    function = bare(function)
    return any(function is each for each in (core.finalize, core.load_store_chunk, core.load_chunk))


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


def _unsuitable(values: tuple[Any, ...]) -> Reason | None:
    """Return why no kernel takes some inputs, or None."""
    missing = replaced()
    if missing:
        return GraphBreak.REPLACED(
            f"numpy.{missing} is not NumPy's, so that no kernel can be compiled"
        )
    if any(map(_is_own, values)):
        return OWN
    for value in values:
        if type(value) is np.ndarray:
            if device_of(value) is None:
                return GraphBreak.DTYPE(f"dtype {value.dtype}")
        elif hasattr(value, "__array_ufunc__") and not isinstance(value, np.generic):
            return GraphBreak.CHUNK_TYPE(f"chunks of type {type(value).__name__}")
        elif type(value) is dict:
            return GraphBreak.CHUNK_TYPE("chunks in a dictionary")
    return None


def _largest(values: tuple[Any, ...]) -> int:
    return max([math.prod(v.shape) for v in values if type(v) in (np.ndarray, Placed)], default=0)


def effort(function: Any) -> int:
    """Return how many of NumPy's calls a function takes, roughly; 0 for what computes nothing.

    Examples
    --------
    >>> import operator
    >>> import numpy as np
    >>> from gpusched.graph.placing import effort
    >>> effort(operator.add), effort(np.transpose), effort(lambda x: x + 1)
    (1, 0, 4)
    """
    if not computes(function):
        return 0
    return _EFFORTS.get(bare(function), 1) if known(function) else _OF_A_USER


_OF_A_USER = 4
_EFFORTS: dict[Any, int] = {
    moments.moment_chunk: 6, reductions.moment_chunk: 6, reductions.mean_chunk: 2, np.mean: 2,
    np.var: 6, np.std: 6,
}  # fmt: skip
"""Functions that read their operands several times."""


def pays(values: tuple[Any, ...], calls: int = 0) -> bool:
    """Return whether calls with these inputs are done sooner on the device.

    Parameters
    ----------
    values
        Chunks, in host memory or on the device, and anything else.
    calls
        How many calls compute something.
    """
    on_host = [v for v in values if type(v) is np.ndarray]
    on_device = [v for v in values if type(v) is Placed]
    upload, download = sum(map(extent, on_host)), sum(v.nbytes for v in on_device)
    nbytes = sum(v.nbytes for v in on_host) + download
    return Work(nbytes, calls, upload, len(on_host), download, len(on_device)).pays()
