"""Elements that dask takes of several chunks are put in order only if they are not."""

from __future__ import annotations

from random import Random
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.arrays import concatenate_arrays
from gpusched.graph.functions import known


def parts_of(r: Random) -> tuple[list[Any], np.ndarray, int]:
    """Return arrays, the places of their elements along an axis, and the axis."""
    ndim, order = r.randint(1, 3), r.choice("CF")
    axis, kind = r.randrange(ndim), r.choice(["f8", "f4", "i2", "M8[s]"])
    shape, arrays = [r.randint(1, 3) for _ in range(ndim)], []
    for _ in range(r.randint(1, 4)):
        shape[axis] = r.randint(0, 3)
        values = np.array([r.randint(-9, 9) for _ in range(int(np.prod(shape)))], "i8")
        array = np.array(values.astype(r.choice([kind, kind, "f8"] if kind != "M8[s]" else [kind]))
                         .reshape(shape), order=r.choice([order, order, "C"]))  # fmt: skip
        masked = np.indices(shape).sum(axis=0) % 2 == 1
        arrays.append(np.ma.array(array, mask=masked) if r.random() < 0.1 else array)
    places = list(range(sum(a.shape[axis] for a in arrays)))
    if r.random() < 0.3:
        r.shuffle(places)
    return arrays, np.array(places, r.choice(["i8", "i4"])), axis


@given(st.integers(0, 1 << 32))
def test_what_dask_gives(seed: int) -> None:
    arrays, places, axis = parts_of(Random(seed))
    expected = concatenate_arrays(arrays, (1, places), axis)
    found = known.in_order(arrays, (1, places), axis)
    assert type(found) is type(expected)
    assert (found.dtype, found.strides) == (expected.dtype, expected.strides)
    assert not any(np.may_share_memory(found, each) for each in arrays)
    np.testing.assert_array_equal(found, expected)


def test_one_program_takes_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(known, "concatenate_arrays", lambda *args: (
        taken.append(args), concatenate_arrays(*args))[1])  # fmt: skip
    values = np.random.default_rng(0).normal(size=(40, 3))
    x = da.from_array(values, chunks=(10, 3))
    with gpusched.enable():
        for places, times in ((np.arange(0, 40, 2), 0), (np.r_[30:35, 0:15], 1)):
            found = np.exp(x[places]).rechunk((-1, 3)).sum(axis=0).compute(scheduler="sync")
            np.testing.assert_allclose(found, np.exp(values[places]).sum(axis=0), rtol=1e-12)
            assert bool(taken) is bool(times)
