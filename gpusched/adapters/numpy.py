"""Private functions of NumPy, by which its quantiles find their places: selections use the same.

NumPy has no public name for the places that a method of `numpy.quantile` interpolates between.
"""

from __future__ import annotations

import numpy as np

try:
    # NumPy's types say nothing of them.
    from numpy.lib._function_base_impl import _get_gamma as get_gamma  # type: ignore[attr-defined]
    from numpy.lib._function_base_impl import (  # type: ignore[attr-defined]
        _get_indexes as get_indexes,
    )
    from numpy.lib._function_base_impl import (  # type: ignore[attr-defined]
        _QuantileMethods as METHODS,
    )
except ImportError as error:
    from gpusched.adapters.tested_releases import moved

    raise moved(error) from error


def quantile_places(
    quantiles: np.ndarray, count: int, method: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return between which ranks quantiles are, and how far from the first of each two.

    Raises `ValueError` as NumPy raises it, for quantiles that are not from 0 to 1.

    Parameters
    ----------
    quantiles
        Numbers from 0 to 1.
    count
        How many numbers they are quantiles of.
    method
        As in `numpy.quantile`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.adapters.numpy import quantile_places
    >>> quantile_places(np.array([0.25]), 11, "linear")
    (array([2]), array([3]), array([0.5]))
    """
    if quantiles.size and not (quantiles.min() >= 0 and quantiles.max() <= 1):
        raise ValueError("Quantiles must be in the range [0, 1]")
    properties = METHODS[method]
    places = np.asarray(properties["get_virtual_index"](count, quantiles))
    if is_discrete(method):
        return places, places, np.zeros(places.shape)
    before, after = get_indexes(np.empty(0), places, count)
    return before % count, after % count, get_gamma(places, before, properties)


def is_method(method: object) -> bool:
    """Return whether `numpy.quantile` has a method of this name."""
    return isinstance(method, str) and method in METHODS


def is_discrete(method: str) -> bool:
    """Return whether quantiles of a method are numbers that are there, rather than between two."""
    return METHODS[method]["fix_gamma"] is None
