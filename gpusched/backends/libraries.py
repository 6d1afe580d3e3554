"""Calls that CUDA's libraries compute for CuPy's arrays, such as products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function gives.

    Raises
    ------
    MemoryError
        Where a library has no memory on the device, which CuPy says by an error of the library's.

    Examples
    --------
    >>> from gpusched.backends.libraries import called
    >>> called(max, 1, 2)
    2
    """
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        if "ALLOC_FAILED" not in str(error):
            raise
        name = getattr(function, "__name__", type(function).__name__)
        raise MemoryError(f"{name}: {error}") from error
