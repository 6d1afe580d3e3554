"""Functions under one name for both dtypes, for sources that do not say which."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import types
from numba.extending import overload

from gpusched.fusion.vectormath import FUNCTIONS


@lru_cache(maxsize=64)
def by_dtype(name: str) -> Callable[..., Any]:
    """Return a function that numba compiles to the vectorised one of its argument's dtype.

    Parameters
    ----------
    name
        NumPy's name of a function of one number, such as ``"exp"``.
    """
    narrow, wide = (FUNCTIONS[f"{name}_{width}"].function for width in ("f32", "f64"))

    def function(x: Any) -> Any:
        return wide(x)

    @overload(function, strict=False, inline="always")
    def choose(x: Any) -> Any:
        return (lambda x: narrow(x)) if x == types.float32 else (lambda x: wide(x))

    return function
