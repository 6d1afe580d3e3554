"""Whether a function joins values so that their order does not matter, on samples."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

_SAMPLES = (1, 2, 5, -3)


def warn_unless_order_is_free(function: Callable[..., Any], identity: Any) -> None:
    """Warn of a reduction whose result depends on the order in which values are joined.

    Parameters
    ----------
    function
        Joins two numbers.
    identity
        A number of the kind that is joined; tuples are joined in the order of the array.

    Examples
    --------
    >>> from gpusched.kernels.laws import broken_law
    >>> broken_law(lambda a, b: a + b, 0.0), broken_law(lambda a, b: a - b, 0)
    (None, 'f(1, 2) is -1 and f(2, 1) is 1')
    """
    broken = broken_law(function, identity, commutes=not isinstance(identity, tuple))
    if broken is not None:
        _warn(function, "reduction", "the order in which values are joined, which is not the "
              "array's", broken)  # fmt: skip


def warn_unless_associative(function: Callable[..., Any], identity: Any) -> None:
    """Warn of a scan whose result depends on where an array is divided into chunks.

    Parameters
    ----------
    function
        Joins two numbers.
    identity
        A number of the kind that is joined.
    """
    broken = broken_law(function, identity, commutes=False)
    if broken is not None:
        _warn(function, "scan", "where an array is divided into chunks, or for the threads of a "
              "GPU", broken)  # fmt: skip


def _warn(function: Callable[..., Any], form: str, what: str, broken: str) -> None:
    name = function.__name__
    warnings.warn(
        f"the result of {form} {name} depends on {what}: {broken.replace('f(', f'{name}(')}",
        stacklevel=4,
    )


def broken_law(function: Callable[..., Any], identity: Any, commutes: bool = True) -> str | None:
    """Return which samples a function joins to another value in another order; None if none.

    Parameters
    ----------
    function, identity
        As above.
    commutes
        Whether two values may be joined in either order.
    """
    samples = _samples(identity)
    if not samples or not _joins_like(function, samples):
        return None
    try:
        for a, b in itertools.combinations(samples, 2) if commutes else ():
            one, other = function(a, b), function(b, a)
            if not _equal(one, other):
                return f"f({a}, {b}) is {one} and f({b}, {a}) is {other}"
        for a, b, c in itertools.permutations(samples, 3):
            one, other = function(function(a, b), c), function(a, function(b, c))
            if not _equal(one, other):
                return f"f(f({a}, {b}), {c}) is {one} and f({a}, f({b}, {c})) is {other}"
    except Exception:  # noqa: BLE001  a user's function may not take every number
        return None
    return None


def _joins_like(function: Callable[..., Any], samples: list[Any]) -> bool:
    """Return whether two samples are joined into one of their kind; others are errors later."""
    try:
        found = function(*samples[:2])
    except Exception:  # noqa: BLE001  a user's function may not take every number
        return False
    if isinstance(samples[0], tuple):
        return isinstance(found, tuple) and len(found) == len(samples[0])
    return not isinstance(found, tuple)


def _samples(identity: Any) -> list[Any]:
    """Return numbers, or tuples of numbers, of the kind of an identity; none of other kinds."""
    if isinstance(identity, tuple):
        several = [[abs(number) for number in _samples(item)] for item in identity]
        # Each item in an order of its own, so that no two tuples are equal in any.
        return list(zip(*(found[k:] + found[:k] for k, found in enumerate(several)), strict=False))
    if type(identity) not in (int, float):
        return []
    return [type(identity)(value) for value in _SAMPLES]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other or math.isclose(one, other, rel_tol=1e-6) or one != one or other != other
