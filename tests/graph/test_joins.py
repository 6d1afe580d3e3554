"""Objects that are made of whole arrays, such as xarray's: their chunks go as arrays' do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.core import finalize
from dask.callbacks import Callback
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.tasks import List, Task, TaskRef
from gpusched.graph.passes.joins import joined, with_chunks

xr = pytest.importorskip("xarray", reason="xarray comes with the extra test")

DIMS = ["t", "y", "x"]
VALUES = np.random.default_rng(0).integers(0, 99, (12, 8, 10)).astype("f8")


pytestmark = pytest.mark.usefixtures("plain_calls")


def pieces(chunks: Any = (3, 2, 5)) -> Any:
    x = da.from_array(VALUES, chunks=(3, 8, 10))
    y = (x - 1).rechunk(chunks)
    return da.where(y > 5, y * 2, x.rechunk(chunks) + y)


def ran(compute: Callable[[], Any]) -> int:
    """Return how many tasks are run."""
    found: list[Any] = []
    with Callback(pretask=lambda key, *_: found.append(key)):
        compute()
    return len(found)


def lazy(of: Callable[[Any], Any]) -> Any:
    return xr.DataArray(of(pieces()), dims=DIMS, name="t")


@pytest.mark.parametrize("kind", ["array", "dataset", "variable", "coordinate"])
def test_what_makes_an_object_of_chunks_is_given_whole_ones(kind: str) -> None:
    array = lazy(lambda z: z + 1)
    subject: Any = {
        "array": array,
        "dataset": xr.Dataset({"a": array, "b": lazy(lambda z: z - 1), "n": 3}),
        "variable": array.variable,
        "coordinate": array.assign_coords(c=(DIMS, pieces() * 3)),
    }[kind]
    with gpusched.disable():
        (expected,) = dask.compute(subject)
        plain = ran(lambda: dask.compute(subject))
    with gpusched.enable():
        (found,) = dask.compute(subject)
        ours = ran(lambda: dask.compute(subject))
        of_arrays = ran(subject.compute)  # xarray gives dask the arrays.
    assert type(found) is type(expected)
    assert found.identical(expected)
    assert plain > 64
    assert ours <= of_arrays < plain // 3, (ours, of_arrays)


def test_of_two_arrays_each_stands_for_itself() -> None:
    z = pieces()
    rows = z.sum(axis=0)  # Needs several chunks at once: it stays in pieces.
    subject = xr.Dataset(
        {
            "a": (DIMS, z + 1),
            "rows": (["y", "x"], rows),
            "b": (DIMS, pieces() - 1),
        }
    )
    with gpusched.disable():
        (expected,) = dask.compute(subject)
    with gpusched.enable():
        (found,) = dask.compute(subject)
    assert found.identical(expected)


def test_the_same_array_twice() -> None:
    z = pieces() + 1
    subject = xr.Dataset({"a": (DIMS, z), "b": (DIMS, z), "c": (["u", "y", "x"], z[:, ::-1])})
    with gpusched.disable():
        (expected,) = dask.compute(subject)
    with gpusched.enable():
        assert dask.compute(subject)[0].identical(expected)


class Other(xr.Dataset):
    """Makes something else of what its arrays are."""

    __slots__ = ()

    def _dask_postcompute(self, results: Any) -> Any:
        return len(next(iter(results)))


def test_what_another_class_makes_of_chunks_is_left_to_it() -> None:
    subject = Other({"a": (DIMS, pieces() + 1)})
    with gpusched.enable():
        assert dask.compute(subject) == (4,)


OPERATIONS: list[Callable[[Any], Any]] = [
    lambda z: z + 1, lambda z: z.sum(axis=0), lambda z: z.max(axis=1), lambda z: z[1:, ::2],
    lambda z: (z / 2).cumsum(axis=1), lambda z: z.rechunk((4, 8, 3)), lambda z: z[..., ::-1] * 3,
    lambda z: z.mean(), lambda z: z[:0],
]  # fmt: skip


@settings(max_examples=15)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3),
       st.sampled_from([(3, 2, 5), (2, 8, 5), (12, 4, 10), (1, 8, 2)]))  # fmt: skip
def test_values_of_datasets(operations: list[Callable[[Any], Any]], chunks: Any) -> None:
    arrays = [operation(pieces(chunks)) for operation in operations]
    subject = xr.Dataset(
        {f"v{k}": ([f"d{k}{axis}" for axis in range(each.ndim)], each)
         for k, each in enumerate(arrays)}
    )  # fmt: skip
    with gpusched.disable():
        expected = subject.compute()
    with gpusched.enable():
        assert dask.compute(subject)[0].identical(expected)


def test_what_joins() -> None:
    chunks = List(TaskRef(("x", 0)), TaskRef(("x", 1)))
    other = List(TaskRef(("y", 0)))
    assert joined(with_chunks(Task("f", finalize, chunks), [other])) == [other]
    for node in (Task("f", finalize, chunks, 1), Task("f", sum, chunks), chunks, None):
        assert not joined(node)
    array = xr.DataArray(
        da.ones(4, chunks=2), dims=["x"], coords={"c": ("x", da.zeros(4, chunks=2))}
    )
    function, rest = array.__dask_postcompute__()
    node = Task("f", function, List(chunks, other), *rest)
    assert joined(node) == (chunks, other)
    assert joined(with_chunks(node, [other, other])) == (other, other)
    # The same name, with another function that makes a dataset of it first.
    assert not joined(Task("f", function, List(chunks, other), rest[0], sum))
