"""What NumPy programs may notice of device memory: nothing, at the places where they could."""

from __future__ import annotations

import operator
import pickle
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import List, Task, TaskRef
from distributed.protocol import deserialize, serialize

import gpusched
from gpusched import placed
from gpusched.backends.cuda import runtime
from gpusched.cluster.statistics import difference
from gpusched.emit import floatingpoint
from gpusched.graph.placement.devicechoice import LEAVES, SMALL
from gpusched.graph.placement.placing import DeviceRequiredError
from gpusched.graph.programs.program import Program
from gpusched.graph.running import decisions
from gpusched.graph.running.segment import REPORTED
from gpusched.placed import Placed, hosted
from gpusched.plan.plan import Register
from gpusched.plan.shortage import in_pieces
from gpusched.record.steps import ProgramStep
from gpusched.serialization import codec
from gpusched.serialization.arrays import cupy as arrays
from gpusched.store import background, worthwhile
from gpusched.store.statistics import Statistics
from tests.differential.running import EVERY_CHUNK
from tests.placing.__main__ import always, differences
from tests.placing.gpuworker import GpuWorker, gpu_worker
from tests.waiting import PATIENCE

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu

SIZE = 64 * 512


@pytest.fixture(scope="module")
def worker() -> Iterator[GpuWorker]:
    with gpu_worker() as found:
        yield found


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    with gpusched.enable():
        yield


def host() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((64, 512))


def chunks() -> da.Array:
    """Return chunks that a task makes on the device."""
    return da.from_array(host(), chunks=(32, 512)) * 2 + 1


def counted(call: Callable[[], Any]) -> tuple[Any, Statistics]:
    before = gpusched.statistics()
    found = call()
    return found, difference({0: gpusched.statistics()}, {0: before})


def on_device(worker: GpuWorker, array: np.ndarray) -> Placed:
    return Placed(worker.mover.to_device(array))


@pytest.mark.parametrize(("compilation", "first"), [("wait", 40), ("off", 140)])
def test_random_programs_give_what_plain_dask_gives(
    compilation: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EVERY_CHUNK, "gpusched.fusion.compile", compilation)
    counts, failed = differences(first, cases=12)
    assert not failed, [r.found for r in failed]
    assert counts.cases == 24


def _type_of(block: np.ndarray) -> np.ndarray:
    kept = [type(block)]  # Not recorded: it makes a list of a chunk's type.
    return np.full(block.shape, float(kept == [np.ndarray]))


def test_graphs_that_are_optimised_twice_stay_on_the_device(worker: GpuWorker) -> None:
    (first,) = dask.optimize(chunks())
    found, counts = counted(lambda: ((first - 3) * 2).compute(scheduler=worker.get))
    np.testing.assert_array_equal(found, (host() * 2 + 1 - 3) * 2)
    assert (counts.device_tasks, counts.host_tasks) == (4, 0)
    assert counts.bytes_to_device == found.nbytes
    seen = first.map_blocks(_type_of, dtype=float).compute(scheduler=worker.get)
    assert (seen == 1).all()


def optimised(x: da.Array) -> da.Array:
    (found,) = dask.optimize(x)
    return found


OPTIMISED_BEFORE: dict[str, Callable[[da.Array, Any], Any]] = {
    "computed": lambda x, get: optimised(x).compute(scheduler=get),
    "persisted": lambda x, get: optimised(x).persist(scheduler=get).compute(scheduler=get),
    "stored": lambda x, get: stored(optimised(x), get),
    "shown in another way": lambda x, get: optimised(x).T.compute(scheduler=get).T,
    "twice": lambda x, get: optimised(optimised(x)).compute(scheduler=get),
    "with functions": lambda x, get: optimised(x).map_blocks(_type_of).compute(scheduler=get),
}


def stored(x: da.Array, get: Any) -> np.ndarray:
    target = np.empty(x.shape)
    da.store(x, target, scheduler=get)
    return target


@pytest.mark.parametrize("blocks", [2, 40], ids=["few nodes", "many nodes"])
@pytest.mark.parametrize("how", OPTIMISED_BEFORE)
def test_what_was_optimised_before_is_computed_on_the_device(
    how: str, blocks: int, worker: GpuWorker
) -> None:
    values = np.tile(host(), (blocks // 2, 1))
    x = da.from_array(values, chunks=(32, 512)) * 2 + 1
    found, counts = counted(lambda: OPTIMISED_BEFORE[how](x, worker.get))
    assert counts.device_tasks >= blocks
    wanted = np.ones_like(values) if how == "with functions" else values * 2 + 1
    np.testing.assert_array_equal(found, wanted)


def test_programs_inside_of_other_tasks_are_counted_where_they_run(worker: GpuWorker) -> None:
    x = optimised(chunks())
    with gpusched.disable():
        found, counts = counted(lambda: x.map_blocks(_type_of).compute(scheduler=worker.get))
    np.testing.assert_array_equal(found, np.ones_like(host()))
    assert counts.host_tasks == 2


def test_what_a_task_computes_itself_lies_in_host_memory(worker: GpuWorker) -> None:
    def nested(block: np.ndarray) -> np.ndarray:
        own = da.from_array(np.ones(block.shape), chunks=(16, 512)) * 2 + 1
        kinds = own.map_blocks(_type_of, dtype=float).compute(scheduler="sync")
        return np.asarray(block * 0 + kinds)

    found = chunks().map_blocks(nested, dtype=float).compute(scheduler=worker.get)
    assert (found == 1).all()


def run(worker: GpuWorker, task: Any, **inputs: Any) -> Any:
    return worker.compute({**inputs, "result": task})["result"]


def test_collections_with_what_no_gpu_holds(worker: GpuWorker) -> None:
    objects = np.array([None, "a"])
    graph = {"a": on_device(worker, host()), "b": objects}
    found = hosted(run(worker, List(TaskRef("a"), TaskRef("b")), **graph))
    np.testing.assert_array_equal(found[0], host())
    assert found[1] is objects


def test_joins_with_masked_arrays_give_what_numpy_gives(worker: GpuWorker) -> None:
    other = np.ma.masked_less(host(), 0)
    task = Task("result", np.concatenate, List(TaskRef("a"), TaskRef("b")))
    found = run(worker, task, a=on_device(worker, host()), b=other)
    expected = np.concatenate([host(), other])
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected)


INDICES = [(3, 4), (slice(3), [1, 600]), ([64],), (np.array([1, 3]), slice(None)), (slice(2), -513),
           (slice(None, None, 2), None, 7), (Ellipsis, 3, 3)]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["task", "program"])
def test_indices_give_what_numpy_gives(index: Any, inside: bool, worker: GpuWorker) -> None:
    step = ProgramStep(operator.getitem, (Register(0), Register(1)))
    function = Program((step,), inputs=2) if inside else operator.getitem
    task = Task("result", function, TaskRef("a"), index)
    with always():
        try:
            expected = host()[index]
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error).split(" for")[0]):
                run(worker, task, a=on_device(worker, host()))
            return
        found = hosted(run(worker, task, a=on_device(worker, host())))
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("function", [partial(np.repeat, repeats=np.arange(64), axis=0),
                                      partial(np.roll, shift=(1, 2), axis=(0, 1)),
                                      partial(np.ravel, order="K"),
                                      partial(np.broadcast_to, shape=(2, 64, 512), subok=True)],
                         ids=["repeat", "roll", "ravel", "broadcast_to"])  # fmt: skip
def test_arguments_that_cupy_refuses_give_what_numpy_gives(
    function: Any, worker: GpuWorker
) -> None:
    with always():
        found = run(worker, Task("result", function, TaskRef("a")), a=on_device(worker, host()))
    np.testing.assert_array_equal(hosted(found), function(host()))


def test_joining_without_room_on_the_device_is_done_on_the_host(worker: GpuWorker) -> None:
    task = Task("result", np.concatenate, List(TaskRef("a"), TaskRef("a")))
    with in_pieces(16):
        found = run(worker, task, a=on_device(worker, host()))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, np.concatenate([host(), host()]))


def _strict(block: np.ndarray) -> np.ndarray:
    with np.errstate(divide="raise"):
        return 1 / (block - block) + 2


def test_errors_that_errstate_raises_are_raised(worker: GpuWorker) -> None:
    x = da.ones((64, 512), chunks=(32, 512)).map_blocks(_strict, dtype=float)
    with pytest.raises(FloatingPointError, match="divide by zero"):
        x.compute(scheduler=worker.get)


def _bounded(block: np.ndarray) -> np.ndarray:
    return np.minimum(block * 2 + 1, np.float64(1e308) * 10)


def test_errors_of_a_tasks_own_numbers_are_reported(worker: GpuWorker) -> None:
    found = []
    for _ in range(2):  # Recorded, and from the plan.
        x = optimised(chunks()).map_blocks(_bounded, dtype=float)
        with pytest.warns(RuntimeWarning, match="overflow encountered in scalar multiply"):
            found.append(counted(lambda x=x: x.compute(scheduler=worker.get)))
    for values, counts in found:
        np.testing.assert_array_equal(values, (host() * 2 + 1) * 2 + 1)
        assert (counts.device_tasks, counts.host_tasks) == (2, 2)
        assert counts.host_reasons == {("_bounded", REPORTED): 2}


def _next(block: np.ndarray) -> np.ndarray:
    return np.nextafter(block, 0)  # No call of CuPy's takes its place.


def _writes(block: np.ndarray) -> np.ndarray:
    block[0] = 7
    return block


def test_writing_to_a_chunk_changes_what_plain_dask_changes(worker: GpuWorker) -> None:
    x = chunks().map_blocks(_writes, dtype=float) * 2
    with gpusched.disable():
        expected = x.compute(scheduler="sync")
    np.testing.assert_array_equal(x.compute(scheduler=worker.get), expected)


def test_a_device_is_required_where_there_is_none() -> None:
    with dask.config.set({"gpusched.device": "require"}):
        with pytest.raises(DeviceRequiredError, match="no worker that owns a GPU"):
            chunks().compute(scheduler="sync")
        own = da.from_array(cupy.ones(SIZE), chunks=SIZE // 2, asarray=False) * 2 + 1
        assert type(own.compute(scheduler="sync")) is cupy.ndarray


@pytest.mark.parametrize(("function", "on_device"), [(np.negative, 6), (_next, 0)],
                         ids=["by calls", "without calls"])  # fmt: skip
@pytest.mark.parametrize("compilation", ["background", "wait"])
def test_kernels_that_cannot_be_compiled_are_said_once_and_counted(
    compilation: str, function: Any, on_device: int, worker: GpuWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fail(*_: Any) -> Any:
        raise AttributeError("told by the test")

    monkeypatch.setattr(runtime.GpuRuntime, "compile", fail)
    monkeypatch.setattr(worthwhile, "gain", lambda *_: 1.0)
    decisions._has_warned.clear()
    settings = {"gpusched.fusion.strict": False, "gpusched.fusion.cache-directory": None,
                "gpusched.fusion.compile": compilation}  # fmt: skip

    # Other kernels for each: what cannot be compiled is known of them.
    number = 7.5 + len(compilation)
    x = da.from_array(host(), chunks=(32, 512)) * 2.125 - number

    def compute() -> Any:
        return x.map_blocks(function, dtype=float).compute(scheduler=worker.get)

    with always(), dask.config.set(settings), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compute()
        assert background.join(PATIENCE)
        found, counts = counted(lambda: [compute() for _ in range(3)])
    np.testing.assert_array_equal(found[-1], function(host() * 2.125 - number))
    (said,) = [each for each in told if each.category is decisions.GpuFallbackWarning]
    assert ("by CuPy" if on_device else "by NumPy") in str(said.message)
    assert (counts.device_tasks, counts.host_tasks) == (on_device, 6 - on_device)
    noted = counts.breaks if on_device else counts.host_reasons
    assert noted == {(function.__name__, "compilation failed"): 6}
    ((_, why),) = noted
    assert why.detail == "AttributeError: told by the test"


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have kernels not compiled, and none asked for."""
    monkeypatch.setattr(worthwhile, "gain", lambda *_: -1.0)
    settings = {"gpusched.fusion.cache-directory": None, "gpusched.fusion.compile": "background"}
    with dask.config.set(settings):
        yield


def reduced(x: da.Array) -> da.Array:
    return (x * 2.375 - 7.25).sum(axis=0) + (x * 3.375 - 6.25).max(axis=0)


@pytest.mark.usefixtures("uncompiled")
def test_calls_of_cupy_compute_on_the_device_while_kernels_are_missing(worker: GpuWorker) -> None:
    x = da.from_delayed(dask.delayed(host)(), (64, 512), dtype=float)
    with gpusched.disable():
        expected = reduced(x).compute(scheduler="sync")
    reduced(x).compute(scheduler=worker.get)
    floatingpoint.note(floatingpoint.INVALID)  # Of a task that has failed since.
    found, counts = counted(lambda: reduced(x).compute(scheduler=worker.get))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert type(found) is np.ndarray and counts.repeats == 0
    assert (counts.launches, counts.unfused_tasks) == (0, counts.device_tasks)
    assert counts.device_tasks == 2
    assert set(counts.host_reasons.values()) == {1}
    assert {reason for _, reason in counts.host_reasons} == {LEAVES, SMALL}
    assert counts.bytes_to_device == x.nbytes


@pytest.mark.usefixtures("uncompiled")
def test_tasks_that_ask_for_a_value_run_on_the_device_while_kernels_are_missing(
    worker: GpuWorker,
) -> None:
    x = da.from_delayed(dask.delayed(host)(), (64, 512), dtype=float)
    y = da.nanmax(x * 2, axis=0)  # NumPy warns of a column of NaN.
    with gpusched.disable():
        expected = y.compute(scheduler="sync")
    found, counts = counted(lambda: y.compute(scheduler=worker.get))
    np.testing.assert_array_equal(found, expected)
    assert (counts.launches, counts.host_tasks) == (0, 0)
    assert counts.device_tasks > 0


@pytest.mark.usefixtures("uncompiled")
def test_chunks_stay_on_the_host_where_so_many_calls_take_longer(worker: GpuWorker) -> None:
    x = da.from_delayed(dask.delayed(lambda: host()[:8])(), (8, 512), dtype=float)
    y = x
    for k in range(12):
        y = y * (1 + k) - k
    with gpusched.disable():
        expected = y.compute(scheduler="sync")
    found, counts = counted(lambda: y.compute(scheduler=worker.get))
    np.testing.assert_array_equal(found, expected)
    assert (counts.device_tasks, counts.bytes_to_host) == (0, 0)
    reasons = [reason for _, reason in counts.host_reasons if reason.kind is not LEAVES.kind]
    assert reasons == ["its kernels are not compiled yet"]


def test_chunks_that_arrive_without_room_on_the_device_are_numpy_arrays(
    worker: GpuWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise cupy.cuda.memory.OutOfMemoryError(1 << 30, 1 << 20)

    chunk = on_device(worker, host())
    header, frames = serialize(chunk, serializers=("dask",))
    pickled = pickle.dumps(chunk)
    monkeypatch.setattr(placed, "_mover", worker.mover)
    monkeypatch.setattr(codec, "to_device", full)
    monkeypatch.setattr(arrays, "unpack_to_device", full)
    for found in (deserialize(header, frames), pickle.loads(pickled)):
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, host())


@pytest.mark.parametrize("build", [lambda x: x.argmax(axis=1), lambda x: x.argmin(axis=0),
                                   lambda x: x.argmax(), lambda x: x.map_blocks(np.sort, axis=1)],
                         ids=["argmax", "argmin", "argmax of all", "sort"])  # fmt: skip
def test_functions_that_cupy_has_run_on_the_device(
    build: Callable[[da.Array], da.Array], worker: GpuWorker
) -> None:
    values = host().round(1)  # With equal ones.
    values[3, 5] = np.nan
    x = da.from_array(values, chunks=(32, 512)) * 2 + 1
    with gpusched.disable():
        expected = build(x).compute(scheduler="sync")
    found, counts = counted(lambda: build(x).compute(scheduler=worker.get))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert counts.device_tasks == 2
    assert counts.bytes_to_device == x.nbytes


LIBRARIES: dict[str, Callable[[da.Array], da.Array]] = {
    "matmul": lambda x: x @ x.T,
    "dot": lambda x: da.dot(x.T, x),
    "tensordot": lambda x: da.tensordot(x, x, axes=([1], [1])),
    "einsum": lambda x: da.einsum("ij,kj->ik", x, x),
    "fft": lambda x: da.fft.fft(x, axis=1),
    "irfft": lambda x: da.fft.irfft(x, n=40, axis=1),
    "rfft2": lambda x: da.fft.rfft2(da.stack([x, x]).rechunk((1, 64, 512))),
    "ihfft": lambda x: da.fft.ihfft(x, axis=1),
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_products_and_transforms_are_cudas_libraries(
    name: str, dtype: str, worker: GpuWorker
) -> None:
    x = (da.from_array((host() * 9).astype(dtype), chunks=(32, 512)) * 2) + 1
    with gpusched.disable():
        expected = LIBRARIES[name](x).compute(scheduler="sync")
    with always():
        found, counts = counted(lambda: LIBRARIES[name](x).compute(scheduler=worker.get))
    assert found.dtype == expected.dtype
    scale = abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0,
                               atol=2e-6 if dtype == "f4" else 1e-13)  # fmt: skip
    reasons = {str(reason) for _, reason in counts.host_reasons}
    names = {name for name, reason in counts.host_reasons if reason not in (SMALL, LEAVES)}
    names.discard("sum")  # Of the sum of products.
    refused = names or {each for each in reasons if "needs NumPy arrays" in each}
    assert bool(refused) == (dtype == "i4"), reasons
    assert dtype == "i4" or counts.device_tasks >= 2


@pytest.mark.parametrize("name", ["matmul", "fft"])
def test_chunks_that_are_loaded_go_to_cudas_libraries(name: str, worker: GpuWorker) -> None:
    """Also where no kernel of gpusched's has anything to do with them."""
    # Sums of products are kernels, of chunks that are not small.
    x = da.from_array(host(), chunks=(64, 256) if name == "matmul" else (32, 512))
    with gpusched.disable():
        expected = LIBRARIES[name](x).compute(scheduler="sync")
    with always():
        found, counts = counted(lambda: LIBRARIES[name](x).compute(scheduler=worker.get))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    assert counts.device_tasks >= 2 and counts.host_tasks == 0


def test_tasks_with_calls_on_the_host_count_as_the_hosts(worker: GpuWorker) -> None:
    x = da.exp(da.from_array(host(), chunks=(32, 512)) * 2).map_blocks(_type_of, dtype=float)
    with always():
        _, counts = counted(lambda: x.compute(scheduler=worker.get))
    assert (counts.device_tasks, counts.host_tasks) == (0, 2)


def test_chunks_that_the_host_needs_again_are_not_copied(worker: GpuWorker) -> None:
    x = (da.from_array(host(), chunks=(32, 512)) * 2).map_blocks(_type_of, dtype=float)
    _, counts = counted(lambda: x.compute(scheduler=worker.get))
    assert (counts.device_tasks, counts.bytes_to_device, counts.bytes_to_host) == (0, 0, 0)


def test_pieces_of_chunks_are_cut_on_the_device(worker: GpuWorker) -> None:
    def smooth(block: np.ndarray) -> np.ndarray:
        return (block[:-2] + block[1:-1] + block[2:]) / 3

    x = chunks()
    y = x.map_overlap(smooth, depth={0: 1, 1: 0}, boundary="reflect", trim=False, dtype=float,
                      chunks=x.chunks)  # fmt: skip
    with gpusched.disable():
        expected = y.compute(scheduler="sync")
    found, counts = counted(lambda: y.compute(scheduler=worker.get))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert counts.host_tasks == 0
    assert counts.bytes_to_device < 1.1 * x.nbytes  # Halos are small, and cross over twice.


BATCHED = {"gpusched.batching.least": 4}
"""So that graphs of some dozens of tasks are batched."""


def tiny_chunks() -> da.Array:
    """Return 16 chunks of 8 kB."""
    return da.from_array(np.tile(host(), (8, 1)), chunks=(32, 512))


def test_tasks_of_a_batch_run_on_the_device(worker: GpuWorker) -> None:
    def program() -> da.Array:
        y = da.exp(tiny_chunks()) * 2
        return y[:, ::-1] - y.mean(axis=1, keepdims=True)

    with gpusched.disable():
        expected = program().compute(scheduler="sync")
    with dask.config.set(BATCHED):
        (graph,) = dask.optimize(program())
    names = [getattr(getattr(node, "func", None), "__name__", "") for node in graph.dask.values()]
    assert any("batch-of" in name for name in names)
    found, counts = counted(lambda: worker.get(graph.dask, graph.__dask_keys__()))
    np.testing.assert_allclose(np.block(found), expected, rtol=1e-12)
    assert counts.device_tasks >= 16
    assert counts.host_reasons == {}
    assert counts.bytes_to_device == expected.nbytes + 512 * 8  # And the means.


def _pieces(step: int) -> da.Array:
    """Return what takes a piece of a chunk of 128 kB in each of its many tasks."""
    x = chunks().rechunk((64, 512))
    return da.concatenate([x[k : k + step] * 2.5 - 1 for k in range(0, 64, step)])


@pytest.mark.parametrize("batched", [False, True], ids=["tasks", "batches"])
@pytest.mark.parametrize("step", [1, 16], ids=["few elements", "many elements"])
def test_it_is_the_piece_of_a_chunk_that_decides(
    step: int, batched: bool, worker: GpuWorker
) -> None:
    with gpusched.disable():
        expected = _pieces(step).compute(scheduler="sync")
    with dask.config.set(BATCHED if batched else {"gpusched.batching.tasks": 0}):
        (graph,) = dask.optimize(_pieces(step))
    found, counts = counted(lambda: worker.get(graph.dask, graph.__dask_keys__()))
    np.testing.assert_array_equal(np.concatenate([row[0] for row in found]), expected)
    reasons = {str(reason) for _, reason in counts.host_reasons}
    assert reasons == ({"small chunks"} if step == 1 else set())
    # Pieces are copied alone of a chunk that is on the device.
    assert counts.bytes_to_host == (expected.nbytes if step == 1 else 0)
    assert counts.host_tasks == (64 if step == 1 else 0)
    # A plan holds for pieces that are cut anywhere.
    assert sum(counts.recorded.values()) <= 2


def test_the_whole_of_a_chunk_is_copied_where_a_task_takes_most_of_it(worker: GpuWorker) -> None:
    cuts = [ProgramStep(operator.getitem, (Register(0), Register(k)), recorded=True)
            for k in (1, 2)]  # fmt: skip
    rest = ProgramStep(np.subtract, (Register(3), Register(4)), recorded=True)
    program = Program((*cuts, rest), inputs=3)
    for length in (60, 8):
        slices = slice(length), slice(2, length + 2)
        task = Task("result", program, TaskRef("a"), *slices)
        with always():
            found, counts = counted(partial(run, worker, task, a=host()))
        np.testing.assert_array_equal(hosted(found), np.subtract(*[host()[s] for s in slices]))
        copied = host().nbytes if length == 60 else 2 * 8 * 512 * 8
        assert (counts.device_tasks, counts.bytes_to_device) == (1, copied)


def test_the_program_says_from_how_many_elements_results_stay(worker: GpuWorker) -> None:
    with dask.config.set({"gpusched.fusion.minimum-elements": SIZE}):
        (whole,) = dask.optimize(chunks())
    found, counts = counted(lambda: worker.get(whole.dask, whole.__dask_keys__()))
    np.testing.assert_array_equal(np.block(found), host() * 2 + 1)
    assert (counts.device_tasks, counts.host_tasks) == (0, 2)


@pytest.mark.parametrize("rows", [8, 4096])
def test_copies_in_host_memory_have_the_order_that_numpy_has(rows: int, worker: GpuWorker) -> None:
    # By which `ravel(order="K")`, and NumPy's own sums, take the elements.
    array = np.random.default_rng(5).normal(size=(rows, 3, 5)).transpose(2, 0, 1)
    found = worker.mover.to_host(worker.mover.to_device(array))
    np.testing.assert_array_equal(found, array)
    assert found.strides == array.strides


def test_places_of_extremes_are_of_numpys_type(worker: GpuWorker) -> None:
    x = chunks()
    with always():
        found = x.argmax(axis=0).compute(scheduler=worker.get)
        assert type(found[0]) is np.intp
        assert type(x.argmin().compute(scheduler=worker.get)) is np.intp
