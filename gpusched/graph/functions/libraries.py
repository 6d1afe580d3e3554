"""Which packages are libraries, for each question that is asked of a function's package."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.emit.operations import operation_of

_TABLE = """
builtins           objects kept timed
_operator          objects kept timed
bottleneck         named
cupy               functions objects
cytoolz            objects
dask               functions objects kept
dask.array         pure timed
dask.utils         pure timed
dask_image         named
distributed        functions objects
flox               kept named
functools          objects
gpusched           objects kept pure
gpusched.backends  timed
gpusched.emit      timed
gpusched.plan      timed
gpusched.record    timed
numbagg            named
numpy              functions objects kept timed
operator           objects kept timed
scipy              objects named
skimage            named
sklearn            named
sparse             named
toolz              objects
xarray             functions objects kept
"""
"""Packages, and modules for what `is_in` is asked, with the questions that are answered by yes."""


def _of(word: str) -> frozenset[str]:
    rows = [line.split() for line in _TABLE.strip().splitlines()]
    return frozenset(name for name, *words in rows if word in words)


FUNCTIONS = _of("functions")
"""Their Python functions are not the user's to change. A task's own function is recorded only if
`gpusched.graph.functions.known` lists it; those that a user's function calls are gone through, too,
such as `numpy.polynomial.polynomial.polyval`."""
OBJECTS = _of("objects")
"""So are their objects that can be called."""
KEPT = _of("kept")
"""Their functions hold no arrays, and processes find them by their names."""
TIMED = _of("timed")
"""Their functions take a time that depends on the size of their chunks only."""
NAMED = _of("named")
"""Their functions are gone through as the user's are, and are not the user's to change."""
PURE = _of("pure")
"""Their functions leave chunks as they are; of NumPy's, the catalogue says which do."""


def package(value: Any) -> str:
    """Return the package of a function, or of a kind of objects; empty where it has none.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.libraries import package
    >>> package(np.linalg.norm)
    'numpy'
    """
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def is_in(function: Any, modules: Iterable[str]) -> bool:
    """Return whether a function is of one of some modules, or of a module below one of them."""
    module = f"{getattr(function, '__module__', '')}."
    return any(module.startswith(f"{name}.") for name in modules)


def is_numpys(ufunc: np.ufunc) -> bool:
    """Return whether a ufunc is NumPy's own: those that `numpy.frompyfunc` makes are the user's."""
    return getattr(np, ufunc.__name__, None) is ufunc


def found_by_name(function: Any) -> bool:
    """Return whether a function is what its name stands for in a library, in every process."""
    if isinstance(function, np.ufunc):
        return operation_of(function) is not None or is_numpys(function)
    if package(function) not in KEPT:
        return False  # Nothing else is asked of objects of the user's.
    module = sys.modules.get(str(function.__module__))
    return getattr(module, getattr(function, "__qualname__", ""), None) is function
