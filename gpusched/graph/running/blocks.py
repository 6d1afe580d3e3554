"""Calls that end in reductions, on one block of their arrays after the other: in less memory.

What NumPy computes between a chunk and what a reduction leaves of it is as large as the chunk, or
larger, as windows are; it is written to new memory, and read again. In blocks along an axis of
which every call computes each position alone, it stays in the cache. So chunks that stay whole
though dask has cut them (`gpusched.graph.passes.unsplitting`) need no more memory than their pieces
would, while they have no kernels.

Results have the same terms as those of whole chunks, which tiers may add in another order. Where
blocks are along an axis that is reduced, dask's own step joins what is left of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.functions.firststeps import after
from gpusched.graph.functions.known import exact_for, plain_for
from gpusched.graph.running import tiled
from gpusched.graph.running.layouts import in_c_order
from gpusched.graph.running.tiled import Stretch
from gpusched.plan.plan import Register
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep

DEPENDENT = GraphBreak.READ_WHOLE("calls that may compute an element from others along each axis")
COMPLEX = GraphBreak.DTYPE("complex numbers, of whose conversion NumPy would warn for each block")
HALVES = GraphBreak.DTYPE("sums of float16, each of which would be rounded")

WIDE = 8
"""Times as large as other blocks are those of windows. They are along other axes than the windows,
so that each is many short runs of memory: weighted sums of windows of a chunk of 3M elements took
1.6 times as long in blocks of `TILE`, and fit any memory as a whole."""

Steps = list[tuple[int, ProgramStep]]


def parts(steps: Steps, outputs: tuple[int, ...]) -> list[tuple[slice, Any]]:
    """Return the steps of a program as what can run on blocks or tiles, and what is between.

    Parameters
    ----------
    steps
        Calls, each with the register of its result.
    outputs
        Registers that are needed after the last one.
    """
    found: list[tuple[slice, Any]] = []
    for fits, numbers in groupby(range(len(steps)), lambda k: _is_part(steps[k][1])):
        start, *rest = numbers
        end = start + len(rest) + 1
        smaller = tiled.parts(steps, outputs, start, end)
        if fits and _gains([step for _, step in steps[start:end]]):
            found.append(
                (slice(start, end), Blocks(Stretch.of(steps, start, end, outputs), smaller))
            )
        else:
            found += smaller
    return found


def _is_part(step: ProgramStep) -> bool:
    """Return whether a call may be one of those that run on blocks."""
    windows = step.function is sliding_window_view
    return windows or _reduces(step) or tiled.is_elementwise(step)


def _reduces(step: ProgramStep) -> bool:
    """Return whether a call is the first step of one of dask's reductions, of one array."""
    options = step.kwargs
    axes = options.get("axis")
    if type(axes) is not tuple or options.get("keepdims") is not True:
        return False
    if not all(type(axis) is int and axis >= 0 for axis in axes):
        return False
    single = len(step.args) == 1 and type(step.args[0]) is Register
    return single and bool(after(plain_for(step.function), options))


def _gains(steps: list[ProgramStep]) -> bool:
    """Return whether something large is between a chunk and what reductions leave of it."""
    ends = [step for step in steps if _reduces(step)]
    return bool(ends) and (
        len(ends) < len(steps) or not all(has(plain_for(step.function), "lean") for step in ends)
    )


@dataclass
class Blocks:
    """Calls that follow each other, with reductions among them.

    Notes
    -----
    Thread-safe, as a `gpusched.graph.running.tiled.Stretch` is.
    """

    stretch: Stretch
    """The calls."""
    parts: list[tuple[slice, Any]]
    """What they are for arrays that are refused here, by `gpusched.graph.running.tiled.parts`."""

    @cached_property
    def has_windows(self) -> bool:
        """Whether windows are among what is between."""
        return any(step.function is sliding_window_view for _, step in self.stretch.steps)

    def run(self, registers: Any) -> bool:
        """Write the outputs to `registers`; return False, with nothing written, if it cannot.

        NumPy reports errors of whole arrays, but where there are windows: of each block then, as it
        does of dask's pieces, since whole arrays may not fit.
        """
        reason = self.stretch.refusal(registers, partial(self._results, self.stretch))
        if reason is tiled.REPORTED and self.has_windows:
            reason = self.run_aloud(registers)
        return tiled.counted(reason)

    def run_aloud(self, registers: Any, reported: bool = False) -> Reason | None:
        """Write the outputs to `registers`; return why that cannot be, with nothing written.

        Parameters
        ----------
        registers
            Of the program.
        reported
            Whether dask's own functions are called, as their errors are wanted.
        """
        stretch = self.stretch
        if reported:
            steps = [(k, replace(s, function=plain_for(s.function))) for k, s in stretch.steps]
            stretch = replace(stretch, steps=steps)
        return tiled.written(self._results(stretch, stretch.given(registers)), registers)

    def _results(self, stretch: Stretch, values: dict[int, Any]) -> tiled.Results:
        """Return the outputs, or why they cannot be put together of blocks."""
        windows = _windows(stretch)
        tile = tiled.TILE * (WIDE if windows > 1 else 1)
        shape = _shape(list(values.values()), windows, tile)
        if isinstance(shape, Reason):
            return shape
        division = _division(stretch, values, shape, math.prod(shape) * windows, tile)
        if division is None:
            return DEPENDENT
        dtypes = {value.dtype for value in values.values() if isinstance(value, np.ndarray)}
        if np.dtype(np.float16) in dtypes and division.ends:
            return HALVES
        if any(dtype.kind == "c" for dtype in dtypes) and not self.has_windows:
            return COMPLEX
        return _Run(stretch, division).results(not self.has_windows) or tiled.ORDER


def _shape(values: list[Any], windows: int, tile: int) -> tuple[int, ...] | Reason:
    """Return the shape of the largest operand that is in memory, or why no blocks are made.

    Of windows with so many elements they are made whatever the order in memory is: whole arrays of
    them may not fit.
    """
    if not all(map(tiled.is_plain, values)):
        return tiled.OTHERS
    # One number that is shown everywhere, as `zeros` of dask's is, may be as large as the windows.
    arrays = [value for value in values if isinstance(value, np.ndarray) and all(value.strides)]
    shape = max(arrays, key=lambda array: array.size).shape if arrays else ()
    if math.prod(shape) * windows < 4 * tile:
        return tiled.SMALL
    if windows == 1 and not all(in_c_order(array) for array in arrays if array.shape == shape):
        return tiled.ORDER
    return shape


class Divided(NamedTuple):
    """An array with a value, or a row of values, for each position of an axis."""

    ndim: int
    axis: int
    """Which of its axes that is."""


@dataclass(frozen=True)
class _Division:
    """How calls are divided."""

    values: Mapping[int, Any]
    """By register: what they are given, and what is computed of what is the same for all blocks."""
    length: int
    """Of the axis along which the blocks are."""
    rows: int
    """Of a block."""
    axes: Mapping[int, int]
    """By register of what has as many positions: which of its axes that is."""
    ends: frozenset[int]
    """Registers of what is left of a block along that axis."""


def _division(stretch: Stretch, values: Mapping[int, Any], shape: tuple[int, ...], size: int,
              tile: int) -> _Division | None:  # fmt: skip
    """Return how to divide calls; None if that cannot be done.

    Blocks are along the first axis of which they fit the cache, or else as small as they can be.

    Parameters
    ----------
    stretch, values
        The calls, and what they are given.
    shape
        Of the largest operand.
    size, tile
        Elements of the largest array that is computed, and how many of these fit the cache.
    """
    kept = any(tiled.is_elementwise(step) for k, step in stretch.steps if k in stretch.outputs)
    most = 4 * tile
    fits: list[tuple[int, int, int]] = []
    for axis, length in enumerate(shape[:1] if kept else shape):
        inner = size // length
        # Elementwise results have the bits of whole chunks then, as those of tiles do.
        least = tiled.ALIGNED // math.gcd(inner, tiled.ALIGNED) if kept else 1
        rows = max(least, tile // inner // least * least)
        if rows < length and (rows * inner <= most or not kept):
            fits.append((max(rows * inner, most), axis, rows))
    for _, axis, rows in sorted(fits):
        found = _along(stretch, values, shape, axis)
        if found is not None:
            known, divided, ends = found
            axes = {k: each.axis for k, each in divided.items()}
            return _Division(known, shape[axis], rows, axes, frozenset(ends))
    return None


def _windows(stretch: Stretch) -> int:
    """Return how many elements windows have; 1 if there are none."""
    steps = (step for _, step in stretch.steps if step.function is sliding_window_view)
    return math.prod(_window_of(step)[0] for step in steps)


def _window_of(step: ProgramStep) -> tuple[int, tuple[int, ...] | None]:
    """Return how many elements a window has, and along which axes it is, if that is known."""
    given = dict(zip(("x", "window_shape", "axis"), step.args, strict=False)) | step.kwargs
    shape, axes = given.get("window_shape"), given.get("axis")
    axes = axes if isinstance(axes, tuple) else (axes,)
    known = all(type(axis) is int and axis >= 0 for axis in axes)
    return int(np.prod(shape)) if isinstance(shape, int | tuple) else 1, axes if known else None


def _along(stretch: Stretch, values: Mapping[int, Any], shape: tuple[int, ...],
           axis: int) -> tuple[dict[int, Any], dict[int, Divided], set[int]] | None:  # fmt: skip
    """Return what is the same for all blocks, what they are of, and what is left of them.

    None if calls compute positions of the axis from others. All are by register.
    """
    known: Any = dict(values)
    found = {
        k: Divided(len(shape), axis)
        for k, value in values.items() if getattr(value, "shape", None) == shape
    }  # fmt: skip
    ends: set[int] = set()
    for register, step in stretch.steps:
        given = {found[k] for k in step.registers if k in found}
        if len(given) > 1 or not ends.isdisjoint(step.registers):
            return None
        if not given:
            known[register] = step.call(step.function, known)
            continue
        (one,) = given
        if _reduces(step):
            if one.axis in step.kwargs["axis"]:
                ends.add(register)
            else:
                found[register] = one
        elif step.function is sliding_window_view:
            axes = _window_of(step)[1]
            if axes is None or one.axis in axes or step.registers != {step.args[0].number}:
                return None
            found[register] = Divided(one.ndim + len(axes), one.axis)
        else:
            others = [k for k in step.registers if k not in found]
            kinds = [_is_divided(known[k], one, shape[axis]) for k in others]
            if None in kinds:
                return None
            found |= {k: one for k, divided in zip(others, kinds, strict=True) if divided}
            found[register] = one
    return known, found, ends


def _is_divided(value: Any, one: Divided, length: int) -> bool | None:
    """Return whether an operand of an elementwise call has a value for each position, too.

    None if that is not known: it has other positions, or none along as many axes.
    """
    place = one.axis - one.ndim + np.ndim(value)
    if place < 0 or value.shape[place] == 1:
        return False
    return True if value.shape[place] == length and value.ndim == one.ndim else None


class _Run:
    """One run of some calls on blocks."""

    def __init__(self, stretch: Stretch, division: _Division) -> None:
        self._stretch = stretch
        self._division = division
        self._spare: dict[Any, list[np.ndarray]] = {}
        """Arrays that nobody reads any more, by dtype and shape."""
        self._made: dict[int, Any] = {}
        """By register: dtype and shape of what a call has returned for the first block."""
        self._whole: dict[int, np.ndarray] = {}
        """Outputs that are arrays of all blocks."""
        self._parts: dict[int, list[Any]] = {}
        """What other outputs are of each block."""

    def results(self, in_order: bool) -> dict[int, Any] | None:
        """Return the outputs; None if they are to be in C order, and NumPy's would not be."""
        length, rows = self._division.length, self._division.rows
        for start in range(0, length, rows):
            where = slice(start, min(start + rows, length))
            made = self._block(where)
            for register in self._stretch.outputs:
                if in_order and not getattr(made[register], "flags", _ORDERED).c_contiguous:
                    return None
                self._keep(register, made[register], where)
        steps = dict(self._stretch.steps)
        joined = {k: self._joined(k, steps[k], each) for k, each in self._parts.items()}
        return {**self._whole, **joined}

    def _keep(self, register: int, value: Any, where: slice) -> None:
        axis = self._division.axes.get(register)
        if axis is None or not isinstance(value, np.ndarray):
            self._parts.setdefault(register, []).append(value)
            return
        if register not in self._whole:
            shape = (*value.shape[:axis], self._division.length, *value.shape[axis + 1 :])
            ordered = value.flags.c_contiguous
            self._whole[register] = (
                HOST.empty(shape, value.dtype) if ordered else np.empty_like(value, shape=shape)
            )
        self._whole[register][_at(axis, where)] = value

    def _block(self, where: slice) -> dict[int, Any]:
        """Return what the calls return for a block."""
        local: Any = {k: self._cut(k, value, where) for k, value in self._division.values.items()}
        owned: dict[int, np.ndarray] = {}
        stretch = self._stretch
        for (register, step), dying in zip(stretch.steps, stretch.last_uses, strict=True):
            if register not in local:
                local[register] = self._call(register, step, local, owned)
            for gone in dying:
                local.pop(gone)
                self._release(owned.pop(gone, None), local)
        return local

    def _cut(self, register: int, value: Any, where: slice) -> Any:
        axis = self._division.axes.get(register)
        return value if axis is None else value[_at(axis, where)]

    def _call(self, register: int, step: ProgramStep, local: Any,
              owned: dict[int, np.ndarray]) -> Any:  # fmt: skip
        """Call a function; to write into an array that nobody reads any more, if there is one."""
        made = self._made.get(register)
        into = None if made is None else tiled.into(step.function)
        if made is None or into is None or _broadcast(step, local) != made[1]:
            found = step.call(step.function, local)
            # In another order, what is made of it may be computed sooner.
            ordered = type(found) is np.ndarray and found.flags.c_contiguous
            if made is None and ordered and tiled.is_elementwise(step):
                self._made[register] = found.dtype, found.shape
            return found
        spare = self._spare.get(made)
        owned[register] = out = spare.pop() if spare else HOST.empty(made[1], made[0])
        return step.call(partial(into, out=out), local)

    def _release(self, buffer: np.ndarray | None, local: dict[int, Any]) -> None:
        """Keep an array for other results, unless something shows it."""
        if buffer is not None and not any(_shows(value, buffer) for value in local.values()):
            self._spare.setdefault((buffer.dtype, buffer.shape), []).append(buffer)

    def _joined(self, register: int, step: ProgramStep, results: list[Any]) -> Any:
        """Return an output of what it is of the blocks, in dask's form of a reduction's results."""
        axis = self._division.axes.get(register)
        if axis is not None:
            # Moments of what is finite have more parts than others: what all have is dask's form.
            names = [name for name in results[0] if all(name in each for each in results)]
            return {name: np.concatenate([each[name] for each in results], axis) for name in names}
        if register not in self._division.ends:
            return results[0]
        joins = after(plain_for(step.function), step.kwargs)[0]
        axes = step.kwargs["axis"]
        options = {k: step.kwargs[k] for k in _PASSED.get(joins.__name__, ()) if k in step.kwargs}
        given: Any = results
        if isinstance(results[0], dict):
            for _ in axes[1:]:
                given = [given]
        else:
            given = np.concatenate(results, axes[-1])
        return exact_for(joins)(given, axis=axes, keepdims=True, **options)


_ORDERED = np.empty(0).flags

_PASSED = {"sum": ("dtype",), "prod": ("dtype",), "moment_combine": ("order",)}
"""Options of a first step that the step after it has, too."""


def _at(axis: int, where: slice) -> tuple[slice, ...]:
    """Return the index of some positions along an axis."""
    return (*[slice(None)] * axis, where)


def _broadcast(step: ProgramStep, local: Mapping[int, Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(local[k]) for k in step.registers))


def _shows(value: Any, buffer: np.ndarray) -> bool:
    """Return whether a value is an array, or a view of it."""
    if isinstance(value, dict):
        return any(_shows(each, buffer) for each in value.values())
    while isinstance(value, np.ndarray):
        if value is buffer:
            return True
        value = value.base
    return False
