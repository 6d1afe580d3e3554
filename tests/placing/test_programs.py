"""Programs that know nothing of a GPU, on workers that own one."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait

from tests.placing.conftest import Counted

pytestmark = pytest.mark.gpu

SHAPE, CHUNKS = (512, 256), (128, 256)
TASKS = 4


def values() -> np.ndarray:
    return np.random.default_rng(7).standard_normal(SHAPE)


def kinds(client: Client, name: str) -> list[str]:
    """Return the types of results that workers hold whose keys have a name in them."""

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
