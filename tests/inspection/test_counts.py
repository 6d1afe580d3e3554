"""An explanation says what then happens: the same tasks, kernels, launches and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, convert_legacy_graph
from dask.core import flatten
from dask.utils import ensure_dict

import gpusched
from gpusched import explain
from gpusched.backends.cache import kernels
from gpusched.graph import optimize
from gpusched.inspection.stages import count_tasks
from gpusched.store.statistics import reset_statistics, statistics
from tests.benchmarks import programs
from tests.record.gaps import PUSH
from tests.tiers import every

from .programs import PROGRAMS, numbers, with_gaps


def tasks_in(graph: Any) -> int:
    """Return the tasks of a graph, with every layer written out."""
    nodes = convert_legacy_graph(ensure_dict(graph)).values()
    return sum(isinstance(node, Task) for node in nodes)


@pytest.mark.parametrize("name", every(2, PROGRAMS))
def test_what_is_explained_is_what_runs(name: str) -> None:
    build = PROGRAMS[name]
    program = build()
    found = explain(program)
    reset_statistics()
    dask.compute(program, scheduler="sync")
    counted = statistics()
    assert {k.name: k.launches for k in found.kernels} == dict(counted.kernels)
    assert found.totals.launches == counted.launches
    # Counted there for each part of a task, where a call stands between two kernels.
    assert found.totals.fused_tasks <= counted.fused_tasks
    stops: Counter[tuple[str, str]] = Counter()
    for stop in found.breaks:
        if stop.counted:
            stops[stop.operation, stop.reason] += stop.tasks
    assert {k[0] for k in stops} == {k[0] for k in counted.breaks}


def sorted_twice(block: Any) -> Any:
    return np.apply_over_axes(np.sort, block, 0) * 2


STEPS: dict[str, Callable[[da.Array], da.Array]] = {
    "slice": lambda x: x[1:],
    "flip": lambda x: x[::-1],
    "turned": lambda x: x.T,
    "scaled": lambda x: x / (x.std(axis=0, keepdims=True) + 1),
    "sums": lambda x: x + x.sum(axis=1, keepdims=True),
    "total": lambda x: x.cumsum(axis=0),
    "filled": lambda x: with_gaps(x).map_blocks(PUSH, 2, 0),
    "taken": lambda x: x[np.arange(x.shape[0]) % 5],
    "joined": lambda x: x.rechunk(12),
    "elementwise": lambda x: da.sqrt(x * x + 1),
    "single": lambda x: x.clip(-0.7, 0.9),
    "halo": lambda x: x.map_overlap(lambda b: b * 2 + 1, depth=1, boundary="reflect"),
    "own": lambda x: x.map_blocks(lambda b: np.where(b > 0, b / 3, b * 7), dtype=x.dtype),
}
SETTINGS = {
    "minimum-elements": [0, 60, 4096],
    "single-operation-bytes": [0, 1, "4 MiB"],
    "merge-bytes": [0, 100, "1 MiB"],
    "maximum-operations": [3, 256],
}


@pytest.mark.parametrize("seed", every(4, range(48)))
def test_any_program_is_explained_as_it_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pieces of chunks are too small, too, and whatever the settings are."""
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    kernels.clear()
    random = Random(seed)
    settings = {f"gpusched.fusion.{name}": random.choice(v) for name, v in SETTINGS.items()}
    values = np.random.default_rng(seed).normal(size=(33, 24))
    with dask.config.set(settings):
        x = da.from_array(values, chunks=random.choice([(7, 8), (10, 24), (33, 5)]))
        for name in random.choices(list(STEPS), k=random.randrange(1, 6)):
            x = STEPS[name](x)
        if random.random() < 0.5:
            x = random.choice([da.sum, da.max, da.var])(x, axis=0)
        found = explain(x)
        reset_statistics()
        x.compute(scheduler="sync")
    kernels.clear()
    counted = statistics()
    launches: Counter[str] = Counter()
    for kernel in found.kernels:
        launches[kernel.name] += kernel.launches
    assert launches == counted.kernels
    stops: Counter[tuple[str, str]] = Counter()
    for stop in found.breaks:
        if stop.counted:
            stops[stop.operation, stop.reason] += stop.tasks
    assert stops == counted.breaks


def test_why_a_function_is_not_fused_whose_result_is_not_known() -> None:
    x = (numbers((20, 15), 20) ** 2).map_blocks(sorted_twice, dtype=float)
    found = explain(x.argmax(axis=0))
    assert any(stage.unknown for stage in found.stages)
    assert ("sorted_twice", "OWN_CALLS") in {(stop.operation, stop.code) for stop in found.breaks}


@pytest.mark.parametrize("name", every(2, PROGRAMS))
def test_bytes_of_kernels_are_those_that_are_counted(name: str) -> None:
    build = PROGRAMS[name]
    program = build()
    found = explain(program)
    in_kernels = [
        (stage.tasks_after * kernel.bytes_read, stage.tasks_after * kernel.bytes_written)
        for stage in found.stages
        for kernel in stage.kernels
        if stage.kinds == 1
    ]
    reset_statistics()
    dask.compute(program, scheduler="sync")
    counted = statistics()
    if all(stage.kinds == 1 or not stage.kernels for stage in found.stages):
        assert sum(read for read, _ in in_kernels) == counted.bytes_read
        assert sum(written for _, written in in_kernels) == counted.bytes_written


@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_tasks_are_those_that_compute_runs(name: str) -> None:
    pytest.importorskip("flox", reason="flox comes with the extra interop-test")
    with dask.config.set({"scheduler": "threads", "gpusched.batching.tasks": 0}), gpusched.enable():
        array = programs.PROGRAMS[name](8 << 20)()
        found = explain(array)
        ran = programs.tasks_of(array)
    # That which joins the chunks is not counted.
    assert ran - found.totals.tasks_after in (0, 1)


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_tasks_are_those_of_the_graphs(build: Callable[[], Any]) -> None:
    program = build()
    arrays = program if isinstance(program, list) else [program]
    found = explain(program)
    merged = dask.highlevelgraph.HighLevelGraph.merge(*(a.dask for a in arrays))
    assert found.totals.tasks_before == tasks_in(merged)
    keys = list(flatten([a.__dask_keys__() for a in arrays]))
    with dask.config.set({"gpusched.batching.tasks": 0}):
        assert found.totals.tasks_after == tasks_in(optimize(merged, keys))
    assert sum(stage.tasks_after for stage in found.stages) == found.totals.tasks_after
    assert sum(stage.tasks_before for stage in found.stages) <= found.totals.tasks_before


def test_a_layer_is_counted_without_being_written_out() -> None:
    x = numbers((40, 40), 10) + 1
    layer = x.dask.layers[x.name]
    assert count_tasks(layer) == 16
    assert not layer.is_materialized()


def test_chunks_of_one_kind_are_gone_through_once() -> None:
    x = numbers((1000,), 10)
    found = explain((x * 2 + 1.25) / 3.5)
    assert [stage.kinds for stage in found.stages] == [1]
    assert found.stages[0].tasks_after == 100


def test_bytes_by_hand() -> None:
    x, y = numbers((60, 40), (20, 20)), numbers((60, 40), (20, 20), seed=1)
    found = explain((x + y) * x - y)
    (stage,) = found.stages
    chunk = 20 * 20 * 8
    assert (stage.bytes_read, stage.bytes_written) == (2 * chunk, chunk)
    assert (stage.bytes_least_read, stage.bytes_least_written) == (2 * chunk, chunk)
    assert stage.bytes_total == found.totals.bytes_moved == 6 * 3 * chunk
    assert found.totals.bytes_least == 3 * 60 * 40 * 8
    assert stage.peak == 3 * chunk
    assert stage.operations == 3 * 400
    assert stage.intensity == pytest.approx(3 / 24)


def test_a_chunk_read_twice_is_more_than_the_least() -> None:
    x = numbers((40, 40), 20)

    def centred(block: Any) -> Any:
        return (block - block.mean()) * 2

    (stage,) = explain(x.map_blocks(centred)).stages
    chunk = 20 * 20 * 8
    assert len(stage.kernels) == 2
    assert stage.bytes_read == 2 * chunk + 8
    assert stage.bytes_least_read == chunk


def test_what_numpy_is_called_for_moves_bytes_too() -> None:
    x = numbers((40, 30), (20, 30))
    found = explain(PROGRAMS["unsafe"]())
    chunk = 20 * 30 * 8
    (stage,) = found.stages
    # Two kernels, and the user's function between them, of which arguments and result are known.
    assert stage.bytes_read == 3 * chunk
    assert stage.bytes_written == 3 * chunk
    assert not stage.bytes_exact
    assert x.nbytes == 2 * chunk


def test_memory_holds_everything_that_is_alive_at_once() -> None:
    found = explain(PROGRAMS["unsafe"]())
    # Input, the function's argument and its result; then the last kernel's for the argument's.
    assert found.stages[0].peak == 3 * 20 * 30 * 8
    assert not found.stages[0].peak_exact


def test_halo_is_counted_once() -> None:
    found = explain(PROGRAMS["overlap"]())
    stage = next(stage for stage in found.stages if stage.kernels)
    assert stage.kernels[0].bytes_read == 22 * 22 * 8


def test_broadcast_chunks_are_as_small_as_they_are() -> None:
    x = da.ones((40, 40), chunks=20).persist(scheduler="sync")
    (stage,) = explain((x + 1) * 2).stages
    assert stage.bytes_read == 8
    assert np.prod((20, 20)) * 8 == stage.bytes_written


def test_broadcast_chunks_that_are_made_are_as_small() -> None:
    (stage,) = explain((da.ones((40, 40), chunks=20) + 1) * 2).stages
    assert stage.bytes_written == 8 + 20 * 20 * 8


def test_links_say_why_a_result_is_written() -> None:
    x = numbers((60, 40), 20)
    shared = (x * 2 + 1) ** 2
    found = explain(shared + shared.sum())
    reasons = {use.reason for stage in found.stages for use in stage.boundaries}
    assert "each task needs several of its chunks" in reasons
    assert "2 stages use it" in reasons


class Stored:
    """An array that is kept elsewhere, as Zarr's and HDF5's are."""

    shape, dtype, ndim = (400, 400), np.dtype("f8"), 2
    nbytes = 400 * 400 * 8

    def __getitem__(self, index: Any) -> Any:
        return np.ones(self.shape)[index]


def test_a_chunk_reads_no_more_of_a_source_than_it_takes() -> None:
    x = da.from_array(Stored(), chunks=100)
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = explain(x * 2 + 1)
    # Read from the source, written as a chunk, read by the kernel, and written by it.
    assert found.totals.bytes_moved == 4 * Stored.nbytes
    assert found.totals.bytes_least == 2 * Stored.nbytes
