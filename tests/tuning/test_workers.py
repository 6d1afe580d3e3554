"""Users' versions of kernels on the workers of a cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import gpusched
from gpusched import Cluster
from gpusched.emit.kernel import EDITED
from gpusched.inspection.kernel_listings import ExplainedKernel
from gpusched.plan.overrides import OverrideError
from gpusched.store.statistics import reset_statistics, statistics
from tests.tiers import starts_processes
from tests.tuning.conftest import kernel_of
from tests.waiting import PATIENCE

FOLDER = "gpusched.fusion.cache-directory"


@pytest.fixture(scope="module")
@starts_processes
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "gpusched.fusion.minimum-elements": 0,
        FOLDER: str(tmp_path_factory.mktemp("cache")),
    }
    with dask.config.set(settings), Cluster(2, 1, gpus=0, memory_limit="1 GiB") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster) as client, dask.config.set(scheduler=None):
        client.run(reset_statistics)
        yield client


def edited(client: Client) -> Counter[str]:
    """Return the launches of users' versions on all workers, by kernel."""
    found: Counter[str] = Counter()
    for counted in client.run(statistics).values():
        found.update({name: n for name, n in counted.kernels.items() if EDITED in name})
    return found


def constant(kernel: ExplainedKernel, value: float) -> Any:
    """Return a version of a kernel that always gives one number."""
    versions = {1: lambda a, s0: 1.0, 2: lambda a, s0: 2.0}
    return gpusched.override(kernel, versions[int(value)], check=False)


def test_version_runs_on_workers_and_not_after(client: Client, program: da.Array) -> None:
    kernel, expected = kernel_of(program), program.compute()
    with constant(kernel, 1):
        assert (program.compute() == 1).all()
        assert float(program.sum().compute()) == pytest.approx(float(expected.sum()))
        assert sum(edited(client).values()) == 4
    np.testing.assert_array_equal(program.compute(), expected)
    assert sum(edited(client).values()) == 4


def test_source_runs_on_workers(client: Client, program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py")
    assert mine.path is not None
    text = mine.path.read_text()
    mine.path.write_text(text.replace("float64(1.0)", "float64(2.0)"))
    expected = program.compute()
    mine.apply(check=False)
    try:
        mine.path.unlink()  # Workers have no need of it.
        np.testing.assert_allclose(program.compute(), expected + 7)
    finally:
        mine.remove()


def test_versions_never_meet_on_the_scheduler(client: Client, program: da.Array) -> None:
    kernel, expected = kernel_of(program), program.compute()
    kept = program.persist()
    wait(kept)
    with constant(kernel, 1):
        one = client.compute(program)
    with constant(kernel, 2):
        two = client.compute(program)
    original = client.compute(program)
    assert (one.result() == 1).all()
    assert (two.result() == 2).all()
    np.testing.assert_array_equal(original.result(), expected)
    np.testing.assert_array_equal(kept.compute(), expected)


def test_other_clients_and_threads_compute_the_original(
    cluster: Cluster, client: Client, program: da.Array
) -> None:
    kernel, expected = kernel_of(program), program.compute()
    inside, done = threading.Event(), threading.Event()
    found: list[np.ndarray] = []

    def other() -> None:
        with Client(cluster, set_as_default=False) as second:
            inside.wait(PATIENCE)
            found.append(second.compute(program).result())
            done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with constant(kernel, 1):
        held = client.compute(program)
        inside.set()
        assert done.wait(PATIENCE)
        assert (held.result() == 1).all()
    thread.join()
    np.testing.assert_array_equal(found[0], expected)


def test_worker_that_joins_later_has_it_too(client: Client, cluster: Cluster) -> None:
    program = da.from_array(np.arange(400.0), chunks=10) * 3.5 - 1
    mine = constant(kernel_of(program), 1)
    try:
        assert (program.compute() == 1).all()
        before = set(client.run(statistics))
        cluster.scale(3)
        client.wait_for_workers(3, timeout=PATIENCE)
        (new,) = set(client.run(statistics)) - before
        found = client.compute(program, workers=[new], allow_other_workers=False)
        assert (found.result() == 1).all()
        assert client.run(statistics, workers=[new])[new].edited_launches == 40
    finally:
        mine.remove()
        cluster.scale(2)
        cluster.sync(cluster._correct_state)


def test_persisting_is_refused(client: Client, program: da.Array) -> None:
    with constant(kernel_of(program), 1):
        kept = program.persist()
        with pytest.raises(OverrideError, match="Compute instead of persisting"):
            client.gather(client.futures_of(kept))
    np.testing.assert_array_equal(program.persist().compute(), program.compute())


def test_plain_schedulers_send_it_with_each_task(program: da.Array) -> None:
    kernel, expected = kernel_of(program), program.compute()
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
        dask.config.set(scheduler=None),
    ):
        with constant(kernel, 1):
            assert (program.compute() == 1).all()
        np.testing.assert_array_equal(program.compute(), expected)


@pytest.mark.parametrize("fuse", [True, False])
def test_whole_programs_run_with_a_version(client: Client, program: da.Array, fuse: bool) -> None:
    with (
        constant(kernel_of(program), 1),
        dask.config.set({"optimization.fuse.active": fuse}),
    ):
        stored = np.zeros(program.shape)
        da.store(program.map_blocks(np.sort), stored, lock=False)
        results = dask.compute(program, program.rechunk(7).max(), program[program > 0].min())
    assert (results[0] == 1).all()
    assert results[1:] == (1, 1)


def test_version_is_sent_once_a_worker(client: Client) -> None:
    program = da.from_array(np.arange(2000.0), chunks=10) * 1.5 - 3
    with constant(kernel_of(program), 1):
        before = client.run(statistics)
        program.compute()
        after = client.run(statistics)
    asked = sum(after[w].programs_received - before[w].programs_received for w in after)
    assert asked <= 2 * len(after)
