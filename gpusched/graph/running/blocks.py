"""Calls without kernels, on one block of their arrays after the other: sooner, in less memory.

On whole chunks, NumPy writes the result of each call to memory, mostly to pages that are new, and
reads it again for the next one. On blocks along an axis of which every call computes each position
alone, what is between the first operands and the last results stays in the cache, in buffers that
are used again. So chunks that stay whole though dask has cut them
(`gpusched.graph.passes.unsplitting`) need no more memory than their pieces would, while they have
no kernels; windows would be many times as large as the chunk.

Elementwise results have the same bits as those of whole chunks, because each is computed from the
same operands in the same vector. They depend on what is at their place, and, where NumPy's vector
functions treat all of a vector's elements otherwise for the sake of one, on their neighbours in it.
NumPy fills vectors from the beginning of its innermost loop on, and blocks begin at multiples of
`gpusched.graph.running.division.ALIGNED` elements of arrays in C order, so that each vector is
filled as before. `tests/graph/test_blocks.py` compares all functions that can be recorded.

Reductions have the same terms as those of whole chunks, which tiers may add in another order. Where
blocks are along an axis that is reduced, dask's own step joins what is left of each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
from dask.utils import methodcaller

from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import collecting, heeded
from gpusched.graph.functions.known import exact_for, plain_for
from gpusched.graph.running.division import (
    ORDER,
    Division,
    Steps,
    is_elementwise,
    joining,
    makes_windows,
    reduces,
)
from gpusched.plan.plan import last_uses
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import updating

REPORTED = GraphBreak.VALUES("calls without a kernel have raised errors")
EMPTY = GraphBreak.VALUES("blocks without numbers beside others of which the mean is not finite")
COMPLEX = GraphBreak.DTYPE("complex numbers, of whose conversion NumPy would warn for each block")


def parts(steps: Steps, outputs: tuple[int, ...]) -> list[tuple[slice, Blocks | None]]:
    """Return the steps of a program as what can run on blocks, and what is between.

    Parameters
    ----------
    steps
        Calls, each with the register of its result.
    outputs
        Registers that are needed after the last one.
    """
    found: list[tuple[slice, Blocks | None]] = []
    for where, fits in _groups(steps, slice(0, len(steps)), _is_part):
        smaller = [
            (part, Blocks.of(steps, part, outputs, []) if alone and _count(part) > 1 else None)
            for part, alone in _groups(steps, where, is_elementwise)
        ]
        if fits and _gains([step for _, step in steps[where]]):
            found.append((where, Blocks.of(steps, where, outputs, smaller)))
        else:
            found += smaller
    return found


def _groups(
    steps: Steps, where: slice, belongs: Callable[[ProgramStep], bool]
) -> Iterator[tuple[slice, bool]]:
    """Yield groups of steps that follow each other, with whether they belong to something."""
    for fits, numbers in groupby(range(where.start, where.stop), lambda k: belongs(steps[k][1])):
        start, *rest = numbers
        yield slice(start, start + len(rest) + 1), fits


def _count(where: slice) -> int:
    return int(where.stop - where.start)


def _is_part(step: ProgramStep) -> bool:
    """Return whether a call may be one of those that run on blocks."""
    return makes_windows(step) or reduces(step) or is_elementwise(step)


def _gains(steps: list[ProgramStep]) -> bool:
    """Return whether something large is between a chunk and what reductions leave of it."""
    ends = [step for step in steps if reduces(step)]
    return bool(ends) and (
        len(ends) < len(steps) or not all(has(plain_for(step.function), "lean") for step in ends)
    )


class _ReportedError(Exception):
    """An error that NumPy would report."""


def _stop(errors: int) -> None:
    raise _ReportedError(errors)


@dataclass
class Blocks:
    """Calls that follow each other: elementwise ones, windows, and first steps of reductions.

    Notes
    -----
    Thread-safe: `reported` may be set by any thread, and is never taken back; `results` is replaced
    whole.
    """

    steps: Steps
    """The calls."""
    last_uses: tuple[tuple[int, ...], ...]
    """By call, the registers that nobody reads later."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Registers of results that others need."""
    parts: list[tuple[slice, Any]]
    """Smaller ones of the same calls, for arrays that are refused here, if there are any."""
    reported: bool = False
    """Whether NumPy has had errors to report: it reports them for each call, not for each block."""
    results: tuple[Any, Mapping[int, Any]] = ((), {})
    """Of the run before: what it was given and how that was divided, and dtypes and shapes of its
    results, by register. NumPy's functions choose a dtype by those of their operands alone, so that
    the first block of the next chunk has memory that was used before, too."""

    @classmethod
    def of(cls, steps: Steps, where: slice, outputs: tuple[int, ...],
           smaller: list[tuple[slice, Any]]) -> Blocks:  # fmt: skip
        """Return some of a program's calls.

        Parameters
        ----------
        steps
            The program's.
        where
            Which of them.
        outputs
            Registers that are needed after the last one.
        smaller
            What else they can run as.
        """
        own = steps[where]
        made = {register for register, _ in own}
        later = set(outputs).union(*(step.registers for _, step in steps[where.stop :]))
        reads = [step.registers for _, step in own]
        given = set().union(*reads) - made
        return cls(
            own, last_uses(reads, later), tuple(sorted(given)), tuple(sorted(made & later)), smaller
        )

    @cached_property
    def has_windows(self) -> bool:
        """Whether windows are among what is between."""
        return any(makes_windows(step) for _, step in self.steps)

    def run(self, registers: Any) -> bool:
        """Write the outputs to `registers`; return False, with nothing written, if it cannot.

        NumPy reports errors of whole arrays, but where there are windows: of each block then, as it
        does of dask's pieces, since whole arrays may not fit.
        """
        reason = self._quietly(registers)
        if reason is REPORTED and self.has_windows:
            reason = self.run_aloud(registers)
        if reason is not None:
            with updating() as counters:
                counters.apart["tile", reason] += 1
        return reason is None

    def _quietly(self, registers: Any) -> Reason | None:
        """Do what `run` does, but nothing if there are errors: whole chunks raise them in order."""
        if self.reported:
            return REPORTED
        tried: dict[int, Any] = {}
        try:
            with collecting(heeded(), _stop):
                reason = self._run(self.steps, registers, tried)
        except Exception:  # noqa: BLE001
            self.reported = True
            return REPORTED
        for register, value in tried.items():
            registers[register] = value
        return reason

    def run_aloud(self, registers: Any, reported: bool = False) -> Reason | None:
        """Write the outputs to `registers`; return why that cannot be, with nothing written.

        Parameters
        ----------
        registers
            Of the program.
        reported
            Whether dask's own functions are called, as their errors are wanted.
        """
        steps = self.steps
        if reported:
            steps = [(k, replace(s, function=plain_for(s.function))) for k, s in steps]
        return self._run(steps, registers, registers)

    def _run(self, steps: Steps, registers: Any, found: Any) -> Reason | None:
        """Write the outputs to `found`; return why that cannot be."""
        given = {k: registers[k] for k in self.inputs}
        division = Division.of(steps, self.outputs, given)
        if isinstance(division, Reason):
            return division
        kinds = list(map(_kind, division.values.values())), division.axes, division.rows
        known, made = self.results
        run = _Run(steps, self, division, dict(made) if known == kinds else {})
        results = run.results()
        if isinstance(results, Reason):
            return results
        self.results = kinds, run.made
        for register, value in results.items():
            found[register] = value
        return None


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
    """Compute `numpy.where(condition, one, other)`.

    Without a branch for each element, which NumPy has, and which processors guess wrong where a
    condition has no order: the bits of ``other ^ (one ^ other) * condition`` are those of ``one``
    where the condition, an integer then, is 1, and of ``other`` where it is 0.
    """
    condition = np.asarray(condition, bool)
    one, other = (np.asarray(value).astype(out.dtype, copy=False) for value in (one, other))
    integers = _INTEGERS.get(out.dtype.itemsize)
    if integers is None:
        np.copyto(out, other)
        np.copyto(out, one, where=condition)
        return out
    bits = out.view(integers)
    np.bitwise_xor(one.view(integers), other.view(integers), out=bits)
    np.multiply(bits, condition.view(np.int8), out=bits)
    np.bitwise_xor(bits, other.view(integers), out=bits)
    return out


_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
"""By bytes of an element: integers of as many."""


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


def into(function: Any) -> Callable[..., Any] | None:
    """Return what computes the same as a function, and takes ``out``; None if nothing does."""
    return function if isinstance(function, np.ufunc) else _INTO.get(function)


def _kind(value: Any) -> Any:
    """Return what dtypes and shapes of results depend on."""
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


class _Run:
    """One run of some calls on blocks, and its results."""

    def __init__(
        self, steps: Steps, calls: Blocks, division: Division, made: dict[int, Any]
    ) -> None:
        self._steps = list(zip(steps, calls.last_uses, strict=True))
        self._calls = calls
        self._division = division
        self.made = made
        """By register: dtype and shape of what a call returns for all blocks but the last."""
        self._whole: dict[int, np.ndarray] = {}
        """Outputs that are arrays of all blocks."""
        self._parts: dict[int, list[Any]] = {}
        """What other outputs are of each block."""

    def results(self) -> dict[int, Any] | Reason:
        """Return the outputs by register, or why there are none.

        NumPy's may not be in C order, which functions may see, or be numbers of whose conversion it
        warns. Windows run on blocks all the same, as whole arrays of them may not fit.
        """
        length, rows = self._division.length, self._division.rows
        for start in range(0, length, rows):
            where = slice(start, min(start + rows, length))
            made = self._block(where)
            if made is None:
                return COMPLEX
            for register in self._calls.outputs:
                if not self._keep(register, made[register], where):
                    return ORDER
        if any(map(_are_lost, (self._parts.get(k, ()) for k in self._division.ends))):
            return EMPTY
        steps = {register: step for (register, step), _ in self._steps}
        joined = {k: self._joined(k, steps[k], each) for k, each in self._parts.items()}
        if (shape := self._division.shape) is not None:
            return {k: each.reshape(shape) for k, each in self._whole.items()} | joined
        return self._whole | joined

    def _keep(self, register: int, value: Any, where: slice) -> bool:
        """Keep what an output is of a block, unless it has been computed where it belongs."""
        axis = self._division.axes.get(register)
        if axis is None or not isinstance(value, np.ndarray):
            self._parts.setdefault(register, []).append(value)
            return getattr(value, "flags", _ORDERED).c_contiguous or self._calls.has_windows
        whole = self._whole.get(register)
        if whole is None:
            if value.flags.c_contiguous:
                whole = self._output(register, value.shape, value.dtype)
            elif self._calls.has_windows:
                shape = _with(value.shape, axis, self._division.length)
                whole = self._whole[register] = np.empty_like(value, shape=shape)
            else:
                return False
        there = whole[_at(axis, where)]
        if not _is_same(value, there):
            there[...] = value
        return True

    def _output(self, register: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return memory for an output of all blocks, by what it is of one."""
        if register not in self._whole:
            shape = _with(shape, self._division.axes[register], self._division.length)
            self._whole[register] = HOST.empty(shape, dtype)
        return self._whole[register]

    def _block(self, where: slice) -> dict[int, Any] | None:
        """Return what the calls return for a block; None if they may reduce complex numbers."""
        local: Any = {k: self._cut(k, value, where) for k, value in self._division.values.items()}
        for (register, step), dying in self._steps:
            if register not in local:
                if self._is_complex(step, local):
                    return None
                local[register] = self._call(register, step, local, where)
            for gone in dying:
                local.pop(gone)
        return local

    def _is_complex(self, step: ProgramStep, local: Any) -> bool:
        given = () if self._calls.has_windows or not reduces(step) else step.registers
        return any(np.iscomplexobj(local[k]) for k in given)

    def _cut(self, register: int, value: Any, where: slice) -> Any:
        axis = self._division.axes.get(register)
        return value if axis is None else value[_at(axis, where)]

    def _call(self, register: int, step: ProgramStep, local: Any, where: slice) -> Any:
        """Call a function; to write where its result belongs, or to memory that was used before."""
        write = into(step.function) if register in self.made else None
        if write is None:
            found = step.call(step.function, local)
            # In another order, what is made of it may be computed sooner.
            ordered = type(found) is np.ndarray and found.flags.c_contiguous
            if ordered and is_elementwise(step) and where.start == 0:
                self.made[register] = found.dtype, found.shape
            return found
        dtype, shape = self.made[register]
        axis = self._division.axes[register]
        if register in self._calls.outputs:
            out = self._output(register, shape, dtype)[_at(axis, where)]
        else:
            out = HOST.empty(_with(shape, axis, where.stop - where.start), dtype)
        return step.call(partial(write, out=out), local)

    def _joined(self, register: int, step: ProgramStep, results: list[Any]) -> Any:
        """Return an output of what it is of the blocks, in dask's form of a reduction's results."""
        axis = self._division.axes.get(register)
        if axis is not None:
            # Moments of what is finite have more parts than others: what all have is dask's form.
            names = [name for name in results[0] if all(name in each for each in results)]
            return {name: np.concatenate([each[name] for each in results], axis) for name in names}
        if register not in self._division.ends:
            return results[0]
        joins = joining(step)
        axes = step.kwargs["axis"]
        options = {k: step.kwargs[k] for k in _PASSED.get(joins.__name__, ()) if k in step.kwargs}
        given: Any = results
        if isinstance(results[0], dict):
            for _ in axes[1:]:
                given = [given]
        else:
            given = np.concatenate(results, axes[-1])
        return exact_for(joins)(given, axis=axes, keepdims=True, **options)


def _are_lost(results: Sequence[Any]) -> bool:
    """Return whether dask's step would not join moments: without means, it divides zero by zero."""
    found = [each for each in results if isinstance(each, dict) and "M" in each]
    means = all("mean" in each for each in found)
    return not means and any((each["n"] == 0).any() for each in found)


_ORDERED = np.empty(0).flags

_PASSED = {"sum": ("dtype",), "prod": ("dtype",), "moment_combine": ("order",)}
"""Options of a first step that the step after it has, too."""


def _with(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    """Return a shape with another length of an axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])


def _at(axis: int, where: slice) -> tuple[slice, ...]:
    """Return the index of some positions along an axis."""
    return (*[slice(None)] * axis, where)


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays of one shape are the same elements in memory."""
    return (
        one.ctypes.data == other.ctypes.data
        and one.strides == other.strides
        and one.dtype == other.dtype
    )
