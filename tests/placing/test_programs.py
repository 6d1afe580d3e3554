"""Programs that know nothing of a GPU, on workers that own one."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait, worker_client

from gpusched.graph.placement.placing import DeviceRequiredError
from tests.placing.conftest import Counted
from tests.waiting import PATIENCE

pytestmark = pytest.mark.gpu

SHAPE, CHUNKS = (512, 256), (128, 256)
TASKS = 4


def values() -> np.ndarray:
    return np.random.default_rng(7).standard_normal(SHAPE)


def kinds(client: Client, name: str) -> list[str]:
    """Return the types of results that workers hold whose keys have a name in them.

    A chunk may be there under another name too, until the scheduler has that released.
    """

    def held(dask_worker: Any) -> list[str]:
        return [type(v).__name__ for k, v in dask_worker.data.items() if name in str(k)]

    return [each for found in client.run(held).values() for each in found]


def test_created_chunks_are_computed_on_the_device(counted: Counted) -> None:
    x = da.ones(SHAPE, chunks=CHUNKS)
    found, counts = counted((x * 2 + 1).sum().compute)
    assert found == 3 * x.size
    assert type(found) is np.float64
    assert (counts.device_tasks, counts.host_tasks) == (TASKS, 0)
    assert counts.bytes_to_device < 1000 * TASKS  # What is broadcast is copied once.


@pytest.mark.essential
def test_loaded_chunks_are_copied_once_and_computed_on_the_device(counted: Counted) -> None:
    x = values()
    y = da.from_array(x, chunks=CHUNKS)
    found, counts = counted((y * 2 + 1).sum().compute)
    assert found == pytest.approx((x * 2 + 1).sum(), rel=1e-12)
    assert (counts.device_tasks, counts.host_tasks) == (TASKS, 0)
    assert counts.bytes_to_device == x.nbytes


def test_fetched_results_are_numpy_arrays(counted: Counted) -> None:
    x = values()
    found, counts = counted((da.from_array(x, chunks=CHUNKS) * 2 + 1).compute)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, x * 2 + 1)
    assert counts.device_tasks == TASKS


def test_results_stay_on_the_device_for_the_next_tasks(client: Client, counted: Counted) -> None:
    x = values()
    y = (da.from_array(x, chunks=CHUNKS) * 2 + 1).persist()
    wait(y)
    found, counts = counted(lambda: (y.sum(axis=1) - 1).compute())
    np.testing.assert_allclose(found, (x * 2 + 1).sum(axis=1) - 1, rtol=1e-12)
    assert counts.bytes_to_device == 0
    assert counts.device_tasks == TASKS


def types_seen(block: np.ndarray) -> np.ndarray:
    """Return ones where a chunk is an array of NumPy's, and nothing else."""
    kept = [type(block)]  # No function that could be recorded does such a thing.
    return np.full(block.shape, float(kept == [np.ndarray]))


def test_users_functions_get_numpy_arrays(counted: Counted) -> None:
    x = (da.from_array(values(), chunks=CHUNKS) * 2 + 1).map_blocks(types_seen, dtype=float)
    found, counts = counted((x + 1).compute)
    assert (found == 2).all()
    assert [reason for name, reason in counts.host_reasons if name == "types_seen"]
    assert (counts.device_tasks, counts.host_tasks) == (0, TASKS)  # A task is counted once.


def test_other_tasks_get_numpy_arrays(client: Client) -> None:
    y = (da.from_array(values(), chunks=(512, 256)) * 2 + 1).persist()
    wait(y)
    assert set(kinds(client, y.name)) == {"Placed"}
    (future,) = client.futures_of(y)
    assert client.submit(lambda a: type(a).__name__, future).result() == "ndarray"
    assert client.submit(lambda a: type(a[0]).__name__, [future]).result() == "ndarray"
    assert dask.delayed(lambda a: type(a).__name__)(y).compute() == "ndarray"

    async def coroutine(a: Any) -> str:
        return type(a).__name__

    assert client.submit(coroutine, future).result() == "ndarray"


def test_a_client_in_a_task_gathers_numpy_arrays(client: Client) -> None:
    def gathered() -> list[str]:
        with worker_client() as own:
            y = own.persist(da.ones(SHAPE, chunks=SHAPE) * 2 + 1)
            wait(y)
            return [type(each).__name__ for each in own.gather(own.futures_of(y))]

    assert client.submit(gathered).result(timeout=PATIENCE) == ["ndarray"]


def test_a_loaded_chunk_that_several_tasks_take_is_copied_once(counted: Counted) -> None:
    x = da.from_array(values(), chunks=CHUNKS).persist()
    wait(x)
    found, first = counted((x * 2 + 1).sum().compute)
    again, second = counted((x * 3 + 1).sum().compute)
    assert found == pytest.approx((values() * 2 + 1).sum(), rel=1e-12)
    assert again == pytest.approx((values() * 3 + 1).sum(), rel=1e-12)
    assert first.bytes_to_device == x.nbytes
    assert second.bytes_to_device == 0


def test_chunks_that_another_worker_takes_stay_on_the_device(
    client: Client, counted: Counted
) -> None:
    y = (da.from_array(values(), chunks=(512, 256)) * 2 + 1).persist()
    wait(y)
    client.replicate(y, n=2)
    held = kinds(client, y.name)
    assert len(held) >= 2
    assert set(held) == {"Placed"}
    found, counts = counted((y - 1).compute)
    np.testing.assert_array_equal(found, (values() * 2 + 1) - 1)
    assert counts.bytes_to_device == 0


def test_arrays_of_cupy_stay_what_they_are(counted: Counted) -> None:
    cupy = pytest.importorskip("cupy")
    x = da.from_array(values(), chunks=CHUNKS).map_blocks(cupy.asarray, dtype=float)
    found, counts = counted(lambda: client_arrays(x * 2 + 1))
    assert {type(each) for each in found} == {cupy.ndarray}
    np.testing.assert_array_equal(np.concatenate([f.get() for f in found]), values() * 2 + 1)
    assert (counts.device_tasks, counts.bytes_to_device) == (0, 0)


def client_arrays(x: da.Array) -> list[Any]:
    """Return the chunks as a client gets them."""
    return list(dask.compute(*x.to_delayed().ravel()))


def test_off_computes_on_the_host(counted: Counted) -> None:
    x = da.from_array(values(), chunks=CHUNKS) * 2 + 1
    with dask.config.set({"gpusched.device": "off"}):
        found, counts = counted(x.compute)
    np.testing.assert_array_equal(found, values() * 2 + 1)
    assert (counts.device_tasks, counts.bytes_to_device) == (0, 0)
    assert {reason for _, reason in counts.host_reasons} == {"gpusched.device is off"}


def test_require_says_which_function_cannot_run_on_the_device(client: Client) -> None:
    x = da.from_array(values(), chunks=CHUNKS) * 2 + 1
    with dask.config.set({"gpusched.device": "require"}):
        np.testing.assert_array_equal(x.compute(), values() * 2 + 1)
        with pytest.raises(DeviceRequiredError, match="types_seen cannot run on the device: your"):
            x.map_blocks(types_seen, dtype=float).compute()
        with pytest.raises(
            DeviceRequiredError, match=r"needs NumPy arrays: dtype (float|longdouble)"
        ):
            (x.astype(np.longdouble) * 2 + 1).compute()


def variation(series: Any) -> Any:
    """Return how much what is above zero varies, which is computed for all series at once."""
    above = series[series > 0]
    return np.nan if len(above) < 50 else above.std() / above.mean()


@pytest.mark.essential
def test_functions_of_series_are_computed_on_the_device(counted: Counted) -> None:
    x = values()
    made = da.apply_along_axis(
        variation, 1, da.from_array(x, chunks=(128, -1)) * 2, dtype=float, shape=()
    )
    found, counts = counted((made + 1).compute)
    expected = np.apply_along_axis(variation, 1, x * 2) + 1
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (counts.device_tasks, counts.host_tasks) == (4, 0)
