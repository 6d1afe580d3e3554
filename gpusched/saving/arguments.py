"""Which values a file may hand to a function: no descriptions of dtypes in forms of NumPy's own.

NumPy makes a dtype of dictionaries, of lists of tuples and of texts with commas, and adds up the
sizes in them without a check for overflow. A file has dtypes in one form, which is checked
(`gpusched.serialization.dtypes`); the other forms are not arguments here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from toolz import curry  # type: ignore[import-untyped]
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.saving.permitted_functions import name_of
from gpusched.serialization.frames import CorruptFrameError

_KEYWORDS = {
    "dask.utils.apply": 2,
    "dask.array.random._apply_random": 5,
    "dask.array.random._apply_random_func": 5,
}
"""Functions that take keywords for another function as one argument, and which that is."""
_FORMAT = re.compile(r"[^,]*\d[^,]*,|,.*\d", re.DOTALL)
"""A string with a comma and a digit: a list of formats, unlike the subscripts of einsum."""


def check_arguments(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse a call with arguments that NumPy would make a dtype of.

    Raises `CorruptFrameError` if one is.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.saving.arguments import check_arguments
    >>> check_arguments(np.zeros, [3], {"dtype": np.dtype("V7,f8")})
    >>> check_arguments(np.zeros, [3], {"dtype": "V7,f8"})
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: 'V7,f8' is not an argument that a file may have
    """
    for place, value in enumerate(args):
        if isinstance(value, dict) and place == _KEYWORDS.get(name_of(function) or ""):
            _check_keywords(value)
        else:
            check_argument(value)
    _check_keywords(kwargs)


def check_argument(value: Any) -> None:
    """Refuse what NumPy would make a dtype of; see `check_arguments`."""
    if _makes_dtype(value):
        raise CorruptFrameError(f"{value!r:.200} is not an argument that a file may have")
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            check_argument(item)
    elif isinstance(value, partial | curry):
        check_arguments(value.func, value.args, value.keywords)
    elif isinstance(value, Compose):
        check_argument([value.first, *value.funcs])


def _makes_dtype(value: Any) -> bool:
    if isinstance(value, str):
        return _FORMAT.search(value) is not None
    if isinstance(value, dict):
        # Depths and boundaries by axis are no fields, whose names are texts.
        return any(type(key) is not int for key in value)
    return type(value) is list and any(map(_is_field, value))


def _check_keywords(kwargs: dict[Any, Any]) -> None:
    for name, value in kwargs.items():
        if not isinstance(name, str):
            raise CorruptFrameError(f"{name!r:.200} is not a keyword")
        check_argument(value)


def _is_field(item: Any) -> bool:
    """Return whether an item reads like a field: a name, perhaps with a title, and what it is."""
    if type(item) is not tuple or len(item) < 2:
        return False
    names = item[0] if type(item[0]) is tuple else item[:1]
    return any(isinstance(name, str) for name in names)
