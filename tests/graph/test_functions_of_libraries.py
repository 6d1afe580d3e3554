"""Functions of NumPy's and dask's that the user's functions call, and that no table lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.array.core import deepfirst
from dask.core import flatten
from dask.utils import deepmap

from gpusched.graph import disable
from gpusched.store.statistics import reset_statistics, statistics
from tests.graph.examining import why_unsafe

pytestmark = pytest.mark.usefixtures("everything_fused")


def calibrates(x: Any) -> Any:
    return np.polynomial.polynomial.polyval(x, [0.25, -1.5, 0.125])


def evaluates_a_series(x: Any) -> Any:
    return np.polynomial.chebyshev.chebval(x, (1, 2, 3))


def maps_domains(x: Any) -> Any:
    return np.polynomial.polyutils.mapdomain(x, [-7, 17], [-1, 1])


def tapers(x: Any) -> Any:
    return x * np.hanning(x.shape[1])


def asks_for_masks(x: Any) -> Any:
    return x + 1 if np.ma.isMA(x) else x * 2


def chooses_by_a_mask(x: Any) -> Any:
    return np.where(np.ma.getmask(x), 0, x * 2 + 1)


def maps_lists(x: Any) -> Any:
    return sum(deepmap(lambda each, other: each - other, [x, x * 2], [x * 3, 1])) * deepfirst([[x]])


def flattens(x: Any) -> Any:
    return sum(flatten([[x, [x * 2]], [x * 3]]))


SAFE = [calibrates, evaluates_a_series, maps_domains, tapers, asks_for_masks, chooses_by_a_mask,
        maps_lists, flattens]  # fmt: skip


@pytest.mark.parametrize("function", SAFE)
def test_they_are_recorded(function: Callable[[Any], Any]) -> None:
    x = np.linspace(-7, 17, 60).reshape(6, 10)
    fused = launches(function, x)
    assert fused == 2
    assert launches(function, np.ma.masked_less(x, 0)) == 0


def launches(function: Callable[[Any], Any], x: Any) -> int:
    """Compare a function's results with plain dask's, and return how many kernels it launched."""
    y = da.from_array(x, chunks=(3, 10)).map_blocks(function, dtype=float)
    with disable():
        expected = y.compute(scheduler="sync")
    reset_statistics()
    found = y.compute(scheduler="sync")
    assert type(found) is type(expected)
    np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
    np.testing.assert_allclose(np.ma.getdata(found), np.ma.getdata(expected), rtol=1e-13)
    return statistics().launches


def sets_the_value_of_masks(x: Any) -> Any:
    np.ma.set_fill_value(x, 5.0)
    return x + 1


def makes_masks(x: Any) -> Any:
    return np.ma.masked_where(x > 3, x)


@pytest.mark.parametrize(("function", "called"), [
    (sets_the_value_of_masks, "set_fill_value"),  # of what others may see
    (makes_masks, "masked_where"),
])  # fmt: skip
def test_what_they_do_besides_is_refused(function: Callable[[Any], Any], called: str) -> None:
    line = function.__code__.co_firstlineno + 1
    assert f"calls {called} of numpy, which is not recorded (call, line {line})" == why_unsafe(
        function
    )
