"""Kernels on the workers of a cluster: by value, fused there, compiled once."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

import gpusched
from gpusched import Cluster
from gpusched.kernels import KernelError
from tests.tiers import starts_processes

SETTINGS = {"gpusched.fusion.minimum-elements": 0}

MODULE = """
import gpusched

SCALE = 3.0

def inner(x):
    return x * SCALE

@gpusched.kernel
def outer(x, y):
    return inner(x) - y

@gpusched.kernel
def both(x, y):
    return inner(x) + y, x - y

@gpusched.kernel.reduction(identity=0.0, value=inner)
def total(a, b):
    return a + b

@gpusched.kernel.stencil(boundary="nearest")
def slope(a):
    return inner(a[1]) - inner(a[-1])

@gpusched.kernel.scan(identity=0.0)
def running(a, b):
    return a + b
"""

MAIN = """
import math
import dask
import dask.array as da
import gpusched
import numpy as np
from distributed import Client

@gpusched.kernel
def logistic(x):
    return 1.0 / (1.0 + math.exp(-x))

if __name__ == "__main__":
    dask.config.set({"gpusched.fusion.minimum-elements": 0})
    with gpusched.Cluster(2, 1, gpus=0, memory_limit="1 GiB") as cluster, Client(cluster) as client:
        x = da.linspace(-3, 3, 1000, chunks=100)
        found = (logistic(x * 2) + 1).compute()
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-2 * np.linspace(-3, 3, 1000))) + 1)
        print("right")
"""


@pytest.fixture(scope="module")
@starts_processes
def client() -> Iterator[Client]:
    with (
        dask.config.set(SETTINGS),
        Cluster(2, 1, gpus=0, memory_limit="1 GiB") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Any]:
    """Import a module that no worker can import."""
    path = tmp_path / "kernels_of_mine.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("kernels_of_mine", path)
    assert spec is not None and spec.loader is not None
    found = sys.modules["kernels_of_mine"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found
    del sys.modules["kernels_of_mine"]


def merged(client: Client) -> gpusched.Statistics:
    total = gpusched.Statistics()
    for counts in client.run(gpusched.statistics).values():
        total = total.merge(counts)
    return total


def test_a_module_that_workers_do_not_have(client: Client, module: Any) -> None:
    values = np.random.default_rng(0).random((40, 30))
    x = da.from_array(values, chunks=10)
    client.run(gpusched.reset_statistics)
    np.testing.assert_array_equal((module.outer(x * 2, 1.0) + 1).compute(), values * 6 - 1 + 1)
    counts = merged(client)
    assert counts.launches == counts.fused_tasks == 12
    assert len(counts.kernels) == 1
    assert counts.compilations + counts.kernels_loaded + counts.kernels_received <= 2
    assert not counts.breaks


def test_each_form(client: Client, module: Any) -> None:
    values = np.random.default_rng(0).random(100)
    x = da.from_array(values, chunks=30)
    assert module.total(x).compute() == pytest.approx(values.sum() * 3)
    padded = np.pad(values, 1, "edge") * 3
    np.testing.assert_allclose(module.slope(x).compute(), padded[2:] - padded[:-2])
    np.testing.assert_allclose(module.running(x).compute(), values.cumsum())


def test_several_results_used_apart(client: Client, module: Any) -> None:
    values = np.random.default_rng(0).random((2, 100))
    x, y = (da.from_array(v, chunks=25) for v in values)
    a, b = module.both(x, y)
    client.run(gpusched.reset_statistics)
    first, second = dask.compute((a + y) * 2, (b + x) * 2)
    counts = merged(client)
    assert sum(n for name, n in counts.kernels.items() if "both" in name) == 4
    assert (counts.launches, dict(counts.breaks)) == (12, {})
    x, y = values
    np.testing.assert_array_equal(first, (x * 3 + y + y) * 2)
    np.testing.assert_array_equal(second, (x - y + x) * 2)


def test_inside_a_function_sent_to_workers(client: Client, module: Any) -> None:
    outer = module.outer
    found = client.submit(lambda: outer(np.arange(3.0), 1.0)).result()
    np.testing.assert_array_equal(found, np.arange(3.0) * 3 - 1)


def test_an_error_arises_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(KernelError, match="nothing"):
        gpusched.kernel(lambda x: x.nothing)(da.ones(10, chunks=5))


@pytest.mark.processes
def test_a_kernel_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "right"
