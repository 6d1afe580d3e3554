"""Chunks in device memory that are NumPy's to the program: sent, spilled, pickled, and let go."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.protocol import deserialize, serialize

import gpusched.serialization
from gpusched import placed
from gpusched.graph.programs.program import Program
from gpusched.placed import Placed, hosted
from gpusched.plan.plan import Register
from gpusched.plan.shortage import in_pieces
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import statistics
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu

LAYOUTS = [
    np.arange(24.0).reshape(4, 6),
    np.asfortranarray(np.arange(24.0).reshape(4, 6)),
    np.arange(24.0).reshape(4, 6)[::-1, ::2],
    np.broadcast_to(np.arange(6.0), (4, 6)),
    np.empty((0, 3), "int32"),
    np.array(2.5),
    np.arange(100_000, dtype="float32"),
]


@pytest.fixture(scope="module")
def device() -> Any:
    from gpusched.workers.device.cuda import CudaDevice

    gpusched.serialization.register()
    return CudaDevice("")


@pytest.fixture
def mover(device: Any) -> Iterator[Any]:
    """Keep chunks on the device, as a worker that owns one does."""
    from gpusched.workers.task_inputs import CountingMover

    found = CountingMover(device.copies())
    placed.install(found)
    yield found
    placed.install(None)


@pytest.mark.parametrize("array", LAYOUTS, ids=lambda a: f"{a.shape}-{a.strides}")
def test_copies_have_the_values_and_the_strides(array: np.ndarray, mover: Any) -> None:
    copy = Placed(mover.to_device(array))
    assert (copy.shape, copy.dtype, copy.nbytes) == (array.shape, array.dtype, array.nbytes)
    np.testing.assert_array_equal(copy.to_host(), array)
    np.testing.assert_array_equal(np.asarray(copy), array)
    assert sizeof(copy) >= array.nbytes


@pytest.mark.parametrize("family", ["dask", "cuda", "pickle"])
@pytest.mark.parametrize("keeps", [True, False], ids=["on a GPU worker", "elsewhere"])
def test_sent_chunks_are_placed_on_workers_and_numpy_elsewhere(
    family: str, keeps: bool, mover: Any
) -> None:
    array = np.arange(24.0).reshape(4, 6).T
    header, frames = serialize(Placed(mover.to_device(array)), serializers=(family,))
    assert header["serializer"] == family
    placed.install(mover if keeps else None)
    found = deserialize(header, frames)
    assert type(found) is (Placed if keeps else np.ndarray)
    np.testing.assert_array_equal(hosted(found), array)


def test_results_in_collections_are_pickled_as_what_they_are_elsewhere(mover: Any) -> None:
    sent = pickle.dumps({"a": [Placed(mover.to_device(np.arange(3)))]})
    placed.install(None)
    found = pickle.loads(sent)
    assert type(found["a"][0]) is np.ndarray


def test_spilled_chunks_come_back_to_the_device(device: Any, mover: Any, tmp_path: Path) -> None:
    store = Store(device, SpillFiles(tmp_path))
    try:
        array = np.arange(1000.0)
        store["x"] = Placed(mover.to_device(array))
        assert store.held_on_device() == array.nbytes
        store.make_room(device_bytes=1).result()
        assert store.held_on_device() == 0
        store.make_room(host_bytes=1).result()
        assert store.held_on_host() == 0
        found = store["x"]
        assert type(found) is Placed
        np.testing.assert_array_equal(found.to_host(), array)
    finally:
        store.close()


def test_a_copy_takes_the_place_of_what_it_is_a_copy_of_alone(
    device: Any, mover: Any, tmp_path: Path
) -> None:
    store = Store(device, SpillFiles(tmp_path))
    try:
        first, other = np.arange(1000.0), np.ones(1000)
        copy = Placed(mover.to_device(first))
        store["x"] = other
        store.replace("x", first, copy)
        assert store["x"] is other
        store["x"] = first
        store.replace("x", first, copy)
        assert store["x"] is copy
        store.replace("y", first, copy)
        assert "y" not in store
    finally:
        store.close()


def test_what_is_one_chunk_stays_one_array(mover: Any) -> None:
    chunk = Placed(mover.to_device(np.arange(3)))
    first, (second,) = hosted((chunk, [chunk]))
    assert first is second


DOUBLE_PLUS_ONE = Program(
    (
        ProgramStep(operator.mul, (Register(0), 2), recorded=True),
        ProgramStep(operator.add, (Register(1), 1), recorded=True),
    ),
    inputs=1,
)


def run(mover: Any, program: Program, chunk: Any) -> Any:
    """Return what a worker keeps of a task."""
    with placed.lent(mover):
        return program(chunk)


def test_large_results_stay_on_the_device(mover: Any) -> None:
    found = run(mover, DOUBLE_PLUS_ONE, np.arange(100_000.0))
    assert type(found) is Placed
    again = run(mover, DOUBLE_PLUS_ONE, found)
    np.testing.assert_array_equal(again.to_host(), np.arange(100_000.0) * 4 + 3)


def test_small_chunks_are_computed_on_the_host(mover: Any) -> None:
    before = statistics()
    assert type(run(mover, DOUBLE_PLUS_ONE, np.arange(100.0))) is np.ndarray
    reasons = statistics().host_reasons - before.host_reasons
    assert reasons == {("mul", "small chunks"): 1}


def test_a_task_that_finds_no_room_computes_on_the_host(mover: Any) -> None:
    before = statistics()
    with in_pieces(16):
        found = run(mover, DOUBLE_PLUS_ONE, np.arange(100_000.0))
    np.testing.assert_array_equal(found, np.arange(100_000.0) * 2 + 1)
    reasons = statistics().host_reasons - before.host_reasons
    assert reasons == {("mul", "there was no room on the device"): 1}


def test_unfused_tasks_compute_on_the_device(mover: Any) -> None:
    before = statistics()
    program = Program(DOUBLE_PLUS_ONE.steps[:1], inputs=1)
    with dask.config.set({"gpusched.fusion.compile": "off"}):
        found = run(mover, program, np.ones(1_000_000, "int16"))
    assert type(found) is Placed
    np.testing.assert_array_equal(found.to_host(), np.full(1_000_000, 2, "int16"))
    assert statistics().host_reasons == before.host_reasons
    assert statistics().launches == before.launches
