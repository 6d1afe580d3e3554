"""Arguments for a kernel, made up: ordinary numbers and special ones, moved through in each way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gpusched.backends.python import uninitialised
from gpusched.emit import generate
from gpusched.emit.kernel import STILL, Access, Input, Kernel, Output
from gpusched.emit.operations import SEARCHED

INNERMOST = 1031
"""Iterations of the innermost loop; no multiple of any vector."""
OUTER = 3
"""Iterations of each other loop."""


@dataclass(frozen=True)
class Operand:
    """An array as a kernel sees it."""

    buffer: np.ndarray
    """One-dimensional memory."""
    first: int
    """Where in it the first element is."""
    steps: tuple[int, ...]
    """Elements to move per iteration of each loop."""
    sizes: tuple[int, ...]

    @property
    def window(self) -> np.ndarray:
        """What the kernel is given."""
        return self.buffer[self.first :]

    @property
    def values(self) -> np.ndarray:
        """The elements by iteration; a view."""
        strides = tuple(step * self.buffer.itemsize for step in self.steps)
        return as_strided(self.window, self.sizes, strides, writeable=False)


@dataclass(frozen=True)
class Sample:
    """Arguments of one call."""

    kernel: Kernel
    inputs: tuple[Operand, ...]
    parameters: tuple[Any, ...]
    sizes: tuple[int, ...]

    @cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """Fresh outputs, for strides; each call writes others."""
        return tuple(_operand(output, 0, self.sizes) for output in self.kernel.outputs)

    def call(self, function: Any) -> tuple[np.ndarray, ...]:
        """Return the outputs of a kernel that is called as compiled ones are."""
        outputs = [_operand(output, 0, self.sizes) for output in self.kernel.outputs]
        for operand, output in zip(outputs, self.kernel.outputs, strict=True):
            operand.buffer[:] = uninitialised(operand.buffer.size, operand.buffer.dtype)
            if output.combine:
                operand.buffer[:] = generate.identity_value(output.combine, operand.buffer.dtype)
        operands = (*self.inputs, *outputs)
        steps = [operands[k].steps[loop] for k, loop, _ in generate.stride_names(self.kernel)]
        windows = [operand.window for operand in operands]
        function(*windows, *self.parameters, *self.sizes, *steps, *[0] * self.kernel.resumes)
        return tuple(_kept(operand) for operand in outputs)


def _kept(operand: Operand) -> np.ndarray:
    """Return an output with an axis for each loop, of length 1 where that is reduced."""
    index = tuple(slice(None) if step else slice(0, 1) for step in operand.steps)
    return np.array(operand.values[index])


def sample(
    kernel: Kernel,
    special: bool,
    innermost: int = INNERMOST,
    seed: int = 0,
    gaps: bool = True,
) -> Sample:
    """Return arguments for a kernel, the same ones each time.

    Parameters
    ----------
    kernel
        The kernel.
    special
        Whether half of the numbers are NaN, infinities, zeros, subnormal or extreme.
    innermost
        Iterations of the innermost loop.
    seed
        Other numbers for another seed.
    gaps
        Whether there are gaps between rows of inputs, and some rows are backwards.

    Examples
    --------
    >>> from gpusched.emit.kernel import Output
    >>> from gpusched.editing.samples import sample
    >>> one = (Access.UNIT,)
    >>> copy = Kernel((Input("float32", one),), (), (), (Output(0, "float32", one),), ("map",))
    >>> made = sample(copy, special=True)
    >>> made.inputs[0].values.shape, bool(np.isnan(made.inputs[0].values).any())
    ((1031,), True)
    """
    random = np.random.default_rng(seed)
    sizes = (*[OUTER] * (len(kernel.loops) - 1), innermost)
    inputs = []
    for number, each in enumerate(kernel.inputs):
        operand = _operand(each, number, sizes, gaps)
        size = operand.buffer.size
        values = labels(size, kernel.segmented) if number == kernel.labels else None
        values = numbers(random, size, each.dtype, special) if values is None else values
        if number in kernel.tables:
            values = np.sort(values)
        elif kernel.tables and values.dtype == np.int64 and number != kernel.labels:
            values %= 1 << (SEARCHED - 1)  # They may be places in a table, of two numbers at least.
        operand.buffer[:] = values
        inputs.append(operand)
    parameters = tuple(
        numbers(random, 1, dtype, special)[0]
        if dtype != "int64" or not kernel.tables
        else np.int64(2 - number % 2)  # They may be lengths of a table, and ranks in it.
        for number, dtype in enumerate(kernel.parameters)
    )
    return Sample(kernel, tuple(inputs), parameters, sizes)


def _operand(
    operand: Input | Output, number: int, sizes: tuple[int, ...], gaps: bool = False
) -> Operand:
    """Return an array of zeros; every second one with gaps is gone through backwards."""
    steps = [0] * len(sizes)
    first, reach = 0, 1
    for loop in reversed(range(len(sizes))):
        if operand.access[loop] in STILL:
            continue
        step = reach if operand.access[loop] is Access.UNIT or not gaps else reach + 1
        reach = step * sizes[loop]
        backwards = gaps and number % 2 == 1 and operand.access[loop] is Access.STRIDED
        steps[loop] = -step if backwards else step
        first += step * (sizes[loop] - 1) if backwards else 0
    last = sum(abs(step) * (size - 1) for step, size in zip(steps, sizes, strict=True))
    whole = (1 << SEARCHED) - 1 if Access.TABLE in operand.access else 0
    buffer = np.zeros(max(last + 1, whole), operand.dtype)
    return Operand(buffer, first, tuple(steps), sizes)


def labels(count: int, segmented: bool) -> np.ndarray:
    """Return labels that are right however many there are: the first one, and none, in turn.

    None is no label of what is read: then the first two, or one if there is room for one only.
    """
    found = np.arange(count) % 2
    return -found if segmented else found


def numbers(random: np.random.Generator, count: int, dtype: str, special: bool) -> np.ndarray:
    """Return so many numbers of a dtype.

    Examples
    --------
    >>> from gpusched.editing.samples import numbers
    >>> found = numbers(np.random.default_rng(0), 1000, "int8", special=True)
    >>> int(found.min()), int(found.max())
    (-128, 127)
    """
    kind = np.dtype(dtype)
    if kind.kind == "c":
        part = "float32" if kind == np.complex64 else "float64"
        found = np.empty(count, kind)
        found.real, found.imag = (numbers(random, count, part, special) for _ in range(2))
        return found
    ordinary = _ordinary(random, count, kind)
    if not special:
        return ordinary
    chosen = random.choice(specials(kind), count)
    return np.where(random.random(count) < 0.5, chosen, ordinary)


def _ordinary(random: np.random.Generator, count: int, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return random.random(count) < 0.5
    if dtype.kind == "f":
        signs = np.where(random.random(count) < 0.5, -1, 1)
        return (signs * 10 ** random.uniform(-3, 3, count)).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -100), min(limits.max, 100)
    return random.integers(low, high, count, dtype, endpoint=True)


def specials(dtype: np.dtype) -> np.ndarray:
    """Return the numbers of a dtype at which functions differ most."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        found = {limits.min, limits.min + 1, 0, 1, 2, limits.max // 2, limits.max - 1, limits.max}
        return np.array(sorted(found | ({-1} if limits.min else set())), dtype)
    limit = np.finfo(dtype)
    positive = [0.0, limit.smallest_subnormal, limit.smallest_normal, 0.5, 1.0, 1.5, math.pi, 100.0,
                1 / limit.eps, limit.max, np.inf, np.nan]  # fmt: skip
    return np.array([sign * value for value in positive for sign in (1, -1)], dtype)
