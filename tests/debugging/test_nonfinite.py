"""The first NaN or inf is found where it arose, without gathering the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from dask.callbacks import Callback
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.debugging import graph as graphs
from gpusched.debugging.check import Bad, nonfinite
from gpusched.debugging.nonfinite import Nonfinite
from tests.inspection.programs import numbers

pytestmark = pytest.mark.filterwarnings(
    "ignore:(divide by zero|invalid value|overflow) encountered:RuntimeWarning"
)


def found(x: Any) -> Nonfinite:
    result = gpusched.find_nonfinite(x)
    assert result is not None
    return result


@pytest.fixture
def x() -> da.Array:
    x = da.from_array(np.arange(1600.0).reshape(40, 40), chunks=10)
    return x


def test_all_finite(x: da.Array) -> None:
    assert gpusched.find_nonfinite((x * 2 + 1).sum()) is None
    assert gpusched.find_nonfinite(x.astype(int) + 1) is None
    assert gpusched.find_nonfinite(da.zeros((0, 3), chunks=3)) is None


def test_it_arose_in_an_operation_of_a_kernel(x: da.Array) -> None:
    first = found(np.log(x - 820) * 2 + 1)
    # In the order of chunks, not of elements.
    assert (first.chunk, first.index) == ((0, 0), (0, 0))
    single = found(1 / (x - 820) * 2 + 1)
    assert (single.chunk, single.index, single.operation) == ((2, 2), (20, 20), "divide")
    assert (single.nans, single.infs, single.chunks) == (0, 1, 1)
    assert single.place is not None and single.place.text.startswith("single = found(1 /")
    assert not single.already_in_input


def test_it_was_in_the_input_already() -> None:
    values = np.ones((40, 40))
    values[33, 5] = np.nan
    first = found((da.from_array(values, chunks=10) * 2 - 1).std(axis=0))
    assert (first.already_in_input, first.chunk, first.index) == (True, (3, 0), (33, 5))
    assert "was already in the input" in first.text()
    assert found(da.from_array(values, chunks=10)).already_in_input
    assert found(da.from_array(values, chunks=10).persist() + 1).index == (33, 5)


def test_it_arose_in_a_function_that_is_not_fused(x: da.Array) -> None:
    def spoilt(block: Any) -> Any:
        block = np.apply_over_axes(np.sort, block, 0)
        block[4, 3] = np.inf
        return block

    first = found((x * 2 + 1).map_blocks(spoilt, dtype=float))
    assert (first.operation, first.index, first.infs) == ("spoilt", (4, 3), 16)
    assert first.place is not None and first.place.text == "def spoilt(block: Any) -> Any:"


def test_the_argument_of_a_reduction_is_looked_into(x: da.Array) -> None:
    total = (1 / (x - 820)).sum()
    first = found(total)
    assert (first.operation, first.element, first.chunk) == ("divide", "x[20, 20]", (2, 2))


def test_a_sum_that_overflows() -> None:
    x = da.from_array(np.full((40, 40), 1e307), chunks=20)
    first = found((x * 1.5 + 1).sum())
    assert first.operation == "add"
    assert "all that it joins is finite" in first.text()


def test_joining_partial_results() -> None:
    x = da.from_array(np.full((40, 40), 1e305), chunks=20)
    first = found((x + x * 2).sum())
    assert (first.operation, first.chunk) == ("sum", ())


def test_what_does_not_reach_the_result_is_left_out(x: da.Array) -> None:
    inverse = 1 / (x - 820)
    assert gpusched.find_nonfinite(da.where(np.isinf(inverse), 0, inverse)) is None
    values = np.ones((40, 40))
    values[33, 5] = np.nan
    assert gpusched.find_nonfinite(da.nanmean(da.from_array(values, chunks=10))) is None


def test_the_first_of_several_sources(x: da.Array) -> None:
    early = 1 / (x - 820)
    late = np.sqrt(early.sum() - x)
    assert found(late).operation == "divide"


def test_through_moved_chunks(x: da.Array) -> None:
    moved = (1 / (x - 820)).rechunk((40, 5)).T[::-1]
    first = found(moved * 2)
    assert (first.operation, first.index) == ("divide", (20, 20))


def test_values_that_differ_each_time() -> None:
    first_time = [True]

    def once(block: Any) -> Any:
        result = np.sort(block)
        if first_time and block.size:
            result[3] = np.nan
            first_time.clear()
        return result

    y = da.ones(40, chunks=40).map_blocks(once, dtype=float, meta=np.ones(0))
    with pytest.raises(RuntimeError, match="gives other values each time"):
        gpusched.find_nonfinite(y)


def test_read_from_files(tmp_path: Path) -> None:
    values = np.ones((40, 40))
    values[33, 5] = np.nan
    kept = zarr.open_array(tmp_path / "values.zarr", mode="w", shape=(40, 40), chunks=(20, 20))
    kept[:] = values
    first = found((da.from_zarr(kept) * 2 - 1).sum(axis=1))
    assert (first.already_in_input, first.index) == (True, (33, 5))
    assert "read from a source of type Array" in first.text()


def test_xarray(x: da.Array) -> None:
    labelled = xr.DataArray(x, dims=("y", "x"))
    assert found(1 / (labelled - 820)).index == (20, 20)


def test_forms(x: da.Array) -> None:
    first = found(1 / (x - 820))
    assert (first.index, first.value, first.operation) == ((20, 20), np.inf, "divide")
    assert "<- first that is not finite" in first.text()
    assert repr(first) == str(first) == first.text()


@given(
    places=st.sets(st.tuples(st.integers(0, 39), st.integers(0, 39)), min_size=1, max_size=4),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
    chunks=st.integers(3, 40),
    reduced=st.booleans(),
)
def test_any_place(places: set[tuple[int, int]], value: float, chunks: int, reduced: bool) -> None:
    values = np.ones((40, 40))
    for place in places:
        values[place] = value
    y = da.from_array(values, chunks=chunks) * 2 - 1
    first = found(y.sum(axis=0) if reduced else y)
    blocks = {(place[0] // chunks, place[1] // chunks) for place in places}
    assert first.already_in_input
    assert first.index in places
    assert first.chunk in blocks
    if not reduced:
        assert first.nans + first.infs == len(places)
        assert first.chunk == min(blocks)


def test_little_is_gathered_and_chunks_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[Any] = []
    alive: list[int] = []

    def get(graph: Any, keys: Any, **options: Any) -> Any:
        results = dask.get(graph, keys, **options)
        gathered.extend(results)
        return results

    def count(key: Any, value: Any, graph: Any, state: Any, thread: Any) -> None:
        alive.append(sum(isinstance(v, np.ndarray) for v in state["cache"].values()))

    monkeypatch.setattr(graphs, "get_scheduler", lambda **options: get)
    x = da.random.default_rng(0).random((400, 400), chunks=20)
    y = 1 / (x - x.max())
    with Callback(posttask=count):
        first = found(y.sum())
    assert first.operation == "divide"
    large = [value for value in gathered if isinstance(value, np.ndarray) and value.size > 1]
    assert len(large) <= 1
    assert len(gathered) > 400
    # The maximum needs all chunks, and so does what comes after it: 400 of them, not more.
    assert max(alive) < 2 * 400


def test_on_a_cluster(x: da.Array) -> None:
    with (
        dask.config.set(scheduler=None),
        Client(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0",
            set_as_default=True,
        ) as client,
    ):  # fmt: skip
        kept = client.persist(1 / (numbers((40, 40), 10) - 0.5))
        assert gpusched.find_nonfinite((kept * 2).sum()) is None
        inverse = 1 / (x - 820)
        assert found(inverse.sum()).index == (20, 20)
        persisted = inverse.persist()
        later = found((persisted * 2).sum())
        assert (later.already_in_input, later.index) == (True, (20, 20))
        y = kept * 2 + 1
        assert gpusched.debug(y, (3, 4), stop="never") == y[3, 4].compute()
        assert gpusched.trace_element(y, (3, 4)).value == y[3, 4].compute()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.ones(3), None),
        (np.array([1, np.nan, -np.inf], "float32"), Bad(1, 1, 0, (1,))),
        (np.float64("nan"), Bad(1, 0, 0, ())),
        (np.array(np.inf), Bad(0, 1, 0, ())),
        ({"n": np.ones(2), "total": [np.array([[1.0, np.inf]])]}, Bad(0, 1, 1, (0, 1))),
        (np.array([1, complex(0, np.nan)]), Bad(1, 0, 0, (1,))),
        (np.ma.array([np.nan, 1.0], mask=[True, False]), None),
        (np.ma.array([1.0, np.inf], mask=[True, False]), Bad(0, 1, 0, (1,))),
        (np.array(["NaT"], "M8[s]"), None),
        (np.array([None, np.nan], object), None),
        (np.zeros((0, 3)), None),
        (None, None),
    ],
)
def test_what_a_worker_says_of_a_chunk(value: Any, told: Bad | None) -> None:
    assert nonfinite(value) == told
