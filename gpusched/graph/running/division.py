"""How calls are divided into blocks along an axis of which each position is computed alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.functions.firststeps import after
from gpusched.graph.functions.known import is_elementwise_call, plain_for
from gpusched.graph.running.layouts import in_c_order
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

TILE = 1 << 17
"""Elements of a block: some of float64 fit the last cache, and a call takes long beside what it
takes to wait for the GIL, which each call lets go of. On chunks of 16M elements and two threads,
``clip(((a + b) * c - a) / 2, 0, 1)`` took 0.42 s in blocks of 32K elements, 0.25 of 64K, 0.19 of
128K, 0.15 of 256K, 0.26 of 1M, and 0.36 whole; both cores have 512 KiB and share 32 MiB."""
WIDE = 8
"""Times as large as other blocks are those of windows. They are along other axes than the windows,
so that each is many short runs of memory: weighted sums of windows of a chunk of 3M elements took
1.6 times as long in blocks of `TILE`, and fit any memory as a whole."""
ALIGNED = 64
"""Elements of a multiple of every vector that NumPy's functions compute on."""
KINDS = "biufc"
"""Kinds of dtypes."""

OTHERS = GraphBreak.CHUNK_TYPE("operands are not NumPy's numbers and arrays of numbers")
SMALL = GraphBreak.SMALL("chunks of few tiles")
ORDER = GraphBreak.STRIDES("chunks that are not in C order")
ROWS = GraphBreak.NO_GAIN("rows too large for the cache, or too few")
DEPENDENT = GraphBreak.READ_WHOLE("calls that may compute an element from others along each axis")
WINDOWS = GraphBreak.KEPT("windows that others need, which are a view of the chunk")
HALVES = GraphBreak.DTYPE("sums of float16, each of which would be rounded")

Steps = list[tuple[int, ProgramStep]]
"""Calls, each with the register of its result."""
_SIMPLE = (bool, int, float, complex, np.generic, np.dtype, type(None))


def is_elementwise(step: ProgramStep) -> bool:
    """Return whether each element of a call's result depends on the operands at its place only."""
    options = {"min", "max", "a_min", "a_max"} if step.function is np.clip else set()
    known = is_elementwise_call(step.function, len(step.args)) and step.kwargs.keys() <= options
    return known and all(map(_is_operand, (*step.args, *step.kwargs.values())))


def _is_operand(argument: Any) -> bool:
    """Return whether an argument is an array of the program, a number, a dtype or a function."""
    return type(argument) is Register or isinstance(argument, _SIMPLE) or callable(argument)


def reduces(step: ProgramStep) -> bool:
    """Return whether a call is the first step of one of dask's reductions, of one array."""
    options = step.kwargs
    axes = options.get("axis")
    if type(axes) is not tuple or options.get("keepdims") is not True:
        return False
    if not all(type(axis) is int and axis >= 0 for axis in axes):
        return False
    single = len(step.args) == 1 and type(step.args[0]) is Register
    return single and bool(after(plain_for(step.function), options))


def makes_windows(step: ProgramStep) -> bool:
    """Return whether a call makes sliding windows."""
    return step.function is sliding_window_view


@dataclass(frozen=True)
class Division:
    """How calls are divided."""

    values: Mapping[int, Any]
    """By register: what they are given, and what is computed of what is the same for all blocks."""
    length: int
    """Of the axis along which the blocks are."""
    rows: int
    """Positions of a block."""
    axes: Mapping[int, int]
    """By register of what has as many positions: which of its axes that is."""
    ends: frozenset[int]
    """Registers of what is left of a block along that axis."""
    shape: tuple[int, ...] | None = None
    """Of all arrays together, if all axes are divided as one."""

    @classmethod
    def of(
        cls, steps: Steps, outputs: Sequence[int], values: Mapping[int, Any]
    ) -> Division | Reason:
        """Return how to divide calls, or why that cannot be done or is not worth it.

        Blocks are along the first axis of which they fit the cache, or else as small as they can
        be. Of windows they are made whatever the order in memory is: whole arrays of them may not
        fit.

        Parameters
        ----------
        steps
            The calls.
        outputs
            Registers of results that others need.
        values
            What the calls are given, by register.
        """
        if not all(map(_is_plain, values.values())):
            return OTHERS
        if any(makes_windows(step) and register in outputs for register, step in steps):
            return WINDOWS
        ends = any(reduces(step) for _, step in steps)
        windows = _window_size(steps)
        given = [value for value in values.values() if np.ndim(value)]
        tile = TILE * (WIDE if windows > 1 else 1)
        # One number that is shown everywhere, as `zeros` of dask's is, may be as large as windows.
        arrays = [array for array in given if all(array.strides)]
        shape = _shape(arrays)
        size = math.prod(shape) * windows
        if size < 4 * tile:
            return SMALL
        whole = [array for array in arrays if array.shape == shape]
        if windows == 1 and not all(map(in_c_order, whole)):
            return ORDER
        alike = len(whole) == len(given) and all(array.flags.c_contiguous for array in whole)
        if alike and not ends and windows == 1:
            return cls._flat(steps, values, shape, tile)
        found = cls._along_one(steps, outputs, values, shape, size, tile)
        dtypes = {value.dtype for value in given}
        halves = isinstance(found, Division) and found.ends and np.dtype(np.float16) in dtypes
        return HALVES if halves else found

    @classmethod
    def _flat(cls, steps: Steps, values: Mapping[int, Any], shape: tuple[int, ...],
              tile: int) -> Division | Reason:  # fmt: skip
        """Return elementwise calls on arrays of one shape divided as if they had one axis."""
        size = math.prod(shape)
        flat = {k: v.reshape(-1) if np.ndim(v) else v for k, v in values.items()}
        found = _Along.of(steps, flat, (size,), 0)
        return (
            DEPENDENT
            if found is None
            else cls(found.known, size, tile, found.axes, frozenset(), shape)
        )

    @classmethod
    def _along_one(cls, steps: Steps, outputs: Sequence[int], values: Mapping[int, Any],
                   shape: tuple[int, ...], size: int, tile: int) -> Division | Reason:  # fmt: skip
        """Return calls divided along one axis of the shape of the largest operand."""
        kept = any(is_elementwise(step) for k, step in steps if k in outputs)
        most = 4 * tile
        axes = [axis for axis, length in enumerate(shape) if length > 1]
        fits: list[tuple[int, int, int]] = []
        for axis in axes[:1] if kept else axes:
            inner = size // shape[axis]
            # Elementwise results have the bits of whole chunks then, and not one row, whose order
            # in memory does not show.
            least = max(2, ALIGNED // math.gcd(inner, ALIGNED)) if kept else 1
            rows = max(least, tile // inner // least * least)
            if rows < shape[axis] and (rows * inner <= most or not kept):
                fits.append((max(rows * inner, most), axis, rows))
        for _, axis, rows in sorted(fits):
            found = _Along.of(steps, values, shape, axis)
            if found is not None:
                return cls(found.known, shape[axis], rows, found.axes, frozenset(found.ends))
        return DEPENDENT if fits else ROWS


def _is_plain(value: Any) -> bool:
    """Return whether an operand is an array of NumPy's with numbers in it, or a number."""
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype.kind in KINDS and value.dtype.isnative
    return isinstance(value, bool | int | float | complex | np.generic)


def _shape(arrays: list[np.ndarray]) -> tuple[int, ...]:
    """Return the shape of some arrays together, or that of the largest if they have none."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return max(arrays, key=lambda array: array.size).shape


def _window_size(steps: Steps) -> int:
    """Return how many elements windows have; 1 if there are none."""
    return math.prod(_window_of(step)[0] for _, step in steps if makes_windows(step))


def _window_of(step: ProgramStep) -> tuple[int, tuple[int, ...] | None]:
    """Return how many elements a window has, and along which axes it is, if that is known."""
    given = dict(zip(("x", "window_shape", "axis"), step.args, strict=False)) | step.kwargs
    shape, axes = given.get("window_shape"), given.get("axis")
    axes = axes if isinstance(axes, tuple) else (axes,)
    known = all(type(axis) is int and axis >= 0 for axis in axes)
    return int(np.prod(shape)) if isinstance(shape, int | tuple) else 1, axes if known else None


class _Divided(NamedTuple):
    """An array with a value, or a row of values, for each position of the axis of the blocks."""

    ndim: int
    axis: int
    """Which of its axes that is."""


class _DependentError(Exception):
    """A call that computes positions from others, or is not known not to."""


class _Along:
    """Calls of which all compute each position of an axis alone.

    Parameters
    ----------
    values
        What they are given, by register.
    length
        Of the axis.
    """

    def __init__(self, values: Mapping[int, Any], length: int) -> None:
        self.known: Any = dict(values)
        """By register, what they are given, and what they compute of what all blocks have."""
        self.ends: set[int] = set()
        """Registers of what is left of a block along the axis."""
        self._length = length
        self._divided: dict[int, _Divided] = {}
        self._whole: set[int] = set()
        """Registers of operands that each block has whole."""

    @classmethod
    def of(cls, steps: Steps, values: Mapping[int, Any], shape: tuple[int, ...],
           axis: int) -> _Along | None:  # fmt: skip
        """Return what calls compute along an axis of a shape; None if they are dependent."""
        found = cls(values, shape[axis])
        for register, value in values.items():
            if np.ndim(value) == len(shape) and value.shape[axis] == shape[axis]:
                found._divided[register] = _Divided(len(shape), axis)
        try:
            for register, step in steps:
                found._add(register, step)
        except _DependentError:
            return None
        return found

    @property
    def axes(self) -> dict[int, int]:
        """By register of what is divided, its axis."""
        return {register: each.axis for register, each in self._divided.items()}

    def _add(self, register: int, step: ProgramStep) -> None:
        if not self.ends.isdisjoint(step.registers):
            raise _DependentError
        if self._divided.keys().isdisjoint(step.registers):
            self.known[register] = step.call(step.function, self.known)
        elif is_elementwise(step):
            self._divided[register] = self._elementwise(step)
        elif makes_windows(step):
            self._divided[register] = self._windows(step)
        else:
            (one,) = (self._divided[k] for k in step.registers)
            if one.axis in step.kwargs["axis"]:
                self.ends.add(register)
            else:
                self._divided[register] = one

    def _windows(self, step: ProgramStep) -> _Divided:
        axes = _window_of(step)[1]
        (one,) = (self._divided[k] for k in step.registers if k in self._divided)
        if axes is None or one.axis in axes or step.registers != {step.args[0].number}:
            raise _DependentError
        return _Divided(one.ndim + len(axes), one.axis)

    def _elementwise(self, step: ProgramStep) -> _Divided:
        """Return what an elementwise call returns: NumPy counts axes from the last one."""
        places = {self._divided[k] for k in step.registers if k in self._divided}
        place, *others = {each.axis - each.ndim for each in places}
        if others:
            raise _DependentError
        for register in step.registers - self._divided.keys():
            self._take(register, place)
        shapes = [
            self._divided[k].ndim if k in self._divided else np.ndim(self.known[k])
            for k in step.registers
        ]
        return _Divided(max(shapes), max(shapes) + place)

    def _take(self, register: int, place: int) -> None:
        """Divide an operand that has a value for each position, too, or leave it whole."""
        value = self.known[register]
        ndim = np.ndim(value)
        if ndim < -place or value.shape[place] == 1:
            self._whole.add(register)
        elif value.shape[place] == self._length and register not in self._whole:
            self._divided[register] = _Divided(ndim, ndim + place)
        else:
            raise _DependentError
