"""Functions of a lane, for all lanes of a chunk at once.

`numpy.apply_along_axis` and `numpy.vectorize` call such a function for each lane. Here it runs
once, on a lane that stands for all of them, or as often as it has ways to go, of which each lane
takes the result of its own. What operations report of lanes that go another way, nobody is to see:
on several ways nothing is reported. The function changes nothing that others see, so that it may
run as often. 20,000 lanes of 60 numbers took 0.1 to 1.2 s of processor time, and take 6 to 30 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError, UnrecordableError
from gpusched.plan.plan import changed
from gpusched.record import lanerules  # noqa: F401  which fills RULES
from gpusched.record.chunk import LazyChunk, was_own
from gpusched.record.handlers import is_integer, records
from gpusched.record.lane import Fork, Lane, array_of_lanes, spread, stop
from gpusched.record.picked import PythonNumber
from gpusched.record.record import Recorder


def every_lane(recorder: Recorder, function: Callable[..., Any], wholes: list[Any],
               hidden: int) -> list[Any]:  # fmt: skip
    """Return what a function of lanes gives on each of its ways, with the conditions on it.

    Parameters
    ----------
    recorder
        Of the recording.
    function
        Gets a lane of each chunk.
    wholes
        The chunks, with the axes of which each place has a lane before those of a lane.
    hidden
        How many of the former there are.
    """
    if recorder.lanes is not None:
        stop(GraphBreak.OWN_CALLS("calls functions of lanes in one of lanes"))
    # What it calls of its lanes are its own calls, none of those of what calls it.
    depth, followed = recorder.depth, recorder.followed
    recorder.depth, recorder.followed = 0, None
    recorder.lanes = fork = Fork(hidden, max(whole.size for whole in wholes))
    recorder.spared += 1
    try:
        return fork.ways(lambda: function(*(Lane(whole, hidden, fork) for whole in wholes)))
    except Exception as error:
        if fork.way:  # It may be a way that no lane goes.
            raise UnrecordableError(
                GraphBreak.OWN_DECIDES("raises an error by what lanes hold")
            ) from error
        raise
    finally:
        recorder.depth, recorder.followed, recorder.lanes = depth, followed, None


def _joined_ways(ways: list[Any], depth: int = 0) -> Any:
    """Return for each lane what the way gives that it goes."""
    if len(ways) == 1:
        return ways[0][1]
    condition = ways[0][0][depth][0]
    sides = [_joined_ways([w for w in ways if w[0][depth][1] is side], depth + 1)
             for side in (True, False)]  # fmt: skip
    return np.where(condition, *sides)


def result_of(ways: list[Any], hidden: tuple[int, ...], dtype: Any = None,
              ndim: int | None = None) -> Any:  # fmt: skip
    """Return an array of what a function gives for its lanes.

    Parameters
    ----------
    ways
        What it gives on each way.
    hidden
        Lengths of the axes of which each place has a lane.
    dtype
        Of the result, if that is known: others are converted. NumPy goes by the first lane if not.
    ndim
        How many axes a lane of it has, if that is known.
    """
    numbers = partial(changed, change=lambda v: v.lane if type(v) is PythonNumber else v)
    ways = [(way, numbers(v)) for way, v in ways]
    ways = [(way, array_of_lanes(v) if type(v) in (list, tuple) else v) for way, v in ways]
    if len({(np.shape(v), dtype or np.result_type(_array(v))) for _, v in ways}) > 1:
        stop(GraphBreak.OWN_DECIDES("gives for some lanes what it does not give for others"))
    if ndim is not None and np.ndim(ways[0][1]) != ndim:
        stop(GraphBreak.OWN_DECIDES("gives results of other shapes than are declared"))
    if dtype is not None:
        ways = [(way, _converted(value, dtype)) for way, value in ways]
    found = _joined_ways(ways)
    if type(found) is not Lane or any(type(v) not in _RESULTS for _, v in ways):
        stop(GraphBreak.NO_ARRAY("gives what does not depend on its lanes"))
    whole: Any = spread(found, hidden)
    return whole if was_own(whole) else np.copy(whole)


_RESULTS = (Lane, LazyChunk, bool, int, float, np.ndarray, *np.sctypeDict.values())


def _array(value: Any) -> Any:
    return value if hasattr(value, "dtype") else np.asarray(value)


def _converted(value: Any, dtype: np.dtype) -> Any:
    """Return a result in the dtype of all; what NumPy may refuse to convert ends the recording."""
    own = _array(value).dtype
    if not np.can_cast(own, dtype, "same_kind") or own.kind not in "biuf":
        stop(GraphBreak.DTYPE(f"gives {own} for {dtype}"))
    if type(value) is int and _array(value).astype(dtype) != value:
        stop(GraphBreak.DTYPE(f"gives {value} for {dtype}, which has no such number"))
    return value if own == dtype else _array(value).astype(dtype)


# Not "recorded", as whoever calls it has to examine the function that it is given.
@records(np.apply_along_axis, traits=())
def _apply_along_axis(recorder: Recorder, func1d: Any, axis: Any, arr: Any, *args: Any,
                      **kwargs: Any) -> Any:  # fmt: skip
    if not recorder.closed or not isinstance(arr, LazyChunk):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "a function of lanes that was not examined")
    if arr.ndim < 2 or not arr.size or not is_integer(axis):
        stop(GraphBreak.NO_ARRAY("is called for lanes of which there are none"))
    axis = normalize_axis_index(int(axis), arr.ndim)
    whole: Any = np.moveaxis(arr, axis, -1)  # type: ignore[type-var]
    hidden = whole.shape[:-1]
    count = len(hidden)
    ways = every_lane(recorder, lambda lane: func1d(lane, *args, **kwargs), [whole], count)
    found = result_of(ways, hidden)
    added = range(count, found.ndim)
    return np.transpose(found, (*range(axis), *added, *range(axis, count)))


def each_by(recorder: Recorder, function: Any, signature: str, otypes: str | None,
            chunks: tuple[Any, ...]) -> Any:  # fmt: skip
    """Return what `numpy.vectorize` computes by a function and a signature.

    Parameters
    ----------
    recorder
        Of the recording.
    function
        Gets a lane of each of its arguments.
    signature, otypes
        As `numpy.vectorize` has them.
    chunks
        What it is given.
    """
    inputs, outputs = cores(signature)
    if len(inputs) != len(chunks) or not all(type(c) is LazyChunk for c in chunks):
        stop(GraphBreak.OPERAND("gets other arguments than chunks for its signature"))
    counts = [c.ndim - len(core) for c, core in zip(chunks, inputs, strict=True)]
    if min(counts) < 0 or not max(counts) or not all(c.size for c in chunks):
        stop(GraphBreak.NO_ARRAY("is called for lanes of which there are none"))
    lengths: dict[str, set[int]] = {}
    for chunk, core in zip(chunks, inputs, strict=True):
        for name, length in zip(core, chunk.shape[chunk.ndim - len(core) :], strict=True):
            lengths.setdefault(name, set()).add(length)
    if any(len(each) > 1 for each in lengths.values()):
        stop(GraphBreak.OPERAND("gets lengths that do not fit its signature"))
    most = max(counts)
    wholes = [c[(None,) * (most - n)] if n < most else c
              for c, n in zip(chunks, counts, strict=True)]  # fmt: skip
    hidden = np.broadcast_shapes(*(w.shape[:most] for w in wholes))

    def call(*lanes: Lane) -> Any:
        found = function(*lanes)
        several = type(found) is tuple
        if several if len(outputs) == 1 else not several or len(found) != len(outputs):
            stop(GraphBreak.OWN_DECIDES("gives another number of results than are declared"))
        return found if several else (found,)

    ways = every_lane(recorder, call, wholes, most)
    made = [
        result_of([(way, found[k]) for way, found in ways], hidden,
                  otypes and np.dtype(otypes[k]), len(core))
        for k, core in enumerate(outputs)
    ]  # fmt: skip
    for found, core in zip(made, outputs, strict=True):
        known = zip(core, found.shape[most:], strict=True)
        if any(length not in lengths.setdefault(name, {length}) for name, length in known):
            stop(GraphBreak.OWN_DECIDES("gives results of other lengths than are declared"))
    return made[0] if len(made) == 1 else tuple(made)


def cores(signature: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the names of the axes of each argument and of each result.

    Examples
    --------
    >>> from gpusched.record.lanewise import cores
    >>> cores("(t),()->(m)")
    ([['t'], []], [['m']])
    """
    sides = signature.replace(" ", "").split("->")
    found = [[[n for n in each.split(",") if n] for each in re.findall(r"\(([^()]*)\)", side)]
             for side in sides]  # fmt: skip
    return found[0], found[1]
