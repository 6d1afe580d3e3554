"""Consecutive elementwise calls on one tile of their arrays after the other: the same bits, sooner.

On whole chunks, NumPy writes the result of each call to memory, mostly to pages that are new, and
reads it again for the next one. On tiles, what is between the first operands and the last results
stays in the cache, in buffers that are used again.

The bits are the same because each result is computed from the same operands in the same vector.
Elementwise results depend on what is at their place, and, where NumPy's vector functions treat all
of a vector's elements otherwise for the sake of one, on their neighbours in it. NumPy fills vectors
from the beginning of its innermost loop on, and tiles begin at multiples of `ALIGNED` elements of
arrays in C order, so that each vector is filled as before. `tests/graph/test_tiled.py` compares all
functions that can be recorded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from dask.utils import methodcaller

from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import collecting, heeded
from gpusched.graph.functions.known import is_elementwise_call, plain_for
from gpusched.graph.running.layouts import in_c_order
from gpusched.plan.plan import Register, Registers, last_uses
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import updating

TILE = 1 << 17
"""Elements of a tile: some of float64 fit the last cache, and a call takes long beside what it
takes to wait for the GIL, which each call lets go of. On chunks of 16M elements and two threads,
``clip(((a + b) * c - a) / 2, 0, 1)`` took 0.42 s in tiles of 32K elements, 0.25 of 64K, 0.19 of
128K, 0.15 of 256K, 0.26 of 1M, and 0.36 whole; both cores have 512 KiB and share 32 MiB."""
ALIGNED = 64
"""Elements of a multiple of every vector that NumPy's functions compute on."""
KINDS = "biufc"
"""Kinds of dtypes."""

REPORTED = GraphBreak.VALUES("calls without a kernel have raised errors")
OTHERS = GraphBreak.CHUNK_TYPE("operands or results are not NumPy's numbers and arrays of numbers")
UNRELATED = GraphBreak.READ_WHOLE("calls on arrays of several shapes")
SMALL = GraphBreak.SMALL("chunks of few tiles")
ORDER = GraphBreak.STRIDES("chunks that are not in C order")
ROWS = GraphBreak.NO_GAIN("rows too large for the cache, or too few")


def _power(base: Any, exponent: Any, out: np.ndarray) -> np.ndarray:
    """Compute `base ** exponent`, which has functions of its own for some numbers."""
    if isinstance(exponent, np.ndarray) and exponent.ndim:
        return np.power(base, exponent, out=out)
    if base.dtype != out.dtype:
        out[...] = base**exponent
        return out
    np.copyto(out, base)
    out **= exponent
    return out


def _where(condition: Any, one: Any, other: Any, out: np.ndarray) -> np.ndarray:
    """Compute `numpy.where(condition, one, other)`."""
    np.copyto(out, other, casting="unsafe")
    np.copyto(out, one, casting="unsafe", where=np.asarray(condition, bool))
    return out


def _astype(x: Any, dtype: Any, out: np.ndarray) -> Any:
    """Compute `x.astype(dtype)`."""
    np.copyto(out, x, casting="unsafe")
    return out


_INTO: dict[Any, Callable[..., Any]] = {
    operator.abs: np.absolute, operator.add: np.add, operator.and_: np.bitwise_and,
    operator.eq: np.equal, operator.floordiv: np.floor_divide, operator.ge: np.greater_equal,
    operator.gt: np.greater, operator.inv: np.invert, operator.invert: np.invert,
    operator.le: np.less_equal, operator.lshift: np.left_shift, operator.lt: np.less,
    operator.mod: np.remainder, operator.mul: np.multiply, operator.ne: np.not_equal,
    operator.neg: np.negative, operator.or_: np.bitwise_or, operator.pos: np.positive,
    operator.pow: _power, operator.rshift: np.right_shift, operator.sub: np.subtract,
    operator.truediv: np.true_divide, operator.xor: np.bitwise_xor, np.clip: np.clip,
    np.where: _where, methodcaller("astype"): _astype,
}  # fmt: skip
"""What computes the same as a function, and takes ``out``. All do: on workers of dask's, whose C
library gives what is freed back at once, new memory for each tile would take longer than the rest.
"""
Results = dict[int, Any] | Reason
"""What calls have computed, by register, or why that cannot be put together."""

_SIMPLE = (bool, int, float, complex, np.generic, np.dtype, type(None))


def call_each(
    steps: list[tuple[int, ProgramStep]],
    last_uses: tuple[tuple[int, ...], ...],
    registers: Registers,
    reported: bool = False,
) -> None:
    """Call functions as they are; those of dask's own where NumPy is to report their errors."""
    for (register, step), dying in zip(steps, last_uses, strict=True):
        function = plain_for(step.function) if reported else step.function
        registers[register] = step.call(function, registers)
        for each in dying:
            registers[each] = None


@dataclass(frozen=True)
class Tiled:
    """A segment's steps in the order in which they run without kernels."""

    steps: list[tuple[int, ProgramStep]]
    last_uses: tuple[tuple[int, ...], ...]
    """By step, the registers that nobody reads after it."""
    parts: list[tuple[slice, Any]]
    """Stretches of them that can run on one tile after the other, and None for what is between;
    `gpusched.graph.running.blocks.Blocks` have parts of their own, for arrays that they refuse."""
    more: int = 0
    """Registers that they need besides the program's."""
    inlined: bool = False
    """Whether functions are what they call."""

    def run(self, registers: Registers) -> bool:
        """Call the functions; return False, in the middle, where what one calls has no tiles."""
        waiting = self.parts[::-1]
        while waiting:
            where, part = waiting.pop()
            steps, ends = self.steps[where], self.last_uses[where]
            if part is not None and part.run(registers):
                for gone in chain.from_iterable(ends):
                    registers[gone] = None
            elif part is not None and type(part) is not Stretch:
                waiting += part.parts[::-1]
            elif part is not None and self.inlined:
                return False
            else:
                call_each(steps, ends, registers)
        return True


def arranged(steps: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return the steps of a program in an order in which fewer views part elementwise calls.

    A view moves before the elementwise calls that precede it, if it reads none of their results: it
    computes nothing. A stencil of slices takes 51 ms so, rather than 88. Other calls stay where
    they are, as they may change what a view copies (`ravel` and `reshape` do with some layouts).

    Parameters
    ----------
    steps
        Calls, each with the register of its result, after what they read.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.steps import ProgramStep
    >>> from gpusched.graph.running.tiled import arranged
    >>> from gpusched.plan.plan import Register
    >>> steps = [
    ...     (3, ProgramStep(np.subtract, (Register(0), Register(1)))),
    ...     (4, ProgramStep(np.flip, (Register(2),))),
    ...     (5, ProgramStep(np.divide, (Register(3), Register(4)))),
    ... ]
    >>> [register for register, _ in arranged(steps)]
    [4, 3, 5]
    """
    done: list[tuple[int, Any]] = []
    run: list[tuple[int, Any]] = []
    for register, step in steps:
        if has(step.function, "view") and not _reads(step, run):
            done.append((register, step))
        elif is_elementwise(step):
            run.append((register, step))
        else:
            done += [*run, (register, step)]
            run = []
    return done + run


def _reads(step: Any, others: list[tuple[int, Any]]) -> bool:
    """Return whether a step reads a result of some others."""
    return not step.registers.isdisjoint({register for register, _ in others})


def parts(
    steps: list[tuple[int, ProgramStep]],
    outputs: tuple[int, ...],
    start: int = 0,
    end: int | None = None,
) -> list[tuple[slice, Any]]:
    """Return the steps of a program as stretches of elementwise calls, and what is between them.

    Parameters
    ----------
    steps
        Calls, each with the register of its result.
    outputs
        Registers that are needed after the last one.
    start, end
        Which of the steps; by default all.
    """
    end = len(steps) if end is None else end
    found: list[tuple[slice, Any]] = []
    for stop in range(start + 1, end + 1):
        fits = is_elementwise(steps[start][1])
        if stop < end and is_elementwise(steps[stop][1]) == fits:
            continue
        stretch = Stretch.of(steps, start, stop, outputs) if fits and stop - start > 1 else None
        found.append((slice(start, stop), stretch))
        start = stop
    return found


def is_elementwise(step: ProgramStep) -> bool:
    """Return whether each element of a call's result depends on the operands at its place only."""
    options = {"min", "max", "a_min", "a_max"} if step.function is np.clip else set()
    known = is_elementwise_call(step.function, len(step.args)) and step.kwargs.keys() <= options
    return known and all(map(_is_operand, (*step.args, *step.kwargs.values())))


def _is_operand(argument: Any) -> bool:
    """Return whether an argument is an array of the program, a number, a dtype or a function."""
    return type(argument) is Register or isinstance(argument, _SIMPLE) or callable(argument)


@dataclass
class Stretch:
    """Elementwise calls that follow each other.

    Notes
    -----
    Thread-safe: `reported` may be set by any thread, and is never taken back.
    """

    steps: list[tuple[int, ProgramStep]]
    last_uses: tuple[tuple[int, ...], ...]
    """By step, the registers that nobody reads later."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Registers of results that others need."""
    reported: bool = False
    """Whether NumPy has had errors to report, which it does for each call and not for each tile."""

    @classmethod
    def of(
        cls, steps: list[tuple[int, Any]], start: int, stop: int, outputs: tuple[int, ...]
    ) -> Stretch:
        """Return some of a program's steps as a stretch."""
        own = steps[start:stop]
        written = {register for register, _ in own}
        later = set(outputs).union(*(step.registers for _, step in steps[stop:]))
        reads = [step.registers for _, step in own]
        return cls(
            own,
            last_uses(reads, later),
            tuple(sorted(set().union(*reads) - written)),
            tuple(sorted(written & later)),
        )

    def run(self, registers: Any) -> bool:
        """Write the outputs to `registers`; return False, with nothing written, if it cannot."""
        return counted(self.refusal(registers, self._results))

    def refusal(self, registers: Any,
                results: Callable[[dict[int, Any]], Results]) -> Reason | None:  # fmt: skip
        """Write results to `registers`; return why that cannot be, with nothing written.

        Parameters
        ----------
        registers
            Of the program.
        results
            Computes the outputs of the inputs. Whatever it raises, whole chunks raise after the
            errors of earlier calls.
        """
        if self.reported:
            return REPORTED
        errors: list[Any] = []
        try:
            with collecting(heeded(), errors.append):
                found = results(self.given(registers))
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        if errors:
            self.reported = True
            return REPORTED
        return written(found, registers)

    def given(self, registers: Any) -> dict[int, Any]:
        """Return the inputs, by register."""
        return {k: registers[k] for k in self.inputs}

    def _results(self, values: dict[int, Any]) -> Results:
        """Return the outputs, or why they cannot be put together of tiles."""
        tiling = Tiling.of(list(values.values()))
        if isinstance(tiling, Reason):
            return tiling
        run = _Run(self, tiling)
        for where in tiling.tiles():
            if not run.fill(tiling.cut(values, where), where):
                return OTHERS if run.ordered else ORDER
        return run.results or OTHERS


def written(found: Results, registers: Any) -> Reason | None:
    """Write outputs to `registers`; return why there are none, if so."""
    if isinstance(found, Reason):
        return found
    for register, value in found.items():
        registers[register] = value
    return None


def counted(reason: Reason | None) -> bool:
    """Return whether nothing was refused; count why if something was."""
    if reason is not None:
        with updating() as counters:
            counters.apart["tile", reason] += 1
    return reason is None


def into(function: Any) -> Callable[..., Any] | None:
    """Return what computes the same as a function, and takes ``out``; None if nothing does."""
    return function if isinstance(function, np.ufunc) else _INTO.get(function)


@dataclass(frozen=True)
class Tiling:
    """How arrays are divided along their first axis, all axes being one where that is possible."""

    result: tuple[int, ...]
    """Shape of all arrays together."""
    shape: tuple[int, ...]
    """The same as it is divided."""
    rows: int
    """Of a tile."""

    @classmethod
    def of(cls, values: list[Any]) -> Tiling | Reason:
        """Return how to divide some values, or why that cannot be done or is not worth it."""
        if not all(map(is_plain, values)):
            return OTHERS
        arrays = [value for value in values if isinstance(value, np.ndarray) and value.ndim]
        try:
            shape = np.broadcast_shapes(*(array.shape for array in arrays))
        except ValueError:
            return UNRELATED
        size = math.prod(shape)
        full = [array for array in arrays if array.shape == shape]
        if size < 4 * TILE:
            return SMALL
        whole = all(array.flags.c_contiguous for array in full)
        if not (whole or all(map(in_c_order, full))):
            return ORDER
        if whole and len(full) == len(arrays):
            return cls(shape, (size,), TILE)
        inner = size // shape[0]
        # Not one row, which an operand that is broadcast has too.
        least = max(2, ALIGNED // math.gcd(inner, ALIGNED))
        rows = max(least, TILE // inner // least * least)
        fits = 2 * rows <= shape[0] and rows * inner <= 4 * TILE
        return cls(shape, shape, rows) if fits else ROWS

    def tiles(self) -> Iterator[slice]:
        """Yield the rows of each tile; the first is a whole one."""
        for start in range(0, self.shape[0], self.rows):
            yield slice(start, min(start + self.rows, self.shape[0]))

    def cut(self, values: dict[int, Any], where: slice) -> dict[int, Any]:
        """Return the rows of a tile of each array that has them, and the others whole."""
        return {k: self._cut(value, where) for k, value in values.items()}

    def _cut(self, value: Any, where: slice) -> Any:
        if not isinstance(value, np.ndarray) or not value.ndim:
            return value
        if value.shape == self.result:
            return value.reshape(self.shape)[where]
        divided = value.ndim == len(self.shape) and value.shape[0] == self.shape[0]
        return value[where] if divided else value


def is_plain(value: Any) -> bool:
    """Return whether an operand is an array of NumPy's with numbers in it, or a number."""
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype.kind in KINDS and value.dtype.isnative
    return isinstance(value, bool | int | float | complex | np.generic)


class _Run:
    """One run of a stretch: its results, and the buffers of what is between.

    Parameters
    ----------
    stretch
        What is run.
    tiling
        On which tiles.
    """

    def __init__(self, stretch: Stretch, tiling: Tiling) -> None:
        self.results: dict[int, Any] = {}
        self._stretch = stretch
        self._tiling = tiling
        self._filled: dict[int, np.ndarray] = {}
        self._dtypes: dict[int, np.dtype] = {}
        """Of what has the shape of a tile, once the first tile is done."""
        self._spare: dict[np.dtype, list[np.ndarray]] = {}
        """Arrays of a whole tile that nobody reads any more."""
        self.ordered = True
        """Whether NumPy's results have been in C order so far."""

    def fill(self, local: dict[int, Any], where: slice) -> bool:
        """Compute the rows of a tile; return False if a result cannot be put together of tiles."""
        owned: dict[int, np.ndarray] = {}
        stretch = self._stretch
        for (register, step), dying in zip(stretch.steps, stretch.last_uses, strict=True):
            local[register] = self._computed(register, step, local, where, owned)
            for gone in dying:
                self._release(local.pop(gone), owned.pop(gone, None), local, owned)
        kept = all(self._kept(k, local[k], where) for k in self._stretch.outputs)
        return self.ordered and kept

    def _release(self, value: Any, buffer: np.ndarray | None, local: dict[int, Any],
                 owned: dict[int, np.ndarray]) -> None:  # fmt: skip
        if buffer is None:
            return
        # `enforced` returns what it is given, where that has the right dtype.
        heir = next((k for k, other in local.items() if other is value), None)
        if heir is None:
            self._spare.setdefault(buffer.dtype, []).append(buffer)
        else:
            owned[heir] = buffer

    def _computed(self, register: int, step: ProgramStep, local: Any, where: slice,
                  owned: dict[int, np.ndarray]) -> Any:  # fmt: skip
        dtype = self._dtypes.get(register)
        call = None if dtype is None else into(step.function)
        if call is None or dtype is None:
            found = step.call(step.function, local)
            self._learn(register, found, where)
            return found
        whole = self._filled.get(register)
        if whole is None:
            out = owned[register] = self._buffer(dtype)
            out = out[: where.stop - where.start]
        else:
            out = whole[where]
        return step.call(partial(call, out=out), local)

    def _learn(self, register: int, found: Any, where: slice) -> None:
        if isinstance(found, np.ndarray) and found.shape == self._shape(where.stop - where.start):
            self._dtypes[register] = found.dtype
            # Operands that are broadcast may be in another order, and results of them alone are.
            self.ordered &= found.flags.c_contiguous

    def _shape(self, rows: int) -> tuple[int, ...]:
        return rows, *self._tiling.shape[1:]

    def _buffer(self, dtype: np.dtype) -> np.ndarray:
        spare = self._spare.get(dtype)
        return spare.pop() if spare else HOST.empty(self._shape(self._tiling.rows), dtype)

    def _kept(self, register: int, value: Any, where: slice) -> bool:
        """Put a tile of an output where it belongs, unless it has been computed there."""
        dtype = self._dtypes.get(register)
        if dtype is None or dtype.kind not in KINDS:
            return False
        if register not in self._filled:
            self.results[register] = HOST.empty(self._tiling.result, dtype)
            self._filled[register] = self.results[register].reshape(self._tiling.shape)
        there = self._filled[register][where]
        if value.base is not there.base:
            there[...] = value
        return True
