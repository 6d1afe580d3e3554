"""Results go from GPU to GPU of one machine: who has the memory, until when, and who may die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, wait

import gpusched
from gpusched.cluster import statistics
from gpusched.serialization.codec import interprocess
from gpusched.serialization.codec.interprocess import Handle
from gpusched.serialization.frames import CorruptFrameError
from gpusched.workers import peers
from tests import emulated_gpu
from tests.emulated_gpu import emulator
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu"),
]

SIZE = 500_000
NBYTES = 8 * SIZE


@pytest.fixture
@starts_processes
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Give a function that starts a cluster of two workers, on a GPU each."""

    @contextmanager
    def starting(modes: str = "", **settings: Any) -> Iterator[Client]:
        monkeypatch.setenv(emulated_gpu.SWITCH, ",".join(filter(None, ["devices=2", modes])))
        found = {"distributed.comm.retry.count": 0, **settings}
        with (
            dask.config.set(found),
            gpusched.Cluster(gpus="all", memory_limit=0) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(2, timeout=PATIENCE)
            yield client

    return starting


def made(scale: float = 1) -> da.Array:
    return da.from_array(np.arange(SIZE, dtype="f8"), chunks=SIZE) * scale + 1


def ends(client: Client) -> tuple[str, str]:
    """Return the addresses of the worker that makes results, and of the one that gets them."""
    sender, receiver = sorted(client.scheduler_info()["workers"])
    return sender, receiver


def total(block: Any) -> float:
    return float(block.sum())


EXPECTED = float(np.arange(SIZE, dtype="f8").sum() + SIZE)


def sent(client: Client, scale: float = 1) -> float:
    """Return the sum of a chunk that one worker makes and the other one takes."""
    sender, receiver = ends(client)
    (chunk,) = client.compute(made(scale).to_delayed().ravel().tolist(), workers=[sender])
    wait(chunk, timeout=PATIENCE)
    return client.submit(total, chunk, workers=[receiver], pure=False).result(timeout=PATIENCE)


@contextmanager
def sending(client: Client, between: int, through_host: int) -> Iterator[None]:
    """Check how many bytes workers send in a block, from GPU to GPU and through the host.

    They are counted when the receiver has answered, which may be after its task is done.
    """
    before = statistics.gather(client)

    def found() -> tuple[int, int]:
        counts = statistics.difference(statistics.gather(client), before)
        return counts.bytes_between_devices, counts.bytes_through_host

    yield
    wait_for(lambda: sum(found()) >= between + through_host)
    assert found() == (between, through_host)


def held(dask_worker: Any) -> tuple[int, int]:
    """Return how many such results a worker's GPU has room taken for, and what is open of others.

    A sample of some bytes stays for as long as the worker lives.
    """
    return dask_worker.device.used() // NBYTES, emulator.imported()


def receivers(dask_worker: Any) -> list[str]:
    return sorted(dask_worker.peers._receivers)


@pytest.mark.essential
def test_results_go_from_gpu_to_gpu(start: Callable[..., Any]) -> None:
    with start() as client:
        sender, receiver = ends(client)
        with sending(client, between=NBYTES, through_host=0):
            assert sent(client) == EXPECTED
        assert client.run(receivers) == {sender: [receiver], receiver: []}
        x = own_chunk(client, sender)
        with sending(client, between=NBYTES, through_host=0):
            y = client.submit(kind_and_total, x, workers=[receiver])
            assert y.result(timeout=PATIENCE) == ("cupy", 2.0 * SIZE)
        # A client is no worker that has introduced itself.
        with sending(client, between=0, through_host=NBYTES):
            assert float(x.result(timeout=PATIENCE).sum()) == 2.0 * SIZE
        del x, y
        wait_for(lambda: set(client.run(held).values()) == {(0, 0)}, PATIENCE)


def kind_and_total(block: Any) -> tuple[str, float]:
    return type(block).__module__, float(block.sum())


def own_chunk(client: Client, worker: str) -> Any:
    found = client.submit(lambda: cupy.full(SIZE, 2.0), workers=[worker])
    wait(found, timeout=PATIENCE)
    return found


def test_workers_that_see_no_memory_of_others_send_through_the_host(
    start: Callable[..., Any],
) -> None:
    with start("isolated") as client:
        with sending(client, between=0, through_host=NBYTES):
            assert sent(client) == EXPECTED
        assert set(map(tuple, client.run(receivers).values())) == {()}


def test_the_setting_sends_through_the_host(start: Callable[..., Any]) -> None:
    settings = {"gpusched.serialization.between-gpus": "host"}
    with start(**settings) as client, sending(client, between=0, through_host=NBYTES):
        assert sent(client) == EXPECTED


def test_a_receiver_that_cannot_open_memory_after_all_gets_bytes(
    start: Callable[..., Any],
) -> None:
    def refuse() -> None:
        def refused(*_: Any) -> int:
            raise cupy.cuda.runtime.CUDARuntimeError(801)

        cupy.cuda.runtime.ipcOpenMemHandle = refused

    with start() as client:
        sender, receiver = ends(client)
        client.run(refuse, workers=[receiver])
        with sending(client, between=0, through_host=NBYTES):
            assert sent(client) == EXPECTED
        assert client.run(receivers)[sender] == []


def hold(mark: str, process: int) -> None:
    """Have copies from other processes wait in this one until a process has ended."""
    copy = cupy.cuda.runtime.memcpyAsync

    def held(*args: Any) -> None:
        # The sample is copied at once.
        if args[2] == NBYTES:
            Path(mark).touch()
            psutil.Process(process).wait()
        copy(*args)

    cupy.cuda.runtime.memcpyAsync = held


@pytest.mark.parametrize("killed", ["sender", "receiver"])
def test_a_worker_is_killed_while_memory_is_copied(
    killed: str, start: Callable[..., Any], tmp_path: Path
) -> None:
    mark = tmp_path / "copying"
    with start() as client:
        sender, receiver = ends(client)
        pids = client.run(os.getpid)
        victim = {"sender": sender, "receiver": receiver}[killed]
        other = receiver if killed == "sender" else sender
        client.run(hold, str(mark), pids[victim], workers=[receiver])
        x = client.submit(partial(cupy.full, SIZE, 2.0), workers=[sender], allow_other_workers=True)
        wait(x, timeout=PATIENCE)
        y = client.submit(total, x, workers=[receiver], allow_other_workers=True)
        wait_for(mark.exists, PATIENCE)
        os.kill(pids[victim], signal.SIGKILL)
        assert y.result(timeout=PATIENCE) == 2.0 * SIZE
        del x, y
        wait_for(lambda: client.run(held, workers=[other])[other] == (0, 0), PATIENCE)


def buffer(nbytes: int = 4096) -> Any:
    return cupy.arange(nbytes, dtype="u1")


def test_a_handle_leads_to_the_buffer_within_its_allocation() -> None:
    data = buffer()
    whole, part = interprocess.offer(data), interprocess.offer(data[512:])
    assert whole is not None
    assert part is not None
    assert part.handle == whole.handle
    assert part.offset == whole.offset + 512
    assert part.process == os.getpid()


def test_memory_of_a_pool_of_the_drivers_is_not_offered() -> None:
    pool = cupy.cuda.MemoryAsyncPool()
    with cupy.cuda.using_allocator(pool.malloc):
        assert interprocess.offer(buffer()) is None


def test_only_the_process_that_offered_counts_as_its_owner() -> None:
    offered = interprocess.offer(buffer())
    assert offered is not None
    assert interprocess.is_alive(offered)
    assert not interprocess.is_alive(offered._replace(started=offered.started - 1))
    ended = psutil.Popen(["true"])
    alive = offered._replace(process=ended.pid, started=ended.create_time())
    ended.wait()
    assert not interprocess.is_alive(alive)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Offer a buffer, and open it in this process, which CUDA itself refuses."""
    data = buffer()
    offered = interprocess.offer(data)
    assert offered is not None
    start = data.data.ptr - offered.offset
    monkeypatch.setattr(cupy.cuda.runtime, "ipcOpenMemHandle", lambda handle: start)
    monkeypatch.setattr(cupy.cuda.runtime, "ipcCloseMemHandle", lambda address: data)
    return offered


def test_copies_are_the_buffers(opened: Handle) -> None:
    wanted = np.arange(4096).astype("u1")
    np.testing.assert_array_equal(interprocess.fetch(opened, 4096).get(), wanted)
    np.testing.assert_array_equal(interprocess.fetch_to_host(opened, 4096), wanted)


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_a_forged_handle_reads_nothing_beyond_the_allocation(opened: Handle, offset: int) -> None:
    with pytest.raises(CorruptFrameError, match="of an allocation"):
        interprocess.fetch(opened._replace(offset=offset), 4096)


def test_a_copy_of_an_owner_that_has_ended_does_not_count(opened: Handle) -> None:
    with pytest.raises(ConnectionError, match="ended"):
        interprocess.fetch(opened._replace(started=1.0), 4096)


def test_a_worker_without_room_for_a_sample_fetches_through_the_host(
    start: Callable[..., Any],
) -> None:
    def fill() -> None:
        def full(*_: Any) -> None:
            raise MemoryError("told by the test")

        peers._made_sample = full  # type: ignore[assignment]

    with start() as client, sending(client, between=0, through_host=NBYTES):
        client.run(fill)
        assert sent(client) == EXPECTED
