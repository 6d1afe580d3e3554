"""How calls are divided into blocks along an axis of which each position is computed alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask.array.reductions import moment_combine
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.functions.independence import (
    DependentError,
    Divided,
    is_common,
    operands_of,
    result,
)
from gpusched.graph.functions.known import plain_for
from gpusched.graph.functions.reductionsteps import after
from gpusched.graph.running.layouts import in_c_order
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

TILE = 1 << 21
"""Bytes of a block: some fit the last cache, and a call takes long beside what it takes to call it,
and to wait for the GIL, which each lets go of. On chunks of 16M float64 and two threads,
``clip(((a + b) * c - a) / 2, 0, 1)`` took 0.42 s in blocks of 256 KiB, 0.25 of 512 KiB, 0.19 of
1 MiB, 0.15 of 2 MiB, 0.26 of 8 MiB, and 0.36 whole; both cores had 512 KiB and shared 32 MiB. In
blocks of 1, 2 and 4 MiB, float32 took, by processor time: statistics along each axis 0.41, 0.24 and
0.24 s, softmax 0.10, 0.08 and 0.07, standardised columns 0.15, 0.11 and 0.11, clipping 0.21, 0.18
and 0.21, terrain 2.1, 1.8 and 2.1, Black-Scholes 0.79, 0.76 and 2.7."""
NARROWEST = 4
"""Bytes of an element for which blocks are made at least: what is computed of narrow ones is often
wider."""
LEAST = 4
"""Blocks that a chunk is divided into, at least, if its elements are of 8 bytes; a chunk of others
is divided if it has as many elements."""
WIDE = 4
"""Times as large as other blocks are those of windows. They are along other axes than the windows,
so that each is many short runs of memory: weighted sums of windows of a chunk of 3M elements took
1.6 times as long in blocks of 128K, and fit any memory as a whole."""
LEFT = 4
"""Rows of a block that is reduced along them, at least, for each reduction: of fewer, so much is
left to be joined that blocks along another axis are better, though they are shorter runs of memory.
Maxima of ``(a - b) / (a + b)`` take 0.53 of the processor time in blocks of 12 rows (144 x 144
float64) and of 6 rows, and means of what is not NaN 0.77 and 0.72; of 2 rows, 0.77 and 1.26."""
MOMENTS = 5
"""Times as many for moments, which take that much longer to join: in blocks of 24, 12 and 6 rows,
the variance of the same takes 0.90, 1.0 and 1.5 of the processor time (AMD EPYC)."""
MOST_LEFT = 16
"""Times as large as a block is all that is left of the blocks, at most: chunks that stay whole have
to fit in the memory of their pieces."""
RUN = 128
"""Elements that are next to each other in blocks, at least, where any axis has blocks of so many:
sums of 30 days of 1096 x 20 x 240 take 0.04 s along the second axis, and 0.44 along the third."""
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


def is_elementwise(step: ProgramStep) -> bool:
    """Return whether each element of a call's result depends on the operands at its place only."""
    operands = operands_of(step.function, step.args, step.kwargs)
    return operands is not None and all(type(k) is Register or is_common(k) for k in operands)


def reduces(step: ProgramStep) -> bool:
    """Return whether a call is the first step of one of dask's reductions, of one array."""
    options = step.kwargs
    axes = options.get("axis")
    if type(axes) is not tuple or options.get("keepdims") is not True:
        return False
    if not all(type(axis) is int and axis >= 0 for axis in axes):
        return False
    single = len(step.args) == 1 and type(step.args[0]) is Register
    return single and joining(step) is not None


def joining(step: ProgramStep) -> Any:
    """Return what joins results of a first step of a reduction; None if the call is none."""
    return next(iter(after(plain_for(step.function), step.kwargs)), None)


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

        Blocks are along the first axis of which they fit the cache and are no short runs of memory,
        or else as small as they can be. Of windows they are made whatever the order in memory is:
        whole arrays of them may not fit.

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
        # One number that is shown everywhere, as `zeros` of dask's is, may be as large as windows.
        arrays = [array for array in given if not _repeats(array)]
        shape = _shape(arrays)
        size = math.prod(shape) * windows
        nbytes = TILE * (WIDE if windows > 1 else 1)
        if size < LEAST * nbytes // 8:
            return SMALL
        itemsize = max([NARROWEST, *(array.dtype.itemsize for array in arrays)])
        tile = nbytes // itemsize
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
        fits: list[tuple[bool, int, int, int]] = []
        for axis in axes[:1] if kept else axes:
            inner = size // shape[axis]
            # Elementwise results have the bits of whole chunks then, and not one row, whose order
            # in memory does not show.
            least = max(2, ALIGNED // math.gcd(inner, ALIGNED)) if kept else 1
            rows = max(least, tile // inner // least * least)
            if rows < shape[axis] and (rows * inner <= most or not kept):
                short = rows * math.prod(shape[axis + 1 :]) < RUN
                fits.append((short, max(rows * inner, most), axis, rows))
        first: Division | None = None
        for short, _, axis, rows in sorted(fits):
            if first is not None and short:
                continue
            along = _Along.of(steps, values, shape, axis)
            if along is None:
                continue
            found = cls(along.known, shape[axis], rows, along.axes, frozenset(along.ends))
            ends = [step for register, step in steps if register in along.ends]
            weight = sum(MOMENTS if joining(step) is moment_combine else 1 for step in ends)
            if rows >= LEFT * weight and weight * size <= MOST_LEFT * tile * rows:
                return found
            first = first or found
        return first or (DEPENDENT if fits else ROWS)


def _is_plain(value: Any) -> bool:
    """Return whether an operand is an array of NumPy's with numbers in it, or a number."""
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype.kind in KINDS and value.dtype.isnative
    return isinstance(value, bool | int | float | complex | np.generic)


def _repeats(array: np.ndarray) -> bool:
    """Return whether an array shows the same elements at several places."""
    return any(
        length > 1 and not step for length, step in zip(array.shape, array.strides, strict=True)
    )


def _shape(arrays: list[np.ndarray]) -> tuple[int, ...]:
    """Return the shape of some arrays together, or that of the largest if they have none."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return max(arrays, key=lambda array: array.size).shape


def _window_size(steps: Steps) -> int:
    """Return how many elements windows have; 1 if there are none."""
    found = 1
    for _, step in steps:
        if makes_windows(step):
            given = dict(zip(("x", "window_shape"), step.args, strict=False)) | step.kwargs
            shape = given.get("window_shape")
            found *= int(np.prod(shape)) if isinstance(shape, int | tuple) else 1
    return found


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
        self._divided: dict[int, Divided] = {}
        """By register: what has a value, or a row of values, for each position."""
        self._whole: set[int] = set()
        """Registers of operands that each block has whole."""

    @classmethod
    def of(cls, steps: Steps, values: Mapping[int, Any], shape: tuple[int, ...],
           axis: int) -> _Along | None:  # fmt: skip
        """Return what calls compute along an axis of a shape; None if they are dependent."""
        found = cls(values, shape[axis])
        for register, value in values.items():
            if np.ndim(value) == len(shape) and value.shape[axis] == shape[axis]:
                found._divided[register] = Divided(len(shape), (axis,))
        try:
            for register, step in steps:
                found._add(register, step)
        except DependentError:
            return None
        return found

    @property
    def axes(self) -> dict[int, int]:
        """By register of what is divided, its axis."""
        return {register: each.axes[0] for register, each in self._divided.items()}

    def _add(self, register: int, step: ProgramStep) -> None:
        registers = step.registers
        if not self.ends.isdisjoint(registers):
            raise DependentError
        divided = [self._divided[k] for k in registers if k in self._divided]
        if not divided:
            self.known[register] = step.call(step.function, self.known)
        elif reduces(step) and divided[0].axes[0] in step.kwargs["axis"]:
            self.ends.add(register)
        else:
            if is_elementwise(step):
                for other in registers - self._divided.keys():
                    self._take(other, divided[0])
            values: Any = {k: self.known[k] for k in registers - self._divided.keys()}
            values |= {k: self._divided[k] for k in registers & self._divided.keys()}
            function = plain_for(step.function)
            self._divided[register] = step.call(
                lambda *args, **kwargs: result(function, args, kwargs), values
            )

    def _take(self, register: int, along: Divided) -> None:
        """Divide an operand that has a value for each position, too, or leave it whole."""
        value = self.known[register]
        ndim, place = np.ndim(value), along.axes[0] - along.ndim  # NumPy aligns the last axes.
        if ndim < -place or value.shape[place] == 1:
            self._whole.add(register)
        elif value.shape[place] == self._length and register not in self._whole:
            self._divided[register] = Divided(ndim, (ndim + place,))
        else:
            raise DependentError
