"""What is wrong with an array, an index or a chunk is said with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import gpusched
from gpusched.debugging.subject import Subject
from tests.inspection.programs import numbers

FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda x: gpusched.debug(x, (0, 0)),
    lambda x: gpusched.trace_element(x, (0, 0)),
    gpusched.find_nonfinite,
)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones((3, 3)), "only dask arrays are looked into; this ndarray is not computed"),
        (xr.DataArray(np.ones((3, 3))), "this DataArray is not computed by tasks"),
        ([da.ones(3), da.ones(3)], "one array is looked into, not a list of 2"),
        (dask.delayed(1), "this is a DelayedLeaf of dask's"),
        (3, "this int is not computed"),
        (
            xr.Dataset({"heat": ("x", da.ones(3))}),
            "one array is looked into, not a Dataset; choose one of its 'heat'",
        ),
    ],
)
def test_other_things(function: Callable[[Any], Any], given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        function(given)


@pytest.mark.parametrize(
    ("error", "index", "told"),
    [
        (IndexError, (40, 0), "out of bounds: axis 0 of .* is 40 long"),
        (IndexError, (0, -31), "out of bounds: axis 1 of .* is 30 long"),
        (IndexError, 3, "has 1 number; .* has 2 axes"),
        (IndexError, (), "has 0 numbers; .* has 2 axes"),
        (TypeError, (1.5, 2), "whole numbers are needed"),
        (TypeError, (slice(3), 2), "whole numbers are needed"),
        (TypeError, "ab", "whole numbers are needed"),
        (TypeError, None, "neither is given"),
    ],
)
def test_other_indices(error: type[Exception], index: Any, told: str) -> None:
    x = numbers((40, 30), 20) + 1
    with pytest.raises(error, match=told):
        gpusched.debug(x, index)


def test_other_chunks() -> None:
    x = numbers((40, 30), 20) + 1
    with pytest.raises(IndexError, match=r"out of bounds: axis 1 of .* has 2 chunks"):
        gpusched.debug(x, chunk=(0, 2))
    with pytest.raises(TypeError, match="both are given"):
        gpusched.debug(x, (0, 0), chunk=(0, 0))


def test_data_is_not_computed() -> None:
    with pytest.raises(ValueError, match=r"chunk \(1, 0\) of .* is data that the graph holds"):
        gpusched.debug(numbers((40, 30), 20), (-1, 0))


def test_unknown_lengths() -> None:
    x = numbers((40,), 20)
    with pytest.raises(ValueError, match="lengths that dask does not know"):
        gpusched.trace_element(x[x > 0.5] + 1, 0)


@pytest.mark.parametrize("kind", [int, np.int8, np.uint64])
def test_kinds_of_integers(kind: Any) -> None:
    spot = Subject(da.ones((7, 5), chunks=((3, 4), (1, 1, 3)))).at([kind(3), kind(4)])
    assert (spot.chunk, spot.local, spot.index) == ((1, 2), (0, 2), (3, 4))


def test_positions_that_numpy_finds() -> None:
    found = np.argwhere(np.eye(3) > 0)[-1]
    assert Subject(da.ones((7, 5), chunks=2)).at(found).index == (2, 2)


def test_chunks_without_elements_are_passed_over() -> None:
    assert Subject(da.ones(4, chunks=((2, 0, 2),))).at(2).chunk == (2,)
