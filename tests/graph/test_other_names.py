"""Kernels of a program are the same whatever its data, and so its arrays, are called."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.tiers import exhaustive

UNARY = np.tanh, np.arctan, np.negative, np.cos, lambda x: x.sum(axis=0), lambda x: x - x.mean()
BINARY = np.add, np.multiply, np.subtract, np.maximum
DATA = np.random.default_rng(3).random((40, 30))


def program(seed: int, inputs: list[Any]) -> list[Any]:
    """Return some results of a few operations on inputs."""
    choose = random.Random(seed)
    arrays = list(inputs)
    for _ in range(choose.randint(4, 12)):
        one, other = choose.choices(arrays, k=2)
        if choose.random() < 0.4:
            arrays.append(choose.choice(UNARY)(one))
        else:
            arrays.append(choose.choice(BINARY)(one, other))
    made = arrays[len(inputs) :]
    return choose.sample(made, min(len(made), choose.randint(2, 5)))


def named(delayed: bool) -> Any:
    """Return an array of chunks under a name that nothing else has."""
    if not delayed:
        return da.from_array(DATA, chunks=(20, 15), name=f"data-{uuid4().hex}")
    pieces = [[DATA[i : i + 20, j : j + 15] for j in (0, 15)] for i in (0, 20)]
    wrapped = [[dask.delayed(each, name=uuid4().hex) for each in row] for row in pieces]
    arrays = [[da.from_delayed(each, (20, 15), DATA.dtype) for each in row] for row in wrapped]
    return da.block(arrays)


def kernels(seed: int, delayed: bool) -> dict[str, int]:
    """Return how often each kernel of a program would be launched."""
    results = program(seed, [named(delayed) for _ in range(3)])
    before = gpusched.statistics().unfused_launches
    dask.compute(*results, scheduler="sync")
    return dict(gpusched.statistics().unfused_launches - before)


@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("seed", [*range(8), *exhaustive(*range(8, 60))])
def test_names_of_data_make_no_other_kernels(seed: int, delayed: bool) -> None:
    with dask.config.set({"gpusched.fusion.compile": "off", "gpusched.fusion.merge-bytes": 1}):
        found = [kernels(seed, delayed) for _ in range(4)]
    assert found[0]
    assert all(each == found[0] for each in found)
