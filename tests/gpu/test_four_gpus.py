"""A machine with four GPUs, which the emulated driver makes of any: one worker on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, wait

import gpusched
from tests import emulated_gpu
from tests.waiting import wait_for
from tests.workers.memory.small import watch

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu"),
]

COUNT = 400_000


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML, here and in workers, and the workers' driver have four GPUs."""
    monkeypatch.setenv(emulated_gpu.SWITCH, "devices=4")


@contextmanager
def cluster(**options: Any) -> Iterator[tuple[gpusched.Cluster, Client]]:
    with gpusched.Cluster(**options) as made, Client(made) as client:
        yield made, client


def on_gpus(chunks: int = 16) -> da.Array:
    import cupy

    x = da.arange(COUNT, chunks=COUNT // chunks, dtype="f8")
    return x.map_blocks(cupy.asarray, meta=np.array(()))


def loaded(chunks: int) -> da.Array:
    return da.from_array(np.arange(COUNT, dtype="f8"), chunks=COUNT // chunks)


def cards(dask_worker: Any) -> tuple[str, int]:
    import cupy

    return dask_worker.device.uuid, cupy.cuda.runtime.getDeviceCount()


@pytest.mark.essential
def test_each_worker_has_a_gpu_of_its_own_and_results_travel() -> None:
    with cluster(gpus="0,1,2,3") as (_, client):
        client.wait_for_workers(4, timeout=120)
        found = client.run(cards)
        assert len({uuid for uuid, _ in found.values()}) == 4
        assert {count for _, count in found.values()} == {1}
        x = on_gpus().persist()
        wait(x)
        held = {w for workers in client.who_has(x).values() for w in workers}
        assert len(held) >= 2
        y = ((x + 1) * 2).rechunk(COUNT // 3)
        assert float(y.sum().compute()) == COUNT * (COUNT + 1)
        transferred = client.run(
            lambda dask_worker: dask_worker.state.transfer_incoming_count_total
        )
        assert sum(transferred.values()) > 0


def test_results_spill_on_each_gpu() -> None:
    with cluster(gpus="all", device_memory_limit="300 kB") as (_, client):
        client.wait_for_workers(4, timeout=120)
        x = (on_gpus(32) * 2).persist()
        wait(x)
        metrics = client.run(lambda dask_worker: dask_worker.data.metrics())
        assert sum(m["device_bytes"] for m in metrics.values()) > 0
        assert float(x.sum().compute()) == COUNT * (COUNT - 1)


def begin_to_watch(dask_worker: Any) -> None:
    dask_worker.exceeded = watch(dask_worker)


@pytest.mark.parametrize("place", [on_gpus, loaded], ids=["CuPy's", "NumPy's"])
def test_what_is_held_received_and_reserved_stays_within_each_gpu(
    place: Callable[[int], da.Array],
) -> None:
    """Forty chunks of 80 kB, and tasks of three, on four GPUs that have room for five."""
    with (
        dask.config.set({"gpusched.fusion.compile": "wait"}),
        cluster(gpus="all", device_memory_limit="450 kB") as (_, client),
    ):
        client.wait_for_workers(4, timeout=120)
        client.run(begin_to_watch)
        x = place(40).persist()
        y = (x * 2 + 1 + x[::-1]).persist()
        assert float(y.sum().compute()) == 3 * COUNT * (COUNT - 1) / 2 + COUNT
        exceeded = client.run(lambda dask_worker: dask_worker.exceeded)
        assert not [each for found in exceeded.values() for each in found]
        fullest = client.run(lambda dask_worker: dask_worker.admission.ledger.fullest)
        assert {each.limit for each in fullest.values()} == {450_000}
        assert any(each.reserved for each in fullest.values())
        held = client.run(lambda dask_worker: dask_worker.data.held_on_device())
        assert any(held.values())


def lose_context() -> None:
    import cupy

    emulated_gpu.emulator.fail_launch(1)
    x = cupy.zeros(4) + 1
    cupy.cuda.Device().synchronize()
    raise AssertionError(f"the context is not lost: {x}")


def test_a_lost_context_costs_one_worker_which_starts_again() -> None:
    with cluster(gpus="all") as (made, client):
        client.wait_for_workers(4, timeout=120)
        before = client.run(lambda: os.getpid())
        lost = sorted(before)[1]
        uuid = client.run(cards, workers=[lost])[lost][0]
        # Of that worker alone: elsewhere it would end the others, too.
        losing = client.submit(lose_context, workers=[lost], pure=False)
        wait_for(lambda: lost not in made.scheduler.workers, 120)
        losing.release()
        client.wait_for_workers(4, timeout=120)
        after = client.run(lambda: os.getpid())
        assert len(set(before.values()) - set(after.values())) == 1
        assert uuid in {u for u, _ in client.run(cards).values()}
        assert float(((on_gpus() + 1) * 2).sum().compute()) == COUNT * (COUNT + 1)


def test_gpus_are_added_as_there_is_work() -> None:
    with cluster(n_workers=1, gpus="all") as (made, client):
        client.wait_for_workers(1, timeout=120)
        made.scale(4)
        client.wait_for_workers(4, timeout=120)
        assert len({uuid for uuid, _ in client.run(cards).values()}) == 4
        made.scale(2)
        wait_for(lambda: len(made.scheduler.workers) == 2, 120)
        assert float(on_gpus().sum().compute()) == COUNT * (COUNT - 1) / 2


def test_each_instance_of_a_divided_gpu_has_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(emulated_gpu.SWITCH, "devices=1,mig=2")
    with cluster(gpus="all") as (_, client):
        client.wait_for_workers(2, timeout=240)
        uuids = {uuid for uuid, _ in client.run(cards).values()}
        assert len(uuids) == 2
        assert all(uuid.startswith("MIG-") for uuid in uuids)
        assert float(on_gpus().sum().compute()) == COUNT * (COUNT - 1) / 2


def held_back(number: int) -> int:
    Event("go on").wait()
    return number


def test_gpus_come_and_go_with_the_work() -> None:
    with cluster(n_workers=1, gpus="all") as (made, client):
        made.adapt(minimum=1, maximum=4, interval="200 ms", target_duration="1 s")
        waiting = client.map(held_back, range(64))
        client.wait_for_workers(4, timeout=240)
        uuids = [uuid for uuid, _ in client.run(cards).values()]
        assert len(set(uuids)) == len(uuids) == 4
        Event("go on", client=client).set()
        assert client.gather(waiting) == list(range(64))
        del waiting
        wait_for(lambda: len(made.scheduler.workers) == 1, 240)
        assert float(on_gpus().sum().compute()) == COUNT * (COUNT - 1) / 2


def test_run_uses_all_gpus(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import cupy, dask.array as da, json, numpy as np\n"
        "from distributed import get_client\n"
        f"x = da.arange({COUNT}, chunks={COUNT // 16}, dtype='f8')\n"
        "y = x.map_blocks(cupy.asarray, meta=np.array(()))\n"
        "total = float(((y + 1) * 2).sum().compute())\n"
        "uuids = get_client().run(lambda dask_worker: dask_worker.device.uuid)\n"
        "print(json.dumps([total, sorted(set(uuids.values()))]))\n"
    )
    command = [sys.executable, "-m", "gpusched", "run", "--gpus", "all", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total, uuids = json.loads(done.stdout.splitlines()[0])
    assert total == COUNT * (COUNT + 1)
    assert len(uuids) == 4
