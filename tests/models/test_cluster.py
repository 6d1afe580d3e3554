"""Models on workers: loaded once in each, sent again where one was lost, forgotten at the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import gpusched
from gpusched import Cluster, models
from tests.models.given import FEATURES, values
from tests.tiers import starts_processes
from tests.waiting import wait_for

WEIGHTS = np.linspace(-1, 1, FEATURES * 3).reshape(FEATURES, 3)
CHUNKS = 64


@pytest.fixture(scope="module")
@starts_processes
def cluster() -> Iterator[Cluster]:
    # A worker that is slow to begin must not lose all its tasks to the other.
    own = {"distributed.scheduler.work-stealing": False}
    with dask.config.set(own), Cluster(2, 2, gpus=0, memory_limit="1 GiB") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


def many(chunks: int = CHUNKS) -> da.Array:
    generator = da.random.default_rng(0)
    return generator.random((chunks * 10, FEATURES), chunks=(10, FEATURES))


def loader(path: Path) -> Any:
    """Return what loads a model, and adds its process to a file."""

    def load() -> Any:
        import os

        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        weights = np.linspace(-1, 1, 24).reshape(8, 3)
        return lambda x: x @ weights

    return load


def loads(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_each_worker_loads_a_model_once(client: Client, tmp_path: Path) -> None:
    x, path = many(), tmp_path / "loads"
    y = gpusched.apply(loader(path), x * 2, meta=np.empty((0, 3)))
    assert not path.exists()
    np.testing.assert_allclose(y.compute(), (x * 2).compute() @ WEIGHTS, rtol=1e-6, atol=1e-9)
    pids = client.run(os.getpid).values()
    assert sorted(loads(path)) == sorted(pids)


def test_a_model_is_forgotten_with_its_last_task(client: Client) -> None:
    held = gpusched.apply(lambda x: x @ WEIGHTS, many()).persist()
    wait(held)
    assert client.run_on_scheduler(models_held) == []
    # Workers are told soon after, on another connection than this one.
    wait_for(lambda: not any(client.run(models.loaded).values()))
    del held


def models_held(dask_scheduler: Any) -> list[str]:
    tasks = dask_scheduler.tasks.values()
    return [t.key for t in tasks if str(t.key).startswith("model-") and t.who_has]


def test_tasks_name_the_model_and_do_not_have_it(client: Client) -> None:
    large = np.ones((FEATURES, 100_000))
    y = gpusched.apply(lambda x: (x @ large)[:, 0], many(), dtype="float64", shape=())
    held = y.persist()
    wait(held)
    sizes = client.run_on_scheduler(task_sizes)
    assert max(sizes["apply"]) < 5_000
    assert max(sizes["model"]) > large.nbytes


def task_sizes(dask_scheduler: Any) -> dict[str, list[int]]:
    """Return the bytes of what is sent of each task."""
    import pickle

    import cloudpickle

    found: dict[str, list[int]] = {"apply": [], "model": []}
    for key, task in dask_scheduler.tasks.items():
        kind = "model" if str(key).startswith("model-") else "apply"
        if task.run_spec is not None:
            found[kind].append(len(cloudpickle.dumps(task.run_spec, pickle.HIGHEST_PROTOCOL)))
    return found


@pytest.mark.processes
def test_a_killed_worker_s_successor_loads_it_again(tmp_path: Path) -> None:
    path = tmp_path / "loads"
    with Cluster(1, 2, gpus=0, memory_limit="1 GiB") as cluster, Client(cluster) as client:
        x = many()
        y = gpusched.apply(loader(path), x, meta=np.empty((0, 3)))
        held = y.persist()
        wait(held)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        np.testing.assert_allclose(held.compute(), x.compute() @ WEIGHTS, rtol=1e-6, atol=1e-9)
        (successor,) = client.run(os.getpid).values()
        assert loads(path) == [pid, successor]


@pytest.mark.processes
def test_a_scheduler_and_workers_of_distributed_s_own(tmp_path: Path) -> None:
    path = tmp_path / "loads"
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(2, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        x = many()
        y = gpusched.apply(loader(path), x, meta=np.empty((0, 3)))
        np.testing.assert_allclose(y.compute(), x.compute() @ WEIGHTS, rtol=1e-6, atol=1e-9)
        assert sorted(loads(path)) == sorted(client.run(os.getpid).values())


def test_errors_name_the_worker_and_the_chunk(client: Client) -> None:
    y = gpusched.apply(needs_what_is_missing, many(4), meta=np.empty((0, 3)))
    with pytest.raises(ModuleNotFoundError, match="which is not installed for worker tcp://"):
        y.compute()
    y = gpusched.apply(fail_at_the_end, many(4)[:-5], meta=np.empty((0, 8)))
    with pytest.raises(ZeroDivisionError) as caught:
        y.compute()
    assert "in the model fail_at_the_end, chunk (3,)" in "".join(caught.value.__notes__)


def needs_what_is_missing() -> Any:
    import no_such_module  # type: ignore[import-not-found]

    return no_such_module


def fail_at_the_end(x: Any) -> Any:
    if len(x) == 5:
        raise ZeroDivisionError
    return x


def test_a_file_that_workers_do_not_see(client: Client, tmp_path: Path) -> None:
    y = gpusched.apply(tmp_path / "model.onnx", many(4), dtype="float32", shape=())
    with pytest.raises(FileNotFoundError, match=r"model.onnx is not there for worker tcp://"):
        y.compute()


class TestLibraries:
    """Each library's model, on workers, against the model on the whole array."""

    def test_torch(self, client: Client) -> None:
        torch = pytest.importorskip("torch", reason="torch comes with the extra models-test")
        model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 3), torch.nn.Dropout()).eval()
        x = many().astype("float32")
        y = gpusched.apply(model, x)
        with torch.no_grad():
            whole = model(torch.from_numpy(x.compute())).numpy()
        np.testing.assert_allclose(y.compute(), whole, rtol=1e-5, atol=1e-6)

    def test_jax(self, client: Client) -> None:
        jax = pytest.importorskip("jax", reason="JAX comes with the extra models-test")
        model = jax.jit(lambda x: x @ WEIGHTS.astype("float32"))
        x = many().astype("float32")
        y = gpusched.apply(model, x)
        np.testing.assert_allclose(y.compute(), model(x.compute()), rtol=1e-5, atol=1e-6)

    def test_onnx(self, client: Client) -> None:
        pytest.importorskip("onnxruntime", reason="onnxruntime comes with the extra models-test")
        from tests.models.test_onnx import model, whole

        y = gpusched.apply(model(), da.from_array(values(), chunks=(30, -1)))
        np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-6)

    def test_sklearn(self, client: Client) -> None:
        pytest.importorskip("sklearn", reason="scikit-learn comes with the extra models-test")
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression().fit(values(), values()[:, 0] > 0)
        x = many()
        y = gpusched.apply(model, x, method="predict_proba")
        np.testing.assert_allclose(y.compute(), model.predict_proba(x.compute()), rtol=1e-6)
