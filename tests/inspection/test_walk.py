"""What two tasks must share to be taken for one kind, and arrays that stand in for others."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client

import gpusched
from gpusched import explain
from gpusched.backends.buffer_pool import owner
from gpusched.inspection.gather import gather
from gpusched.inspection.standins import extent, fresh
from gpusched.inspection.task_memory import held
from gpusched.inspection.walk import Walk

from .programs import numbers

LAYOUTS: dict[str, Any] = {
    "plain": np.zeros((4, 6)),
    "fortran": np.zeros((4, 6), order="F"),
    "strided": np.zeros((8, 6))[::2, 1:-1],
    "backwards": np.zeros((4, 6))[::-1, ::-2],
    "broadcast": np.broadcast_to(np.zeros(6), (4, 6)),
    "scalar": np.zeros(()),
    "empty": np.zeros((0, 3)),
    "bytes": np.zeros(7, "int8")[::3],
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_a_stand_in_is_of_the_same_kind(array: Any) -> None:
    other = fresh(array)
    assert (other.dtype, other.shape) == (array.dtype, array.shape)
    if array.size:
        assert other.strides == array.strides
    assert not np.may_share_memory(array, other)
    assert extent(other) == extent(array)
    assert not np.array(other).any()


def test_views_of_one_array_are_held_once() -> None:
    array = np.zeros(100)
    assert owner(array[10:][::2]) is array
    assert held([array, array[:50], array[50:]]) == 800
    assert held([array[:10], array[10:20]]) == 160


def test_what_lends_its_memory_need_not_be_an_array() -> None:
    class Lender(np.lib.mixins.NDArrayOperatorsMixin):
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

        def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
            return NotImplemented

    for lent in (np.asarray(Lender(np.zeros(10))), np.frombuffer(bytearray(80))):
        assert owner(lent[2:][::2]) is lent


def test_stand_ins_of_what_calls_make_take_no_memory() -> None:
    # Each of the joined chunks is of a kind of its own, as its pieces are cut at other places.
    x = da.zeros((4000, 4000), chunks=(90, 4000)).rechunk((4000, 90), method="tasks")
    walk = Walk(gather(x))
    before = psutil.Process().memory_info().rss
    walk.run()
    assert psutil.Process().memory_info().rss - before < x.nbytes / 2


def test_a_chunk_given_twice_is_another_kind() -> None:
    x = numbers((40, 40), 20)
    found = explain(x + x.T * 2)
    assert [stage.kinds for stage in found.stages if stage.kernels] == [2]


def test_constants_that_differ_are_other_kinds() -> None:
    def shifted(block: Any, block_id: Any = None) -> Any:
        return (block + block_id[0]) * 2

    found = explain(numbers((40, 20), 20).map_blocks(shifted, dtype=float))
    assert sum(stage.tasks_after for stage in found.stages) == 2


def test_chunks_of_other_shapes_are_other_kinds() -> None:
    found = explain((numbers((50, 20), 20) + 1) * 2)
    assert [stage.kinds for stage in found.stages] == [2]
    assert found.totals.bytes_moved == 2 * 50 * 20 * 8


def test_equal_chunks_of_many_files_are_one_kind() -> None:
    class Source:
        dtype = np.dtype("f8")
        shape = (20, 20)
        ndim = 2

        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("read")

    parts = [
        da.from_array(Source(), chunks=20, name=f"file-{k}", meta=np.empty((0, 0)))
        for k in range(5)
    ]
    found = explain(da.concatenate(parts) * 2 + 1)
    (stage,) = found.stages
    assert (stage.tasks_after, stage.kinds) == (5, 1)


def test_chunks_that_are_kept_on_a_cluster() -> None:
    # Chunks are told to be contiguous, and these are.
    here = da.random.default_rng(0).random((40, 40), chunks=20).persist(scheduler="sync")
    with Client(n_workers=1, processes=False, dashboard_address=":0"):
        there = here.persist()
        found, wanted = explain((there * 2 + 1).sum()), explain((here * 2 + 1).sum())
        kept = explain(there)
    assert [stage.kernels for stage in found.stages] == [stage.kernels for stage in wanted.stages]
    assert found.totals.bytes_least == wanted.totals.bytes_least
    assert (kept.stages, kept.totals.bytes_least) == ((), 2 * here.nbytes)


def test_labels_decide_how_many_groups_there_are() -> None:
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra interop-test")
    pytest.importorskip("flox", reason="flox comes with the extra interop-test")
    xr = pytest.importorskip("xarray", reason="xarray comes with the extra test")
    time = pd.date_range("2000-01-01", periods=730)
    data = xr.DataArray(da.ones((730, 40, 40), chunks=(-1, 40, 40)), dims=("time", "y", "x"),
                        coords={"time": time})  # fmt: skip
    with gpusched.enable():
        months = data.groupby("time.month")
        found = explain(months - months.mean())
    # Zeros would make one group, of which most months could not be taken.
    assert "chunk     12 x 40 x 40 float64" in str(found)
    assert "recording failed" not in str(found)
