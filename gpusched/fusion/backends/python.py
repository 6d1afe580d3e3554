"""The reference: a kernel's own source, run by Python on NumPy scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusched.fusion.backends import names


class Window:
    """A strided array seen from one of its elements, as kernels see pointers.

    Examples
    --------
    >>> window = Window.at_start(np.arange(5)[::-1])
    >>> int(window[0]), int(shift(window, -1)[0])
    (4, 3)
    """

    def __init__(self, storage: np.ndarray, first: int) -> None:
        self.storage = storage
        self.first = first

    @classmethod
    def at_start(cls, array: np.ndarray) -> Window:
        """Return the window whose element 0 is the first of `array`."""
        size = array.itemsize
        low = sum(min(0, s * (n - 1)) for s, n in zip(array.strides, array.shape, strict=True))
        high = sum(max(0, s * (n - 1)) for s, n in zip(array.strides, array.shape, strict=True))
        corner = array[tuple(slice(-1, None) if s < 0 else slice(1) for s in array.strides)]
        extent = ((high - low) // size + 1,)
        storage = np.lib.stride_tricks.as_strided(corner.reshape(1), extent, (size,))
        return cls(storage, -low // size)

    def __getitem__(self, index: int) -> Any:
        return self.storage[self.first + index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.storage[self.first + index] = value


def shift(window: Window, count: int) -> Window:
    """Return `window` starting `count` elements further."""
    return Window(window.storage, window.first + count)


def element(window: Window, index: int) -> Any:
    """Return one element, counted from the window's first."""
    return window[index]


def bits(x: Any) -> int:
    """Return the width of an integer in bits."""
    return 8 * int(x.dtype.itemsize)


def compensated_add(total: float, lost: float, value: float) -> tuple[float, float]:
    """Add `value` to `total` and what rounding loses to `lost` (Neumaier, 1974)."""
    new = total + value
    rest = (total - new) + value if abs(total) >= abs(value) else (value - new) + total
    return new, lost + (rest if rest == rest else 0.0)


def clear_floating_point_errors() -> None:
    """Do nothing: Python's run of a kernel is not checked."""


def floating_point_errors() -> int:
    """Return 0."""
    return 0


def namespace() -> dict[str, Any]:
    """Return the names a kernel's source uses, bound to NumPy."""
    primitives = "floor ceil trunc rint sqrt fabs copysign minimum maximum fmin fmax fmod".split()
    more = "frexp ldexp nextafter exp log1p".split()
    bound = {name: getattr(np, name) for name in [*primitives, *more, *names.DTYPES]}
    bound |= {name: names.numpy_function(name) for name in names.math_names()}
    functions = (shift, element, bits, compensated_add, clear_floating_point_errors,
                 floating_point_errors)  # fmt: skip
    local = {f.__name__: f for f in functions}
    return {**bound, **local, "inf": math.inf, "nan": math.nan}


def load(text: str, filename: str) -> dict[str, Any]:
    """Return the namespace of a kernel's source after running it."""
    found = namespace()
    exec(compile(text, filename, "exec"), found)
    return found


def run(text: str, filename: str, arrays: list[np.ndarray], numbers: list[Any]) -> None:
    """Run a kernel's source in plain Python; the outputs are among `arrays`, last."""
    kernel = load(text, filename)["kernel"]
    with np.errstate(all="ignore"):
        kernel(*(Window.at_start(a) for a in arrays), *numbers)
