"""What tasks surely need is never more than they take, whatever the program and the kernels."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef, parse_input
from dask.array.core import finalize
from dask.core import flatten, reshapelist
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph import optimize
from gpusched.graph.passes.fitting import noted, noting
from gpusched.inspection.task_memory import held

SHAPE, CHUNKS = (128, 160), (128, 80)
CHUNK = 8 * 128 * 80


def nothing(block: Any) -> Any:
    return np.broadcast_to(np.zeros((), block.dtype), block.shape)


def first(block: Any) -> Any:
    return block[:1]


def random(seed: int = 0) -> Any:
    return da.random.default_rng(seed).random(SHAPE, chunks=CHUNKS)


SOURCES: dict[str, Callable[[], Any]] = {
    "random": random,
    "state": lambda: da.random.RandomState(0).normal(size=SHAPE, chunks=CHUNKS),
    "integers": lambda: da.random.default_rng(0).integers(0, 9, SHAPE, "i1", chunks=CHUNKS) + 0.5,
    "arange": lambda: da.arange(128 * 160, chunks=128 * 80, dtype="f8").reshape(SHAPE),
    "ones": lambda: da.ones(SHAPE, chunks=CHUNKS),
    "array": lambda: da.from_array(np.ones(SHAPE), chunks=CHUNKS),
    "shown": lambda: da.from_array(np.broadcast_to(np.ones(160), SHAPE), chunks=CHUNKS),
    # dask believes these to be larger than they are.
    "wrong dtype": lambda: random().map_blocks(np.add, 1, dtype="c16").real,
    "wrong chunks": lambda: da.ones((1, 2), chunks=1).map_blocks(
        np.add, 1, chunks=((128,), (80, 80)), dtype="f8"
    ),
}
STEPS: dict[str, Callable[[Any], Any]] = {
    "plus": lambda x: x + 1,
    "itself": lambda x: x * x,
    "its transpose": lambda x: x[:80, :80] + x[:80, :80].T,
    "other": lambda x: np.add(x, da.random.default_rng(3).random(x.shape, chunks=x.chunks)),
    "where": lambda x: da.where(x > 0.5, x, 0),
    "clip": lambda x: da.clip(x, 0.1, 0.9),
    "transposed": lambda x: x.T,
    "real": lambda x: x.real,
    "sliced": lambda x: x[::2, 1:],
    "flipped": lambda x: x[::-1],
    "narrow": lambda x: x.astype("f4"),
    "same dtype": lambda x: x.astype(x.dtype, copy=False),
    "reshaped": lambda x: x.reshape(-1),
    "row": lambda x: x.sum(axis=0, keepdims=True),
    "column first": lambda x: x - x.mean(axis=1, keepdims=True) if x.ndim > 1 else x - x.mean(),
    "broadcast": lambda x: da.broadcast_to(x[:1], x.shape, chunks=x.chunks),
    "joined": lambda x: da.concatenate([x, x + 1]).rechunk(-1),
    "whole": lambda x: x.rechunk(-1),
    "halo": lambda x: x.map_overlap(np.sort, 1, boundary="reflect"),
    "user's nothing": lambda x: x.map_blocks(nothing, dtype=x.dtype),
    "user's piece": lambda x: x.map_blocks(first, dtype=x.dtype),
    "user's view": lambda x: x.map_blocks(lambda b: b[...], dtype=x.dtype),
    "user's number": lambda x: x.map_blocks(lambda b: b.mean(), dtype=x.dtype),
    "user's new": lambda x: x.map_blocks(lambda b: np.cos(b * 2) + 1, dtype=x.dtype),
    "cumulative": lambda x: da.cumsum(x, axis=0),
}
# Few enough for each of their kernels to be compiled by one test.
MADE = "array", "ones", "random"
IN_KERNELS = "broadcast", "clip", "column first", "other", "plus", "row", "user's new"
# Of two dimensions only, or of chunks that may be anything else than dask believes.
TWO = {"its transpose", "joined", "sliced"}


def program(source: str, steps: list[str]) -> Any:
    """Return an array by the names of what makes it, as far as dask lets these be put together."""
    x = SOURCES[source]()
    for name in steps:
        if name not in TWO or (x.ndim == 2 and min(x.shape) >= 80):
            x = STEPS[name](x)
    return x


def compare(x: Any, final: bool = False) -> dict[Any, tuple[int, int]]:
    """Return what each task surely needs, and what it takes: all run, one after the other."""
    graph, keys = dict(x.dask), list(flatten(x.__dask_keys__()))
    if final:
        refs = reshapelist(x.numblocks, [TaskRef(key) for key in keys])
        graph["all"], keys = Task("all", finalize, parse_input(refs)), ["all"]
    with noting(-1):
        nodes = dict(optimize(graph, keys))
        noticed = noted()
    assert noticed is not None
    values = dict[Any, Any]()
    compared = {}

    def value_of(key: Any) -> Any:
        node = nodes[key]
        if key in values:
            return values[key]
        given = {each: value_of(each) for each in node.dependencies}
        if isinstance(node, Alias):
            values[key] = given[node.target]
        elif isinstance(node, DataNode):
            values[key] = node.value
        else:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            values[key] = node(given)
            taken = tracemalloc.get_traced_memory()[1] - before
            if key in noticed.declared and isinstance(node, Task):
                compared[key] = noticed.declared[key].least, held(given.values()) + taken
        return values[key]

    gc.collect()
    tracemalloc.start()
    try:
        for key in list(nodes):
            # Chunks may not be what dask believes: others cannot read them, or they are empty.
            with suppress(ValueError, IndexError, RuntimeWarning):
                value_of(key)
    finally:
        tracemalloc.stop()
    return compared


def settings(compiled: str) -> Any:
    return dask.config.set({
        "gpusched.fusion.compile": compiled,
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.batching.least": None,
    })  # fmt: skip


def check(compiled: str, source: str, steps: list[str], final: bool) -> None:
    with settings(compiled):
        for key, (least, taken) in compare(program(source, steps), final).items():
            assert least <= taken, key


@given(
    st.sampled_from(sorted(SOURCES)),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.booleans(),
)
def test_no_task_takes_less_than_it_surely_needs(
    source: str, steps: list[str], final: bool
) -> None:
    check("off", source, steps, final)


@pytest.mark.exhaustive
@given(st.sampled_from(MADE), st.lists(st.sampled_from(IN_KERNELS), max_size=2), st.booleans())
def test_nor_does_one_with_kernels(source: str, steps: list[str], final: bool) -> None:
    check("wait", source, steps, final)


@pytest.mark.parametrize(
    ("source", "steps", "chunks"),
    [
        ("random", [], 1),
        ("random", ["plus"], 2),
        ("random", ["plus", "clip"], 1),
        ("array", ["plus"], 1),
        ("ones", ["plus"], 1),
        ("random", ["narrow"], 1.5),
        # Each in turn is copied into the result.
        ("random", ["whole"], 3),
        ("ones", ["plus", "whole"], 3),
        # Views, of inputs and of each other, and what dask is told.
        ("array", ["transposed"], 0),
        ("array", ["same dtype"], 0),
        ("ones", ["transposed"], 0),
        ("random", ["transposed"], 1),
        ("wrong dtype", [], 1),
        ("wrong chunks", [], 0),
        ("wrong chunks", ["plus"], 0),
        ("ones", ["user's nothing", "plus"], 0),
        ("array", ["user's new", "plus"], 0),
    ],
)
def test_what_tasks_surely_need(source: str, steps: list[str], chunks: float) -> None:
    with settings("off"):
        found = compare(program(source, steps))
    most = max((least for least, _ in found.values()), default=0)
    assert round(most / CHUNK, 1) == chunks


def test_result_that_is_joined_counts_with_its_chunks() -> None:
    with settings("off"):
        assert max(least for least, _ in compare(random(), final=True).values()) == 4 * CHUNK


def test_reduction_and_a_broadcast_after_it_are_not_there_together() -> None:
    """Kernels have the one before the other, and dask's sizes are of both."""
    x = da.from_array(np.ones((1, 20_000)), chunks=-1)
    y = (x + 1).sum(axis=1, keepdims=True) * da.ones((1, 20_000), chunks=-1)
    with settings("wait"):
        for least, taken in compare(y).values():
            assert least <= taken
