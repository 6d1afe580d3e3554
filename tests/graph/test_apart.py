"""What is not put together is counted with its reason, by the run and by `explain` alike."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.adapters.tasks import Task, TaskRef, identity_cast
from gpusched.breaks import GraphBreak
from gpusched.graph.passes.table import PASSES
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.rewrite import translated
from gpusched.plan import shortage
from gpusched.store.statistics import reset_statistics, statistics


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with gpusched.enable(), dask.config.set(scheduler="sync"):
        reset_statistics()
        yield


def counted() -> dict[tuple[str, GraphBreak], int]:
    """Return what this process has counted, by kind."""
    return {(what, reason.kind): n for (what, reason), n in statistics().apart.items()}


def explained(array: da.Array) -> set[tuple[str, GraphBreak]]:
    """Return what `explain` says of it."""
    return {(each.what, GraphBreak[each.code]) for each in gpusched.explain(array).apart}


def rows(count: int = 4, length: int = 100) -> da.Array:
    """Return an array of that many chunks, of so many rows."""
    return da.from_array(np.ones((count * length, 100)), chunks=(length, 100))


def test_why_tasks_are_not_in_batches() -> None:
    array = rows() + 1
    dask.optimize(array)
    assert counted()["batch", GraphBreak.FEW_TASKS] > 0
    assert ("batch", GraphBreak.FEW_TASKS) in explained(array)


def test_large_chunks_are_not_in_batches() -> None:
    array = rows(8, 10)
    with dask.config.set({"gpusched.batching.least": 1, "gpusched.batching.chunk-bytes": 100}):
        dask.optimize((array + 1).sum(axis=0))
    assert counted()["batch", GraphBreak.LARGE] > 0


@pytest.mark.parametrize(
    ("setting", "kind"), [("1 GiB", GraphBreak.SMALL), (0, GraphBreak.FEW_TASKS)]
)
def test_why_tasks_are_not_merged(setting: object, kind: GraphBreak) -> None:
    array = rows()
    with dask.config.set({"gpusched.fusion.merge-bytes": setting}):
        dask.optimize(array - array.mean(axis=1, keepdims=True))
        assert ("merge", kind) in explained(array - array.mean(axis=1, keepdims=True))
    assert counted()["merge", kind] == 1


def test_too_few_chunks_for_the_threads_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.graph.passes.merging.threads", lambda: 1000)
    array = rows()
    mean = array.mean(axis=1, keepdims=True)
    with dask.config.set({"gpusched.fusion.merge-bytes": 1000}):
        dask.optimize(((array - mean) ** 2).sum(axis=1) + (array - mean).max(axis=1))
    assert counted()["merge", GraphBreak.FEW_CHUNKS] > 0


def test_annotated_tasks_are_not_cut() -> None:
    with dask.annotate(priority=1):
        array = rows() + 1
    dask.optimize(array[:1] + 1)
    assert counted()["cut", GraphBreak.ANNOTATED] == 1


def test_why_joined_chunks_and_small_results_stay_as_they_are() -> None:
    array = da.from_array(np.ones((2000, 100)), chunks=(1000, 100)).rechunk((2000, 100))
    assert ("join", GraphBreak.READ_WHOLE) in explained((array + 1).sum(axis=0))
    assert ("stream", GraphBreak.NO_GAIN) in explained(rows() * 2 + 1)


def test_every_reason_is_one_that_the_reference_has() -> None:
    array = rows()
    found = gpusched.explain((array - array.mean(axis=1, keepdims=True)) / 2)
    assert all(each.remedy == GraphBreak[each.code].remedy for each in found.apart)
    assert all(each.code in found.to_json() for each in found.apart)
    assert "Not put together" in found.text(details=True)


def test_pieces_are_not_cut_where_the_setting_is_off() -> None:
    with dask.config.set({"gpusched.fusion.merge-bytes": 0}):
        assert ("cut", GraphBreak.FEW_TASKS) in explained(rows()[:5] + 1)
    dask.optimize(rows()[:5] + 1)
    assert counted()["cut", GraphBreak.SMALL] == 1


def test_graphs_that_dask_does_not_fuse_are_noted_for_each_pass() -> None:
    with dask.config.set({"optimization.fuse.active": False}):
        dask.optimize(rows() + 1)
    assert {what for what, kind in counted() if kind is GraphBreak.FEW_TASKS} == set(PASSES)


def test_results_of_a_merged_task_are_no_pieces_of_a_chunk() -> None:
    """Their sizes, which nobody has asked for, are no reason for anything."""
    array = rows(length=4000)
    (found,) = dask.optimize((array - array.mean(axis=0)) / array.std(axis=0))
    assert any("merged" in str(key) for key in found.__dask_graph__())
    assert ("cut", GraphBreak.UNKNOWN_SIZE) not in counted()


def test_why_a_chunk_is_not_computed_in_parts() -> None:
    values = np.ones((100, 100))
    with shortage.in_pieces(4):
        (da.from_array(values, chunks=(100, 100)) + 1).sum(axis=0).compute()
        (da.from_array(values[:3], chunks=(3, 100)) + 1 - values[0]).compute()
    assert counted()["divide", GraphBreak.READ_WHOLE] >= 1
    assert counted()["divide", GraphBreak.SMALL] >= 1


def test_why_calls_without_kernels_do_not_run_on_tiles() -> None:
    with dask.config.set({"gpusched.fusion.compile": "off"}):
        ((rows() + 1) * 2 - 3).compute()
    assert counted()["tile", GraphBreak.SMALL] == 4


def test_a_task_of_a_form_of_its_own_is_a_break() -> None:
    call = Task(("y", 0), np.add, Task(None, identity_cast, TaskRef(("x", 0)), typ=set), 1)
    found = translated(call, Functions())
    assert found == (call, [])
    ((name, reason),) = statistics().breaks
    assert (name, reason) == ("add", "a container of type set")
    assert reason.kind is GraphBreak.FORM


def test_kernels_called_on_arrays_count_what_stays_apart() -> None:
    @gpusched.kernel
    def double(x: float) -> float:
        return x + x

    double(np.ones(1000))
    assert counted()["stream", GraphBreak.NO_GAIN] == 1


def test_only_sizes_that_dask_array_does_not_know_are_to_be_computed() -> None:
    array = rows(length=4000)
    with dask.config.set({"gpusched.batching.least": 1}):
        (found,) = dask.optimize((array - array.mean(axis=0)) / array.std(axis=0))
    assert any("merged" in str(key) for key in found.__dask_graph__())
    assert not any(kind is GraphBreak.UNKNOWN_SIZE for _, kind in counted())
    assert ("batch", GraphBreak.NO_SIZE) in counted()


def test_chunks_behind_a_mask_are_of_a_size_to_be_computed() -> None:
    array = rows(8, 4)
    with dask.config.set({"gpusched.batching.least": 1}):
        dask.optimize((array[array[:, 0] > 0] + 1).sum(axis=0))
    assert ("batch", GraphBreak.UNKNOWN_SIZE) in counted()
