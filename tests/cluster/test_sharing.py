"""Compiled kernels on a cluster: one worker compiles, the others get its machine code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, wait

import gpusched
from gpusched import Cluster
from gpusched.backends.cache import KernelCache, prepare
from gpusched.cluster.shared_kernels import Kernels
from gpusched.emit.kernel import Access, Input, Kernel, Output, Statement
from gpusched.store import sharing
from gpusched.store.codefiles import seal
from gpusched.store.statistics import Statistics, reset_statistics, statistics
from gpusched.workers.kernel_exchange import GIVE, HERE, LATE, MAKE
from gpusched.workers.version_check import HANDSHAKE_KEY
from gpusched.workers.worker import DeviceWorker
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for


class Apart(Cluster):
    """Two workers that share no cache folder, as if each had a machine of its own."""

    def __init__(self, root: Path, *environments: dict[str, str]) -> None:
        self.root = root
        self.environments = environments
        super().__init__(2, 2, gpus=0, memory_limit="1 GiB")

    def folder(self, index: int) -> Path:
        return self.root / str(index)

    def _worker_spec(self, index: int) -> dict[str, Any]:
        spec = super()._worker_spec(index)
        own = self.environments[index] if index < len(self.environments) else {}
        spec["options"]["env"] |= {"XDG_CACHE_HOME": str(self.folder(index)), **own}
        return spec


@pytest.fixture(scope="module")
@starts_processes
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    with started(tmp_path_factory.mktemp("caches")) as cluster:
        yield cluster


@contextlib.contextmanager
def started(root: Path, *environments: dict[str, str], **settings: Any) -> Iterator[Apart]:
    # A worker that is slow to begin must not lose all its tasks to the other.
    own = {"gpusched.fusion.minimum-elements": 0, "distributed.scheduler.work-stealing": False}
    with (
        dask.config.set(own | settings),
        Apart(root, *environments) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: Apart) -> Iterator[Client]:
    with Client(cluster) as client:
        client.run(reset_statistics)
        yield client


def kernel(constant: int) -> Kernel:
    unit = (Access.UNIT,)
    return Kernel(
        (Input("float64", unit),), (),
        (Statement("multiply", 0, (0, f"float64({constant})"), "float64", "float64"),),
        (Output(1, "float64", unit, None, "float64"),), ("map",),
    )  # fmt: skip


def use(constant: int, patience: str = "60s") -> None:
    """Run a kernel that this process has not in memory."""
    x, out = np.arange(4.0), np.empty(4)
    with dask.config.set({"gpusched.fusion.compile-patience": patience}):
        KernelCache().get(kernel(constant)).call(x, out, 4)
    np.testing.assert_array_equal(out, x * constant)


def hold(constant: int, event: str) -> None:
    """Take the right to make a kernel, and never make it."""
    key = prepare(kernel(constant)).wanted.key
    assert sharing.exchanges[0].request(key, 60) is None
    Event(event).set()
    threading.Event().wait()


def names(client: Client) -> list[str]:
    """Return the workers' addresses in the order of their folders."""
    told = client.sync(client.scheduler.identity)["workers"]
    return sorted(told, key=lambda address: int(told[address]["name"]))


def run(client: Client, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return client.submit(function, *arguments, workers=[worker], pure=False)


def counted(client: Client) -> list[Statistics]:
    told = client.run(statistics)
    return [told[worker] for worker in names(client)]


def codes(cluster: Apart, index: int) -> set[str]:
    return {path.name for path in cluster.folder(index).rglob("*.code")}


def waiting(dask_scheduler: Any) -> int:
    plugin = dask_scheduler.plugins["gpusched-kernels"]
    return sum(len(making.waiting) for making in plugin._making.values())


def test_workers_that_start_together_compile_once(client: Client, cluster: Apart) -> None:
    before = codes(cluster, 0)
    client.gather([run(client, worker, use, 11) for worker in names(client)])
    found = counted(client)
    assert sum(counts.compilations for counts in found) == 1
    assert sum(counts.kernels_received for counts in found) == 1
    assert not any(counts.kernels_unshared for counts in found)
    assert len(codes(cluster, 0) - before) == 1
    assert codes(cluster, 0) - before <= codes(cluster, 1)


def test_an_array_s_kernels_are_compiled_once(client: Client) -> None:
    x = da.from_array(np.arange(4000.0), chunks=100)
    held = client.persist(da.sqrt(x * 12.5 + 1) - x)
    wait(held)
    np.testing.assert_array_equal(held, np.sqrt(np.arange(4000) * 12.5 + 1) - np.arange(4000))
    found = counted(client)
    assert [counts.compilations + counts.kernels_received for counts in found] == [1, 1]
    assert sum(counts.compilations for counts in found) == 1


def test_what_was_compiled_before_is_received(client: Client) -> None:
    first, second = names(client)
    run(client, first, use, 13).result()
    run(client, second, use, 13).result()
    run(client, second, use, 13).result()
    one, other = counted(client)
    assert (one.compilations, one.kernels_received, one.kernels_loaded) == (1, 0, 0)
    assert (other.compilations, other.kernels_received, other.kernels_loaded) == (0, 1, 1)


def test_damaged_code_is_not_run_but_made_again(client: Client) -> None:
    def damage(dask_scheduler: Any) -> None:
        codes = dask_scheduler.plugins["gpusched-kernels"]._codes
        for key, sealed in list(codes.items()):
            codes[key] = sealed[:-1] + bytes([sealed[-1] ^ 1])

    first, second = names(client)
    run(client, first, use, 14).result()
    client.run_on_scheduler(damage)
    run(client, second, use, 14).result()
    other = counted(client)[1]
    assert (other.compilations, other.kernels_received) == (1, 0)
    assert other.kernels_unshared == {"damaged code from the cluster": 1}


def test_an_error_of_the_scheduler_costs_a_compilation(client: Client) -> None:
    handlers = client.cluster.scheduler.handlers
    working = handlers["gpusched_kernel"]
    handlers["gpusched_kernel"] = lambda **kwargs: 1 / 0
    try:
        run(client, names(client)[0], use, 15).result()
    finally:
        handlers["gpusched_kernel"] = working
    one = counted(client)[0]
    assert one.compilations == 1
    assert one.kernels_unshared == {"the scheduler did not answer": 1}


@pytest.mark.processes
def test_kinds_of_processors_do_not_mix(tmp_path: Path) -> None:
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    with started(tmp_path, {}, generic) as cluster, Client(cluster) as client:
        client.gather([run(client, worker, use, 16) for worker in names(client)])
        found = counted(client)
        assert [counts.compilations for counts in found] == [1, 1]
        assert [counts.kernels_received for counts in found] == [0, 0]
        assert not codes(cluster, 0) & codes(cluster, 1)


@pytest.mark.processes
def test_a_killed_compiler_s_right_passes_on(tmp_path: Path) -> None:
    with started(tmp_path) as cluster, Client(cluster) as client:
        first, second = names(client)
        pid = client.run(os.getpid)[first]
        holding = run(client, first, hold, 17, "held")
        assert Event("held", client=client).wait(PATIENCE)
        using = run(client, second, use, 17)
        wait_for(lambda: client.run_on_scheduler(waiting))
        holding.cancel()
        os.kill(pid, signal.SIGKILL)
        using.result(timeout=PATIENCE)
        counts = client.run(statistics, workers=[second])[second]
        assert (counts.compilations, counts.kernels_received) == (1, 0)
        assert not counts.kernels_unshared


@pytest.mark.processes
def test_patience_with_another_worker_ends(tmp_path: Path) -> None:
    with started(tmp_path) as cluster, Client(cluster) as client:
        first, second = names(client)
        pid = client.run(os.getpid)[first]
        holding = run(client, first, hold, 18, "held")
        assert Event("held", client=client).wait(PATIENCE)
        run(client, second, use, 18, "10ms").result(timeout=PATIENCE)
        counts = client.run(statistics, workers=[second])[second]
        assert counts.compilations == 1
        assert counts.kernels_unshared == {"another worker took too long": 1}
        assert not client.run_on_scheduler(waiting)
        holding.cancel()
        os.kill(pid, signal.SIGKILL)  # Its thread would never end.


@pytest.mark.processes
def test_a_full_registry_asks_who_has_it_on_disk(tmp_path: Path) -> None:
    settings = {"gpusched.cluster.kernel-memory": "1 kB"}
    with started(tmp_path, **settings) as cluster, Client(cluster) as client:
        first, second = names(client)
        run(client, first, use, 19).result()
        assert not client.run_on_scheduler(kept_codes)
        run(client, second, use, 19).result()
        assert [c.compilations for c in counted(client)] == [1, 0]
        assert [c.kernels_received for c in counted(client)] == [0, 1]

        run(client, first, use, 20).result()
        for path in cluster.folder(0).rglob("*.code"):
            path.unlink()
        run(client, second, use, 20).result()
        assert [c.compilations for c in counted(client)] == [2, 1]
        assert not any(c.kernels_unshared for c in counted(client))


def kept_codes(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins["gpusched-kernels"]._codes)


@pytest.mark.processes
def test_code_from_an_earlier_cluster_is_found_on_a_worker_s_disk(tmp_path: Path) -> None:
    with started(tmp_path) as cluster, Client(cluster) as client:
        run(client, names(client)[0], use, 21).result()
    with started(tmp_path) as cluster, Client(cluster) as client:
        first, second = names(client)
        run(client, first, use, 21).result()
        run(client, second, use, 21).result()
        assert [c.compilations for c in counted(client)] == [0, 0]
        assert [c.kernels_loaded for c in counted(client)] == [1, 0]
        assert [c.kernels_received for c in counted(client)] == [0, 1]


class TestPlainScheduler:
    """distributed's own, and none."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> Iterator[None]:
        with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
            yield

    @pytest.mark.parametrize("worker_class", ["Worker", "DeviceWorker"])
    def test_takes_part_once_a_client_says_so(self, worker_class: str) -> None:
        options = {"worker_class": DeviceWorker} if worker_class == "DeviceWorker" else {}
        with (
            LocalCluster(
                1, threads_per_worker=1, processes=False, protocol="tcp",
                dashboard_address=":0", **options,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            run(client, names(client)[0], use, 22).result()
            assert not sharing.exchanges
            client.register_plugin(Kernels())
            run(client, names(client)[0], use, 23).result()
            assert len(sharing.exchanges) == (worker_class == "DeviceWorker")
        assert not sharing.exchanges

    def test_nobody_is_asked_without_a_network(self) -> None:
        with gpusched.local() as client:
            client.submit(use, 24).result()
            assert not sharing.exchanges


class Registry:
    """A registry, with workers that only exist by name."""

    def __init__(self, *workers: str, limit: int = 1000) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.workers = {name: SimpleNamespace(extra={HANDSHAKE_KEY: {}}) for name in workers}
        self.handlers: dict[str, Any] = {}
        self.stream_handlers: dict[str, Any] = {}
        self.kernels = Kernels(limit)
        self.kernels.install(self)  # type: ignore[arg-type]

    def worker_send(self, worker: str, message: dict[str, Any]) -> None:
        self.sent.append((worker, message))

    def ask(self, key: str, worker: str, patience: float = 60) -> asyncio.Task[bytes | str]:
        return asyncio.create_task(self.kernels.request(key, worker, patience))

    def leave(self, worker: str) -> None:
        del self.workers[worker]
        self.kernels.remove_worker(self, worker, stimulus_id="left")  # type: ignore[arg-type]


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


CODE = seal("k", b"code")


@pytest.mark.parametrize("step", ["leaves", "fails", "sends damaged code"])
def test_the_right_passes_to_each_in_turn(step: str) -> None:
    async def test() -> None:
        registry = Registry("a", "b", "c")
        assert await registry.ask("k", "a") == MAKE
        b, c = registry.ask("k", "b"), registry.ask("k", "c")
        await settle()
        assert not b.done()
        if step == "leaves":
            registry.leave("a")
        else:
            registry.kernels.made("k", None if step == "fails" else CODE[:-1], "a")
        await settle()
        assert b.result() == MAKE
        assert not c.done()
        registry.kernels.made("k", CODE, "b")
        assert await c == CODE
        assert not registry.kernels._making

    asyncio.run(test())


def test_one_who_waits_and_leaves_is_given_nothing() -> None:
    async def test() -> None:
        registry = Registry("a", "b", "c")
        assert await registry.ask("k", "a") == MAKE
        b, c = registry.ask("k", "b"), registry.ask("k", "c")
        await settle()
        registry.leave("b")
        registry.leave("a")
        await settle()
        assert c.result() == MAKE
        registry.leave("c")
        assert await b == LATE
        assert not registry.kernels._making
        assert await registry.ask("k", "c") == MAKE
        assert not registry.kernels._making, "c has left, and could not end it"

    asyncio.run(test())


def test_an_owner_who_leaves_or_has_lost_it_is_followed_by_another() -> None:
    async def test() -> None:
        registry = Registry("a", "b", "c", "d")
        for owner in ("a", "b", "c"):
            registry.kernels.kept("k", owner)
        d = registry.ask("k", "d")
        await settle()
        registry.leave("a")
        registry.kernels.made("k", None, "b")
        assert registry.sent == [(owner, {"op": GIVE, "key": "k"}) for owner in "abc"]
        registry.kernels.made("k", None, "c")
        assert await d == MAKE

    asyncio.run(test())


def test_who_asks_again_has_the_right_still() -> None:
    async def test() -> None:
        registry = Registry("a")
        assert await registry.ask("k", "a") == MAKE
        assert await registry.ask("k", "a") == MAKE

    asyncio.run(test())


def test_waiting_ends_and_leaves_nothing() -> None:
    async def test() -> None:
        registry = Registry("a", "b")
        assert await registry.ask("k", "a") == MAKE
        assert await registry.ask("k", "b", patience=0) == LATE
        assert not registry.kernels._making["k"].waiting
        registry.kernels.made("k", CODE, "b")
        assert await registry.ask("k", "a") == CODE

    asyncio.run(test())


def test_the_least_recently_used_code_goes_first() -> None:
    async def test() -> None:
        registry = Registry("a", limit=250)
        for key in ("k", "l"):
            registry.kernels.made(key, seal(key, b"x" * 84), "a")
        assert await registry.ask("k", "a") != MAKE
        registry.kernels.made("m", seal("m", b"x" * 84), "a")
        assert set(registry.kernels._codes) == {"k", "m"}
        registry.kernels.made("n", seal("n", b"x" * 1000), "a")
        assert "n" not in registry.kernels._codes

    asyncio.run(test())


def test_only_workers_of_gpusched_with_a_network_are_told() -> None:
    registry = Registry("tcp://ours", "tcp://plain", "inproc://ours")
    registry.workers["tcp://plain"].extra.clear()
    for worker in registry.workers:
        registry.kernels.add_worker(registry, worker)  # type: ignore[arg-type]
    assert registry.sent == [("tcp://ours", {"op": HERE})]
