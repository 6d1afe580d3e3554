"""Functions under one name for both dtypes, for sources that do not say which."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import types
from numba.extending import overload

from gpusched.vectormath import FUNCTIONS


@lru_cache(maxsize=64)
def by_dtype(name: str, arguments: int = 1) -> Callable[..., Any]:
    """Return a function that numba compiles to the vectorised one of its first argument's dtype.

    Parameters
    ----------
    name
        NumPy's name of a scalar function, such as ``"exp"``.
    arguments
        How many it takes: one or two.
    """
    narrow, wide = (FUNCTIONS[f"{name}_{width}"].function for width in ("f32", "f64"))

    def function(*numbers: Any) -> Any:
        return wide(*numbers)

    def of_one(x: Any) -> Any:
        return (lambda x: narrow(x)) if x == types.float32 else (lambda x: wide(x))

    def of_two(x: Any, y: Any) -> Any:
        return (lambda x, y: narrow(x, y)) if x == types.float32 else (lambda x, y: wide(x, y))

    function.__name__ = name  # for numba's messages
    overload(function, strict=False, inline="always")({1: of_one, 2: of_two}[arguments])
    return function
