"""A kernel without machine code: CuPy's calls in its place, one for each statement.

Each reads and writes whole arrays. Results are those of the kernel's statements, whose dtypes are
known, so that it does not matter which function of NumPy's a program has called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF
from gpusched.emit.generate import stride_names
from gpusched.emit.kernel import BY_LINES, FIRSTS, MOMENTS, PLACE, Access, Kernel, Statement
from gpusched.emit.operations import OPERATIONS, named
from gpusched.store.handles import CompiledKernel, Handle

_UNCHECKED = frozenset(["nextafter"])
"""Operations whose function in CuPy has not been compared with NumPy's."""
_REDUCTIONS = {"add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max",
               "fmin": "nanmin", "fmax": "nanmax", "logical_or": "any",
               "logical_and": "all"}  # fmt: skip
"""Functions that join the values of a reduction."""


def can_call(kernel: Kernel) -> bool:
    """Return whether there is a call for all that a kernel does."""
    if kernel.edition or kernel.scanned or kernel.labels is not None:
        return False
    known = {None, MOMENTS, PLACE, *FIRSTS, *_REDUCTIONS}
    joined = all(o.combine in known for o in kernel.outputs)
    called = {each.operation for each in kernel.statements}
    return joined and called <= OPERATIONS.keys() and called.isdisjoint(_UNCHECKED)


def in_place_of(kernel: Handle, module: ModuleType) -> Handle | None:
    """Return what is called as long as a kernel is not compiled; None where nothing can be.

    Parameters
    ----------
    kernel
        By which it is called once that is ready.
    module
        CuPy, or NumPy, which shows what the calls mean.
    """
    if not can_call(kernel.kernel):
        return None
    calls = ArrayCalls(kernel.kernel, module)

    def call(*arguments: Any) -> None:
        (kernel.call if kernel.ready else calls)(*arguments)

    return Handle.of(CompiledKernel(kernel.kernel, call))


@dataclass(frozen=True)
class ArrayCalls:
    """A kernel that `can_call` knows, to be called as compiled ones are."""

    kernel: Kernel
    module: ModuleType

    @cached_property
    def _dying(self) -> list[list[int]]:
        """By statement, the values that nothing reads later."""
        later = {o.value for o in self.kernel.outputs}
        found: list[list[int]] = []
        for statement in reversed(self.kernel.statements):
            now = {k for k in statement.arguments if isinstance(k, int)} - later
            found.append(sorted(now))
            later |= now
        return found[::-1]

    def __call__(self, *arguments: Any) -> None:
        """Call CuPy's functions for what a kernel is called with."""
        kernel, level = self.kernel, len(self.kernel.loops)
        count = len(kernel.operands)
        constants, numbers = len(kernel.parameters), arguments[count:]
        sizes = numbers[constants : constants + level]
        strides = dict(zip([(k, n) for k, n, _ in stride_names(kernel)],
                           numbers[constants + level : len(numbers) - kernel.resumes],
                           strict=True))  # fmt: skip
        shown = [
            self._shown(array, operand.access, sizes, strides, k)
            for k, (array, operand) in enumerate(zip(arguments, kernel.operands, strict=False))
        ]
        values: list[Any] = [*shown[: len(kernel.inputs)], *numbers[:constants]]
        for statement, dying in zip(kernel.statements, self._dying, strict=True):
            values.append(self._value(statement, values))
            for k in dying:
                values[k] = None
        into = shown[len(kernel.inputs) :]
        for k, output in enumerate(kernel.outputs):
            value = values[output.value] if isinstance(output.value, int) else _number(output.value)
            if k in kernel.moments:
                into[k][...], into[k + 1][...], into[k + 2][...] = self._moments(value, sizes)
            elif k in kernel.firsts:
                into[k][...], into[k + 1][...] = self._first(value, output.combine, sizes)
            elif output.combine is None:
                into[k][...] = value
            elif output.combine not in BY_LINES:
                into[k][...] = self._joined(value, output.combine, into[k].dtype, sizes)

    def _shown(self, array: Any, access: tuple[Access, ...], sizes: Sequence[int],
               strides: dict[tuple[int, int], int], operand: int) -> Any:  # fmt: skip
        """Return what the loops see of an array; of an output, what they write."""
        if Access.TABLE in access:
            return array
        reduced = operand >= len(self.kernel.inputs)
        kept = [k for k, loop in enumerate(self.kernel.loops) if loop == "map" or not reduced]
        steps = [
            strides.get((operand, k), int(access[k] is Access.UNIT)) * array.itemsize for k in kept
        ]
        return self.module.lib.stride_tricks.as_strided(array, [sizes[k] for k in kept], steps)

    def _value(self, statement: Statement, values: Sequence[Any]) -> Any:
        """Return what a statement computes."""
        operation, dtype = statement.operation, np.dtype(statement.dtype)
        given = [values[k] if isinstance(k, int) else _number(k) for k in statement.arguments]
        if operation in _OF_TABLES:
            return _as(_OF_TABLES[operation](self.module, *given), dtype)
        operands = _operands(statement)
        args = [_as(each, wanted) for each, wanted in zip(given, operands, strict=True)]
        if operation in _OTHERS:
            found = _OTHERS[operation](self.module, *args)
        elif operation.startswith("astype"):
            found = _CONVERSIONS.get(operation, _plain)(self.module, *args, dtype)
        elif named(operation).template(operands[0]) == "{0}":
            found = args[0]
        else:
            found = self._function(operation)(*args)
        if len(named(operation).templates) > 1:
            found = found[statement.output]
        return _as(found, dtype)

    def _function(self, operation: str) -> Callable[..., Any]:
        """Return the function that has an operation's name, which is as exact as the table says."""
        if hasattr(self.module, operation):
            return getattr(self.module, operation)
        import importlib

        library = "scipy" if self.module is np else "cupyx.scipy"
        return getattr(importlib.import_module(f"{library}.special"), operation)

    def _joined(self, value: Any, combine: str, dtype: np.dtype, sizes: Sequence[int]) -> Any:
        """Return what a reduction joins the values of all iterations to."""
        whole, axes = self._reduced(value, sizes)
        if dtype.kind == "b":
            combine = {"add": "logical_or", "multiply": "logical_and"}.get(combine, combine)
        reduce = getattr(self.module, _REDUCTIONS[combine])
        if combine in ("add", "multiply"):
            return reduce(whole, axis=axes, dtype=dtype)
        return reduce(whole.astype(dtype, copy=False), axis=axes)

    def _reduced(self, value: Any, sizes: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
        """Return the values of all iterations, and the axes that are reduced."""
        axes = tuple(k for k, loop in enumerate(self.kernel.loops) if loop == "reduce")
        return self.module.broadcast_to(self.module.asarray(value), sizes), axes

    def _first(self, value: Any, combine: str | None, sizes: Sequence[int]) -> tuple[Any, Any]:
        """Return the first of the largest or least values, and how many there are before it."""
        module = self.module
        whole, axes = self._reduced(value, sizes)
        kept = tuple(k for k in range(len(sizes)) if k not in axes)
        rows = module.transpose(whole, (*kept, *axes)).reshape([*(sizes[k] for k in kept), -1])
        search = module.argmax if combine == "first_maximum" else module.argmin
        place = search(rows, axis=-1)
        found = module.take_along_axis(rows, place[..., None], axis=-1)
        return found[..., 0], place

    def _moments(self, value: Any, sizes: Sequence[int]) -> tuple[Any, Any, Any]:
        """Return a mean, what rounding it loses, and squares of deviations added up."""
        module = self.module
        whole, axes = self._reduced(value, sizes)
        count = math.prod(sizes[k] for k in axes)
        # Rounding may take the mean of equal numbers to their neighbour.
        low, high = (f(whole, axis=axes, keepdims=True) for f in (module.min, module.max))
        centre = module.clip(module.mean(whole, axis=axes, keepdims=True), low, high)
        away = whole - centre
        centre = module.squeeze(centre, axes)
        apart, square = module.sum(away, axis=axes), module.sum(away * away, axis=axes)
        change = apart / count
        left = module.maximum(square - apart * change, 0.0)
        # Squares may overflow where their sum is finite.
        squares = module.where(module.isinf(square) & module.isfinite(apart), square, left)
        mean = centre + change
        return mean, (centre - mean) + change, squares


def _operands(statement: Statement) -> list[np.dtype]:
    """Return the dtypes that a statement's operands have."""
    first, count = np.dtype(statement.operand), len(statement.arguments)
    if statement.operation == "where":
        return [first, *[np.dtype(statement.dtype)] * 2]
    if statement.operation == "ldexp":
        return [first, np.dtype(np.int32)]
    return [first] * count


def _number(text: str) -> Any:
    """Return what a literal of a kernel's source stands for, as `literal` writes it."""
    name, _, rest = text.partition("(")
    if not rest:
        return np.bool_(text == "True")
    return np.dtype(name).type(float(rest[:-1]) if name[0] == "f" else int(rest[:-1]))


def _as(value: Any, dtype: np.dtype) -> Any:
    return value if value.dtype == dtype else value.astype(dtype)


def _plain(module: ModuleType, x: Any, dtype: np.dtype) -> Any:
    return x.astype(dtype)


def _signed(module: ModuleType, x: Any, bits: int) -> Any:
    """Return a float as an integer; the lowest for all beyond, as x86's instructions give it."""
    wide = x if x.dtype == np.float32 and bits == 64 else x.astype(np.float64)
    half = wide.dtype.type(2.0 ** (bits - 1))
    inside = (wide > -half - 1) & (wide < half) if bits == 32 else (wide >= -half) & (wide < half)
    return module.where(inside, wide, -half).astype(f"int{bits}")


def _to_signed(bits: int) -> Callable[..., Any]:
    return lambda module, x, dtype: _signed(module, x, bits).astype(dtype)


def _to_unsigned(bits: int) -> Callable[..., Any]:
    """Return what converts to unsigned integers as `operations` says: in two halves."""

    def convert(module: ModuleType, x: Any, dtype: np.dtype) -> Any:
        if x.dtype == HALF and bits == 32:
            return _signed(module, x, 64).astype(dtype)
        half = 1 << (bits - 1)
        wide = x.astype(np.float64)
        above = _signed(module, wide - float(half), bits).astype(dtype) + dtype.type(half)
        return module.where(wide >= half, above, _signed(module, wide, bits).astype(dtype))

    return convert


def _to_bool(module: ModuleType, x: Any, dtype: np.dtype) -> Any:
    return x != x.dtype.type(0)


_CONVERSIONS: dict[str, Callable[..., Any]] = {
    "astype_int32": _to_signed(32), "astype_int64": _to_signed(64), "astype_bool": _to_bool,
    "astype_uint32": _to_unsigned(32), "astype_uint64": _to_unsigned(64),
}  # fmt: skip


def _clip(module: ModuleType, x: Any, low: Any, high: Any) -> Any:
    above = module.where(x < low, low, x)
    inside = module.where(above > high, high, above)
    return module.where(low != low, low, module.where(high != high, high, inside))


def _minimum(module: ModuleType, a: Any, b: Any) -> Any:
    # Of equal numbers, such as zeros of both signs, the second; of float16 the first.
    return module.where((a <= b if a.dtype == HALF else a < b) | (a != a), a, b)


def _maximum(module: ModuleType, a: Any, b: Any) -> Any:
    return module.where((a >= b if a.dtype == HALF else a > b) | (a != a), a, b)


def _last_number(module: ModuleType, before: Any, value: Any) -> Any:
    return module.where(value == value, value, before)


def _clip_by_arrays(module: ModuleType, x: Any, low: Any, high: Any) -> Any:
    return _minimum(module, _maximum(module, x, low), high)


def _complex(module: ModuleType, real: Any, imaginary: Any) -> Any:
    real, imaginary = module.broadcast_arrays(module.asarray(real), module.asarray(imaginary))
    found = module.empty(real.shape, np.result_type(real.dtype, np.complex64))
    found.real, found.imag = real, imaginary
    return found


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype == HALF else x


def _divisor(b: Any) -> Any:
    """Return integers with 1 instead of 0 and of -1, by which not all can be divided."""
    lowest = -1 if b.dtype.kind == "i" else 0
    return b + ((b <= 0) & (b >= lowest)).astype(b.dtype) * (1 - b)


def _floor_divide(module: ModuleType, a: Any, b: Any) -> Any:
    if a.dtype.kind != "f":
        found = module.floor_divide(a, _divisor(b)) * (b != 0).astype(a.dtype)
        return found if a.dtype.kind == "u" else module.where(b == -1, -a, found)
    a, b = _wide(a), _wide(b)
    rest = module.fmod(a, b)
    quotient = (a - rest) / b
    apart = (rest != 0) & ((b < 0) != (rest < 0))
    quotient = module.where(apart, quotient - a.dtype.type(1), quotient)
    whole = module.floor(quotient)
    whole = module.where(quotient - whole > 0.5, whole + a.dtype.type(1), whole)
    zero = module.copysign(quotient, a / b)
    return module.where(b == 0, a / b, module.where(quotient == 0, zero, whole))


def _remainder(module: ModuleType, a: Any, b: Any) -> Any:
    if a.dtype.kind != "f":
        return module.remainder(a, _divisor(b))
    a, b = _wide(a), _wide(b)
    rest = module.fmod(a, b)
    found = module.where((b < 0) != (rest < 0), rest + b, rest)
    found = module.where(rest == 0, module.copysign(rest, b), found)
    return module.where(b == 0, rest, found)


def _divmod(module: ModuleType, a: Any, b: Any) -> Any:
    return _floor_divide(module, a, b), _remainder(module, a, b)


def _fmod(module: ModuleType, a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return module.fmod(a, b)
    rest = module.remainder(a, _divisor(b))
    return module.where((rest != 0) & ((a < 0) != (b < 0)), rest - b, rest)


def _logaddexp(unit: float, exp: str) -> Callable[..., Any]:
    def add(module: ModuleType, a: Any, b: Any) -> Any:
        a, b = a.astype(np.float64), b.astype(np.float64)
        apart = a - b
        more = module.log1p(getattr(module, exp)(-abs(apart))) / unit
        return module.where(a == b, a + np.log(2.0) / unit, module.where(apart > 0, a, b) + more)

    return add


def _within(b: Any) -> Any:
    return (b >= 0) & (b < 8 * b.dtype.itemsize)


def _left_shift(module: ModuleType, a: Any, b: Any) -> Any:
    return (a << (b & (8 * b.dtype.itemsize - 1))) * _within(b).astype(a.dtype)


def _right_shift(module: ModuleType, a: Any, b: Any) -> Any:
    last = b.dtype.type(8 * b.dtype.itemsize - 1)
    if a.dtype.kind == "i":
        return a >> module.where(_within(b), b, last)
    return (a >> (b & last)) * _within(b).astype(a.dtype)


_OTHERS: dict[str, Callable[..., Any]] = {
    "clip": _clip, "clip_by_arrays": _clip_by_arrays, "complex": _complex, "divmod": _divmod,
    "floor_divide": _floor_divide, "fmod": _fmod, "last_number": _last_number,
    "left_shift": _left_shift,
    "logaddexp": _logaddexp(1.0, "exp"), "logaddexp2": _logaddexp(float(np.log(2.0)), "exp2"),
    "maximum": _maximum, "minimum": _minimum, "remainder": _remainder,
    "right_shift": _right_shift,
}  # fmt: skip
"""Operations of which CuPy has no function with the same values."""


def _element(module: ModuleType, table: Any, places: Any, length: Any) -> Any:
    return table[places]


def _search(side: str) -> Callable[..., Any]:
    return lambda module, x, table, steps: module.searchsorted(table, x, side)


def _interpolate(module: ModuleType, x: Any, points: Any, lines: Any, count: Any,
                 steps: Any) -> Any:  # fmt: skip
    count, x = int(count), module.ascontiguousarray(x)
    values, beyond = lines[6::4], lines[3::4]
    return module.interp(x, points[:count], values, beyond[0], beyond[-1])


def _select_sorted(module: ModuleType, table: Any, starts: Any, length: Any, ranks: Any,
                   *before: Any) -> Any:  # fmt: skip
    inside = (ranks >= 0) & (ranks < length)
    return module.where(inside, table[starts + ranks * inside], table.dtype.type("nan"))


def _select(module: ModuleType, table: Any, starts: Any, length: Any, *others: Any) -> Any:
    ordered = module.sort(table.reshape(-1, int(length)), axis=1).reshape(-1)
    return _select_sorted(module, ordered, starts, length, *others)


_OF_TABLES: dict[str, Callable[..., Any]] = {
    "element": _element, "search_left": _search("left"), "search_right": _search("right"),
    "interpolate": _interpolate,
    "select": _select, "select_next": _select, "select_sorted": _select_sorted,
}  # fmt: skip
"""Operations that get arrays as a whole."""
