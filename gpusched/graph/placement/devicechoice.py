"""Whether calls of a chunk task run on the device, on a worker that owns one: the decision alone.

It is made for each group of calls that run together, by what the functions are, by where the inputs
are, and by what copying them costs. The rates need not be exact: a call of NumPy's takes about as
long as the copy of its operand, so it is where the operands are and how many calls there are that
decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from dask.array import core, reductions

from gpusched.adapters.tasks import TaskRef
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.functions import extremes, moments
from gpusched.graph.functions.known import computes, known
from gpusched.graph.functions.partials import bare, name_of
from gpusched.graph.placement.cupycalls import (
    by_library,
    cupy_call,
    missing_dtype,
    moves_elements,
    picks,
)
from gpusched.graph.running.batch import calls_in
from gpusched.graph.running.inputs import SMALL, flat, unsuitable
from gpusched.graph.running.segment import Segment
from gpusched.placed import TAKES_PLACED, Placed, extent
from gpusched.plan import shortage
from gpusched.plan.overrides import OFF
from gpusched.plan.plan import items, substitute

COPIES = GraphBreak.COPIES("copying the chunks takes longer than computing with them")
OWN = GraphBreak.DEVICE_ARRAYS("the program has device arrays of its own")
NEEDS_HOST = GraphBreak.NEEDS_HOST("no kernel computes it: it gets NumPy arrays")
LEAVES = GraphBreak.LEAVES("it hands chunks to the program, or to what it stores them in")
SHORT = GraphBreak.NO_ROOM("there was no room on the device")
OFF_HERE = GraphBreak.SWITCHED_OFF("gpusched.device is off")
PICKS = GraphBreak.INDEX("it takes elements by an array or a list of indices")
NUMBER = GraphBreak.SMALL_CHUNKS("it takes a single element")

TAKES_CUPY = "__gpusched_takes_cupy__"
"""Method of functions that compute on the device by themselves, as models do: called with the
arguments, returns whether they may be CuPy's arrays."""

LINK = 12e9
"""Bytes per second between page-locked memory and the device. PCIe 4.0 with 16 lanes has 25e9, of
which copies that are staged reach about half."""
HOST = 4e9
"""Bytes per second of operands of one call of NumPy's, on one thread. Measured on a shared server's
core (Intel Xeon, Sapphire Rapids, 2026-11-25): 12e9 to 28e9 for operands that fit the cache, 0.7e9
to 5e9 for larger ones, whose results are new pages."""
DEVICE = 500e9
"""Bytes per second that kernels read and write: half of what a data center's GPU of 2018 has."""
COPY = 20e-6
"""Seconds that each copy takes besides: a launch, and waiting for it."""
LAUNCH = 30e-6
"""Seconds that a kernel takes besides, and Python until it is launched."""

_UNSEEN = object()
"""Stands for what calls have not returned yet."""

Refusal = tuple[str, Reason]
"""A function's name, and why it is called on the host."""


@dataclass(frozen=True)
class Work:
    """What some calls take and do."""

    nbytes: int
    """Bytes of the arrays among their inputs, as the calls see them."""
    calls: int
    """Calls that compute something, rather than show an array in another way."""
    upload: int
    """Bytes to copy for the device: what is behind those in host memory."""
    uploads: int
    """How many arrays these are."""
    download: int
    """Bytes to copy for the host: those in device memory."""
    downloads: int
    """How many arrays these are."""
    returned: int = 0
    """Bytes of results that the host needs afterwards."""
    passes: int = 1
    """How often the device goes through its operands: once, or for each call of CuPy's."""

    def host_seconds(self) -> float:
        """Return how long the calls take as NumPy's."""
        copies = self.download / LINK + self.downloads * COPY
        return copies + self.calls * self.nbytes / HOST

    def device_seconds(self) -> float:
        """Return how long they take on the device."""
        copies = (self.upload + self.returned) / LINK
        copies += (self.uploads + bool(self.returned)) * COPY
        # What only shows chunks in another way launches nothing.
        return copies + self.passes * (LAUNCH * bool(self.calls) + self.nbytes / DEVICE)

    def pays(self) -> bool:
        """Return whether the device is done sooner.

        Examples
        --------
        >>> from gpusched.graph.placement.devicechoice import Work
        >>> size = 8 << 20
        >>> two_calls = Work(size, calls=2, upload=size, uploads=1, download=0, downloads=0)
        >>> a_view = Work(size, calls=0, upload=size, uploads=1, download=0, downloads=0)
        >>> of_the_device = Work(4096, calls=0, upload=0, uploads=0, download=4096, downloads=1)
        >>> two_calls.pays(), a_view.pays(), of_the_device.pays()
        (True, False, True)
        """
        return self.device_seconds() < self.host_seconds()


def why_on_host(segment: Segment, registers: list[Any]) -> Refusal | None:
    """Return why calls are to run on the host, or None if they may run on the device.

    Parameters
    ----------
    segment
        The calls.
    registers
        Their task's, with arrays of NumPy's and `Placed` ones.
    """
    inputs = segment.values(registers)
    values, name = flat(inputs), name_of(segment.steps[0][1].function)
    if segment.overrides.device == OFF:
        return name, OFF_HERE
    found = None if segment.recorded else _uncalled(segment, registers)
    if found is not None:
        return found
    reason = _unsuitable(values)
    if reason is None and segment.recorded and _largest(values) < segment.overrides.bounds.elements:
        reason = SMALL
    if reason is None and shortage.wanted() > 1:
        reason = SHORT
    if reason is None and not segment.recorded and _picks(segment, registers):
        reason = PICKS
    if reason is not None:
        return name, reason
    found = _known_refusal(segment, inputs) if segment.recorded else None
    if found is not None:
        return found
    return None if segment_work(segment, values).pays() else (name, COPIES)


def segment_work(segment: Segment, values: tuple[Any, ...]) -> Work:
    """Return what a segment takes and does.

    Parameters
    ----------
    segment
        The calls.
    values
        Its inputs, one after the other.
    """
    calls = sum(effort(step.function) for _, step in segment.steps)
    return work_of(values, calls, segment.returns)


@contextmanager
def cut(segment: Segment, registers: list[Any]) -> Iterator[Segment]:
    """Give a segment without the calls that cut pieces off chunks, which are in registers for it.

    It is what the rest reads that decides, and its plans hold for pieces that are cut anywhere.
    Where the pieces are most of a chunk in host memory, that is copied as a whole, for other tasks
    as well: then the segment is given as it is.

    Parameters
    ----------
    segment
        The calls.
    registers
        Their task's, with arrays of NumPy's and `Placed` ones.
    """
    cuts = segment.cut
    if cuts is None or not cuts.apply(registers):
        yield segment
        return
    try:
        whole = set(segment.inputs).difference(cuts.rest.inputs)
        pieces = set(cuts.rest.inputs).difference(segment.inputs)
        few = 2 * _host_bytes(pieces, registers) <= _host_bytes(whole, registers)
        yield cuts.rest if few else segment
    finally:
        cuts.forget(registers)


def _host_bytes(numbers: Iterable[int], registers: list[Any]) -> int:
    """Return the bytes of the arrays in host memory that some registers hold."""
    values = [registers[k] for k in numbers]
    return sum(extent(v) for v in values if type(v) is np.ndarray)


def can_stay(spec: Any, inputs: Mapping[Any, Any]) -> bool:
    """Return whether chunks need not leave the device for a task that is no program.

    Parameters
    ----------
    spec
        The task, as dask has it.
    inputs
        Its inputs by key.
    """
    values = tuple(items(list(inputs.values())))
    if shortage.wanted() > 1 or _unsuitable(values) is not None:
        return False
    called = list(calls_in(spec))
    stays = all(
        (moves_elements(function) and not picks(function, args))
        or (by_library(function) and missing_dtype(values) is None)
        or _accepts_cupy(function, [_input(each, inputs) for each in args])
        for function, args, _ in called
    )
    libraries = [found for function, *_ in called if (found := cupy_call(function))]
    calls = sum(found.calls for found in libraries if found.by_library)
    return stays and work_of(values, calls, False).pays()


def _input(arg: Any, inputs: Mapping[Any, Any]) -> Any:
    return inputs.get(arg.key, arg) if isinstance(arg, TaskRef) else arg


def why_left(spec: Any) -> Refusal:
    """Return why a task that is no program gets NumPy's arrays, unless its chunks can stay."""
    functions = [function for function, *_ in calls_in(spec)]
    others = [f for f in functions if not moves_elements(f)] or functions
    left = all(map(leaves, others))
    return name_of(others[0]) if others else "a task", LEAVES if left else NEEDS_HOST


def _uncalled(segment: Segment, registers: list[Any] | None = None) -> Refusal | None:
    """Return why functions that are not recorded are not called on CuPy's arrays, or None.

    Before the task runs, and so without its registers, those that are asked count as others.
    """
    others = [
        step.function
        for _, step in segment.steps
        if not (moves_elements(step.function) or cupy_call(step.function))
        and not (registers and _accepts_cupy(step.function, substitute(step.args, registers)))
    ]
    if not others:
        return None
    if all(map(leaves, others)):
        return name_of(others[0]), LEAVES
    return segment.unsafe[0] if segment.unsafe else (name_of(others[0]), NEEDS_HOST)


def _accepts_cupy(function: Any, args: Sequence[Any]) -> bool:
    """Return whether a function says that a call with these arguments may be of CuPy's arrays."""
    asked = getattr(bare(function), TAKES_CUPY, None)
    return asked is not None and bool(asked(*args))


def _known_refusal(segment: Segment, inputs: tuple[Any, ...]) -> Refusal | None:
    """Return why calls that can be recorded are not run as kernels, as far as that is known."""
    refused = segment.examined().refused
    direct = None if refused else segment.refusal(inputs)
    return refused if direct is None else (direct.operation, direct.reason)


def _picks(segment: Segment, registers: list[Any]) -> bool:
    """Return whether elements are taken by indices that are arrays or lists.

    CuPy does not raise an error for an index that is too large.
    """
    written = {register for register, _ in segment.steps}
    values = [_UNSEEN if k in written else value for k, value in enumerate(registers)]
    return any(picks(s.function, substitute(s.args, values)) for _, s in segment.steps)


def note_returns(segments: list[Segment]) -> None:
    """Note for each segment of a program whether a later one takes its results to the host.

    Examples
    --------
    >>> from gpusched.graph.placement.devicechoice import note_returns
    >>> note_returns([])
    """
    for number, segment in enumerate(segments):
        written = set(segment.outputs)
        segment.returns = any(
            not written.isdisjoint(later.inputs)
            and not later.recorded
            and not all(hasattr(step.function, TAKES_PLACED) for _, step in later.steps)
            and _uncalled(later)
            for later in segments[number + 1 :]
        )
        if segment.cut is not None:
            segment.cut.rest.returns = segment.returns


def leaves(function: Any) -> bool:
    """Return whether a function hands chunks to the program, or to what it stores them in."""
    function = bare(function)
    return any(function is each for each in (core.finalize, core.load_store_chunk, core.load_chunk))


def is_own(value: Any) -> bool:
    """Return whether a value is a device array of the program's own."""
    return hasattr(type(value), "__cuda_array_interface__")


def _unsuitable(values: tuple[Any, ...]) -> Reason | None:
    """Return why no kernel on the device takes some inputs, or None."""
    if any(map(is_own, values)):
        return OWN
    if dict in map(type, values):
        return GraphBreak.CHUNK_TYPE("chunks in a dictionary")
    return unsuitable(values)


def _largest(values: tuple[Any, ...]) -> int:
    return max([math.prod(v.shape) for v in values if type(v) in (np.ndarray, Placed)], default=0)


def effort(function: Any) -> int:
    """Return how many of NumPy's calls a function takes, roughly; 0 for what computes nothing.

    Parameters
    ----------
    function
        The function.

    Examples
    --------
    >>> import operator
    >>> import numpy as np
    >>> from gpusched.graph.placement.devicechoice import effort
    >>> effort(operator.add), effort(np.transpose), effort(lambda x: x + 1)
    (1, 0, 4)
    """
    if not computes(function) or moves_elements(function):
        return 0
    if found := cupy_call(function):
        return found.calls
    return _EFFORTS.get(bare(function), 1) if known(function) else _OF_A_USER


_OF_A_USER = 4
_EFFORTS: dict[Any, int] = {
    moments.moment_chunk: 6, reductions.moment_chunk: 6, reductions.mean_chunk: 2, np.mean: 2,
    np.var: 6, np.std: 6, **{extremes.FirstOfChunk(*key): 3 for key in extremes.SEARCHES},
}  # fmt: skip
"""Functions that read their operands several times."""


def work_of(values: tuple[Any, ...], calls: int, returns: bool) -> Work:
    """Return what calls take and do.

    Parameters
    ----------
    values
        Chunks, in host memory or on the device, and anything else.
    calls
        How many calls compute something.
    returns
        Whether the host needs the results.
    """
    on_host = [v for v in values if type(v) is np.ndarray]
    on_device = [v for v in values if type(v) is Placed]
    upload, download = sum(map(extent, on_host)), sum(v.nbytes for v in on_device)
    nbytes = sum(v.nbytes for v in on_host) + download
    # Results are as large as the largest input, more or less.
    sizes = [v.nbytes for v in on_host] + [v.nbytes for v in on_device]
    returned = max(sizes, default=0) if returns else 0
    return Work(nbytes, calls, upload, len(on_host), download, len(on_device), returned)
