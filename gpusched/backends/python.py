"""The reference: a kernel's own source, run by Python on NumPy scalars."""

from __future__ import annotations

import ast
import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from gpusched.backends import scalar_math
from gpusched.backends.buffer_pool import owner
from gpusched.emit import generate
from gpusched.emit.floatingpoint import collecting, note, take
from gpusched.emit.hostloops import BOUND
from gpusched.emit.kernel import Kernel
from gpusched.emit.policy import ROOM


class Window:
    """Memory seen from one element of an array, as kernels see pointers.

    Examples
    --------
    >>> numbers = np.arange(5)
    >>> window = Window(numbers[3:])
    >>> int(window[0]), int(shift(window, -1)[0])
    (3, 2)
    """

    def __init__(
        self, array: np.ndarray, first: int = 0, memory: tuple[float, float] | None = None
    ) -> None:
        self._array = array
        self._address = array.__array_interface__["data"][0]
        self._first = first
        self._memory = _memory_of(array) if memory is None else memory

    def _at(self, index: int) -> np.ndarray:
        size = self._array.itemsize
        address = self._address + (self._first + int(index)) * size
        low, high = self._memory
        if not low <= address <= high - size:
            raise IndexError(f"element {index} is not in the memory of the array")
        memory = (ctypes.c_char * size).from_address(address)
        return np.frombuffer(memoryview(memory), self._array.dtype)

    def __getitem__(self, index: int) -> Any:
        return self._at(index)[0]

    def __setitem__(self, index: int, value: Any) -> None:
        self._at(index)[0] = value


def _memory_of(array: np.ndarray) -> tuple[float, float]:
    """Return the first address of the memory that an array is a view of, and the one behind it.

    Without ends where that memory is not an array's own, as in a mapped file.
    """
    whole = owner(array)
    return byte_bounds(whole) if whole.flags.owndata else (-math.inf, math.inf)


def shift(window: Window, count: int) -> Window:
    """Return `window` starting `count` elements further."""
    return Window(window._array, window._first + int(count), window._memory)


def element(window: Window, index: int) -> Any:
    """Return one element, counted from the window's first."""
    return window[index]


def scratch(window: Window) -> Window:
    """Return room for one part of what a window shows."""
    return Window(np.empty(ROOM, window._array.dtype))


def stream(window: Window, part: Window, count: int) -> None:
    """Write the first elements of a part to a window."""
    for k in range(count):
        window[k] = part[k]


def spread(number: int, count: int, places: int) -> int:
    """Return which of `count` blocks is taken next, if they come from some places in turn.

    Each of ``range(count)`` is the answer to one `number` of ``range(count)``.
    """
    share = count // places
    return number % places * share + number // places if number < share * places else number


def ahead(distance: int) -> int:
    """Return how far ahead to ask for what comes in sequence."""
    return distance


def past_line(window: Window) -> int:
    """Return 0: Python writes no lines of memory."""
    return 0


def prefetch(window: Window, start: int, count: int) -> None:
    """Do nothing: Python's run of a kernel waits for its inputs."""


def drain() -> None:
    """Do nothing: what has been written is there."""


least, greatest = np.minimum, np.maximum


def number_or(x: Any, other: Any) -> Any:
    """Return `x`, or the other where `x` is NaN."""
    return x if x == x else other


def is_worse(result: Any, operand: Any) -> bool:
    """Return whether a result is NaN and the operand is not, or infinite and the operand finite."""
    ranks = [int(abs(x) == math.inf) + 2 * int(x != x) for x in (result, operand)]
    return ranks[0] > ranks[1]


def unseen(x: Any) -> bool:
    """Return False: Python computes everything."""
    return False


def from_float16(x: Any) -> Any:
    """Return the float32 that is equal to a float16."""
    return np.float32(x)


def to_float16(x: Any) -> Any:
    """Return the float16 that is nearest to a number."""
    return np.float16(x)


def round_to_float16(x: Any) -> Any:
    """Return the float32 that is equal to it."""
    return np.float32(np.float16(x))


def bits(x: Any) -> int:
    """Return the width of an integer in bits."""
    return 8 * int(x.dtype.itemsize)


def compensated_add(total: float, lost: float, value: float) -> tuple[float, float]:
    """Add `value` to `total` and what rounding loses to `lost` (Knuth, 1969)."""
    new = total + value
    if not np.isfinite(new):
        return new, lost
    from_value = new - total
    return new, lost + ((total - (new - from_value)) + (value - from_value))


def clear_floating_point_errors() -> None:
    """Forget the errors that NumPy's scalars have raised in this thread."""
    take()


def floating_point_errors() -> int:
    """Return those errors since they were cleared."""
    return take()


def flush_subnormals() -> int:
    """Return 0: Python computes with subnormal numbers."""
    return 0


def restore_subnormals(before: int) -> None:
    """Do nothing."""


def uninitialised(size: int, dtype: np.dtype) -> np.ndarray:
    """Return an array of values that spoil a result: NaN, or large numbers of both signs."""
    if dtype.kind in "fc":
        return np.full(size, np.nan, dtype)
    if dtype.kind == "b":
        return np.arange(size) % 2 == 0
    limits = np.iinfo(dtype)
    return np.where(np.arange(size) % 2, dtype.type(limits.max), dtype.type(limits.min))


def namespace() -> dict[str, Any]:
    """Return the names a kernel's source uses, bound to NumPy."""
    more = ["floor_divide", "remainder", "frexp", "ldexp", "nextafter", "exp", "exp2", "log1p"]
    names = [*scalar_math.ARITHMETIC, *more, *scalar_math.DTYPES]
    bound = {name: getattr(np, name) for name in names}
    bound |= {name: getattr(np, name.removeprefix("to_")) for name in scalar_math.INTEGERS}
    bound |= {name: scalar_math.numpy_function(name) for name in scalar_math.math_names()}
    own = (*BOUND, *scalar_math.HALVES, *scalar_math.BITWISE)
    local = {name: globals()[name] for name in own}
    return {**bound, **local, "inf": math.inf, "nan": math.nan}


def compile_kernel(kernel: Kernel, text: str, filename: str) -> Callable[..., int | None]:
    """Return a kernel as Python runs it, to be called as compiled ones are.

    Parameters
    ----------
    kernel
        What `text` was generated from.
    text
        Its source, defining ``point`` and ``kernel``.
    filename
        What tracebacks and debuggers call the source.
    """
    return callable_of(kernel, define(kernel, text, filename, {}))


def define(
    kernel: Kernel, text: str | ast.Module, filename: str, names: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a kernel's source defines, by name.

    Parameters
    ----------
    kernel
        What the source was generated from.
    text
        The source, or its tree.
    filename
        What tracebacks and debuggers call the source.
    names
        What it may use besides.
    """
    found = {**namespace(), **names}
    for name, function in generate.defined_functions(kernel).items():
        found[name] = function.for_python
    exec(compile(text, filename, "exec"), found)
    return found


def callable_of(kernel: Kernel, found: Mapping[str, Any]) -> Callable[..., int | None]:
    """Return the kernel among what its source defines, to be called as compiled ones are."""
    count = len(kernel.inputs) + len(kernel.outputs)

    def call(*arguments: Any) -> int | None:
        windows = [Window(array) for array in arguments[:count]]
        before = take()
        with collecting(kernel.flags):
            errors: int | None = found["kernel"](*windows, *arguments[count:])
        take()
        note(before)
        return errors

    return call
