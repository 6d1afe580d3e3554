"""No pass leaves tasks apart without a reason: what could be together is counted by the graphs.

Whatever a pass is made of, what it may put together is seen in the graph that it returns. Where
there is more of that left, without a note of the pass, a refusal is silent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from hypothesis import given
from hypothesis import strategies as st

from gpusched.adapters.tasks import Task
from gpusched.breaks import GraphBreak
from gpusched.graph.direct import optimised
from gpusched.graph.passes import chains, grouping, merging, unsplitting
from gpusched.graph.passes.batching import batched
from gpusched.graph.passes.chains import absorbed, cuts, without_links
from gpusched.graph.passes.cutting import cut_together, cuts_of
from gpusched.graph.passes.grouping import Limits
from gpusched.graph.passes.merging import merged
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite

SIDE, CHUNK = 24, 12
LARGE = CHUNK * CHUNK * 8
"""Bytes of a chunk."""

STEPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + 2 * b,
    lambda a, b: a - b.mean(axis=0),
    lambda a, b: a.sum(axis=1, keepdims=True) * b + b.max(axis=1, keepdims=True),
    lambda a, b: a + b.T,
    lambda a, b: da.concatenate([a[:1], b[1:]]),
    lambda a, b: a.map_blocks(lambda block: np.sort(block, axis=1), dtype="f8") - b,
    lambda a, b: a.rechunk((6, 24)).rechunk((12, 12)) * 3 - b,
    lambda a, b: a.map_overlap(abs, depth=1, boundary="none") + b,
    lambda a, b: da.where(a > 1, b, 2)[a.shape[0] - SIDE :],
]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (merging, unsplitting, grouping):
        monkeypatch.setattr(module, "threads", lambda: 2)
    monkeypatch.setattr(chains, "cluster_threads", lambda: 2)
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        yield


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Return the graph of an array of any such steps."""
    source = da.from_array(np.ones((SIDE, SIDE)), chunks=CHUNK)
    arrays = [source + 1, source.map_blocks(np.copy)]
    for _ in range(draw(st.integers(1, 4))):
        step = draw(st.sampled_from(STEPS))
        if draw(st.integers(0, 9)):
            arrays.append(step(*draw(st.lists(st.sampled_from(arrays), min_size=2, max_size=2))))
        else:
            with dask.annotate(priority=1):
                arrays.append(step(arrays[-1], arrays[0]))
    wanted = draw(st.lists(st.sampled_from(arrays[2:]), min_size=1, max_size=2))
    keys = list(flatten([array.__dask_keys__() for array in wanted]))
    layers = {name: layer for each in wanted for name, layer in each.dask.layers.items()}
    tasks = optimised(HighLevelGraph.merge(*[each.dask for each in wanted]), keys)
    return Table(dict(tasks), keys, Sizes(layers))


def noted(table: Table, what: str) -> int:
    """Return how often a pass has noted that something stays apart."""
    return sum(times for (name, _), times in table.apart.items() if name == what)


def users_of(table: Table) -> dict[Any, list[Any]]:
    """Return the tasks that read each chunk."""
    found = defaultdict(list)
    for node in table.tasks.values():
        for key in node.dependencies if type(node) is Task else ():
            found[key].append(node)
    return found


@given(tables())
def test_every_link_that_is_left_is_noted(table: Table) -> None:
    found = without_links(table, joins=True)
    asked = {*table.wanted, *table.items}
    left = [
        key
        for node in found.tasks.values()
        if type(node) is Task and len(node.dependencies) == 1
        for key in node.dependencies
        if found.users[key] == 1 and key not in asked and type(found.tasks.get(key)) is Task
    ]
    assert noted(table, "chain") >= len(left)


@given(tables())
def test_every_chunk_that_several_tasks_read_is_noted(table: Table) -> None:
    found = merged(table, LARGE)
    shared = [
        key
        for key, users in users_of(found).items()
        if len(users) > 1 and (table.nbytes(key) or 0) >= LARGE and key in table.tasks
    ]
    assert noted(table, "merge") or not shared, shared


@given(tables())
def test_every_chunk_that_is_cut_twice_is_noted(table: Table) -> None:
    found = cut_together(table, LARGE, LARGE)
    held = table.held | set(table.wanted)
    cut = [
        key
        for key, users in users_of(found).items()
        if (table.nbytes(key) or 0) >= LARGE
        and sum(bool(cuts_of(n)) and n.key not in held and not n.data_producer for n in users) > 1
    ]
    assert noted(table, "cut") or not cut, cut


@given(tables())
def test_every_piece_that_one_task_takes_is_noted(table: Table) -> None:
    found = absorbed(table, 16)
    left = [
        node.key
        for node in found.tasks.values()
        if type(node) is Task and cuts(node) and not node.data_producer
        and found.users[node.key] == 1 and node.key not in table.wanted
        and (table.nbytes(node.key) or 0) * 2 < max(
            [table.nbytes(k) or 0 for k in node.dependencies], default=0)
    ]  # fmt: skip
    assert noted(table, "absorb") or not left, left


@given(tables(), st.sampled_from([1, 100, LARGE]), st.sampled_from([0, 1, 4, 40]))
def test_every_task_that_is_alone_is_noted(table: Table, chunk: int, least: int) -> None:
    rewritten = rewrite(table.tasks, table.functions, table.wanted)
    limits = Limits(tasks=8, nbytes=10 * LARGE, chunk=chunk, least=max(1, least))
    found = batched(rewritten, table, limits)
    reasons = {why: n for (what, why), n in table.apart.items() if what == "batch"}
    other_forms = sum(n for why, n in reasons.items() if why.kind is GraphBreak.FORM)
    programs = [node.func for node in found.values() if isinstance(node, Task)]
    alone = sum(not (type(each) is Program and each.is_batch) for each in programs)
    assert sum(reasons.values()) - other_forms <= alone <= sum(reasons.values())
