"""Random numbers of NumPy programs on a GPU: NumPy's, unless the program asks for the GPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.plan.overrides import NONE, active
from tests.placing.gpuworker import GpuWorker, gpu_worker

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu

SIZE = {"size": (300, 200), "chunks": (100, 200)}
GENERATOR: dict[str, Callable[[Any], da.Array]] = {
    "random": lambda rng: rng.random(**SIZE),
    "uniform": lambda rng: rng.uniform(-2, 3, **SIZE),
    "normal": lambda rng: rng.normal(1.5, 0.5, **SIZE),
    "standard_normal": lambda rng: rng.standard_normal(**SIZE),
    "lognormal": lambda rng: rng.lognormal(0.0, 0.25, **SIZE),
    "exponential": lambda rng: rng.exponential(2.0, **SIZE),
    "standard_exponential": lambda rng: rng.standard_exponential(**SIZE),
}
OTHERS: dict[str, Callable[[Any], da.Array]] = {
    "poisson": lambda rng: rng.poisson(4, **SIZE),
    "choice": lambda rng: rng.choice(7, **SIZE),
    "parameters in an array": lambda rng: rng.normal(np.arange(200.0), 1, **SIZE),
}
SEEDED = {"Generator": da.random.default_rng, "RandomState": da.random.RandomState}


@pytest.fixture(scope="module")
def worker() -> Iterator[GpuWorker]:
    with gpu_worker() as found:
        yield found


def fused(x: da.Array, worker: GpuWorker, random: str) -> Any:
    with gpusched.enable(), dask.config.set({"gpusched.random": random}):
        return x.compute(scheduler=worker.get)


def draws(seeded: str, name: str) -> Callable[[], da.Array]:
    if seeded == "RandomState" and name == "random":
        return lambda: da.random.RandomState(11).random_sample(**SIZE)
    return lambda: (GENERATOR | OTHERS)[name](SEEDED[seeded](11))


@pytest.mark.parametrize("seeded", SEEDED)
@pytest.mark.parametrize("name", GENERATOR | OTHERS)
def test_equal_seeds_give_numpys_numbers_bit_by_bit(
    name: str, seeded: str, worker: GpuWorker
) -> None:
    draw = draws(seeded, name)
    with gpusched.disable():
        expected = draw().compute(scheduler="sync")
        larger = (draw() * 2 + 1).compute(scheduler="sync")
    found = fused(draw(), worker, "numpy")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(fused(draw() * 2 + 1, worker, "numpy"), larger)


@pytest.mark.parametrize("seeded", SEEDED)
@pytest.mark.parametrize("name", GENERATOR)
def test_the_gpu_draws_where_it_is_asked_for(name: str, seeded: str, worker: GpuWorker) -> None:
    draw = draws(seeded, name)
    found = fused(draw(), worker, "device")
    with gpusched.disable():
        numpys = draw().compute(scheduler="sync")
    assert (found.dtype, found.shape) == (numpys.dtype, numpys.shape)
    assert len(np.unique(found)) == found.size  # So no two chunks are the same.
    np.testing.assert_array_equal(np.intersect1d(found, numpys), [])
    # 60,000 numbers: the mean is as far away as five of its standard errors at most.
    error = 5 * numpys.std() / np.sqrt(found.size / 2)
    assert abs(found.mean() - numpys.mean()) < error
    assert found.std() == pytest.approx(numpys.std(), rel=0.05)


def test_the_same_numbers_are_drawn_alone_and_in_a_larger_task(worker: GpuWorker) -> None:
    draw = draws("Generator", "normal")
    alone = fused(draw(), worker, "device")
    np.testing.assert_array_equal(fused(draw() * 2 + 1, worker, "device"), alone * 2 + 1)
    ordered = fused(draw().map_blocks(np.sort, axis=1), worker, "device")
    np.testing.assert_array_equal(ordered, np.sort(alone, axis=1))
    joined = fused(da.concatenate([draw(), draw()])[50:70], worker, "device")
    np.testing.assert_array_equal(joined, alone[50:70])


@pytest.mark.parametrize("name", OTHERS)
def test_numpy_draws_what_the_gpu_does_not(name: str, worker: GpuWorker) -> None:
    draw = draws("Generator", name)
    with gpusched.disable():
        expected = draw().compute(scheduler="sync")
    np.testing.assert_array_equal(fused(draw(), worker, "device"), expected)


def test_drawn_chunks_are_made_on_the_gpu(worker: GpuWorker) -> None:
    before = gpusched.statistics()
    fused((draws("Generator", "normal")() * 2 + 1).sum(), worker, "device")
    after = gpusched.statistics()
    assert after.device_tasks - before.device_tasks == 3
    assert after.bytes_to_device == before.bytes_to_device
    assert after.breaks == before.breaks


def test_numpy_draws_on_workers_without_a_gpu() -> None:
    draw = draws("Generator", "normal")
    with gpusched.disable():
        expected = draw().compute(scheduler="sync")
    with gpusched.enable(), dask.config.set({"gpusched.random": "device"}):
        np.testing.assert_array_equal(draw().compute(scheduler="sync"), expected)


def test_the_choice_goes_with_the_graph() -> None:
    with dask.config.set({"gpusched.random": "device"}):
        chosen = active()
    assert chosen
    assert chosen.random == "device"
    assert chosen.token != NONE.token
