"""Arrays that several tasks, arguments and functions share are not taken for one another."""

import random
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from dask.highlevelgraph import HighLevelGraph

from gpusched import enable
from gpusched.adapters.tasks import DataNode, Dict, List, Task, TaskRef
from tests.tiers import every

CHUNKS, LENGTH = 4, 12


def weighted(x, y, weights):
    return x * y + weights


def chosen(x, y, otherwise=2.0):
    return np.where(x > 0.5, y, otherwise)


def summed(x, *others, scale=1):
    for other in others:
        x = x + other * scale
    return x


def of_list(arrays):
    return sum(arrays)


def of_dict(x, named):
    return x * named["a"] - named["b"]


FORMS = {
    "keyword of a partial": lambda key, x, given, f: Task(key, f[0], x, given()),
    "position of a partial": lambda key, x, given, f: Task(key, f[1], given(), x),
    "keyword that a call replaces": lambda key, x, given, f: Task(
        key, f[2], x, given(), otherwise=given()
    ),
    "partial of a partial": lambda key, x, given, f: Task(key, f[3], x),
    "positions": lambda key, x, given, f: Task(key, weighted, x, given(), given()),
    "others": lambda key, x, given, f: Task(key, summed, x, given(), given(), scale=given()),
    "list": lambda key, x, given, f: Task(key, of_list, List(given(), x, given())),
    "dictionary": lambda key, x, given, f: Task(
        key, of_dict, x, Dict({"a": given(), "b": given()})
    ),
    "task in a task": lambda key, x, given, f: Task(
        key, np.add, Task(None, f[0], x, given()), Task(None, f[2], x, given())
    ),
    "fused tasks": lambda key, x, given, f: Task.fuse(
        Task("first", f[0], x, given()), Task(key, f[2], TaskRef("first"), given())
    ),
}


@pytest.mark.parametrize("seed", every(4, range(12)))
@pytest.mark.parametrize("form", every(3, FORMS))
def test_results_are_those_of_plain_dask(form, seed):
    draw = random.Random(f"{form} {seed}")
    x, y = (da.random.default_rng(k).random(CHUNKS * LENGTH, chunks=LENGTH) * 2 for k in range(2))
    pool = [np.arange(LENGTH) * 1.5, np.arange(LENGTH) * 1.5, np.ones(LENGTH), np.float64(3)]

    def given(k):
        """Return an argument of a task: its chunk, another array's, or one of a few arrays."""
        array, node = draw.choice(pool), DataNode(None, draw.choice(pool))
        return draw.choice([array, node, TaskRef((x.name, k)), TaskRef((y.name, k))])

    held, other = draw.choice(pool), draw.choice(pool)
    once = partial(weighted, held)
    functions = [
        partial(weighted, weights=held), once, partial(chosen, otherwise=held), partial(once, other)
    ]  # fmt: skip
    tasks = {
        ("t", k): FORMS[form](("t", k), TaskRef((x.name, k)), partial(given, k), functions)
        for k in range(CHUNKS)
    }
    graph = HighLevelGraph.from_collections("t", tasks, [x, y])
    program = da.Array(graph, "t", chunks=x.chunks, dtype=float)
    expected = program.compute(scheduler="sync")
    small = {"gpusched.fusion.minimum-elements": 1, "gpusched.fusion.minimum-operations": 1}
    with enable(), dask.config.set(small):
        for _ in range(2):
            np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
