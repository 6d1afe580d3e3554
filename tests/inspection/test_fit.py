"""Whether a program fits on a cluster."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph.passes.fitting import DoesNotFitError, for_tasks, noting
from gpusched.inspection.explanation import Explanation
from gpusched.inspection.fit import OWN, Described, described

MIB = 1 << 20


@pytest.fixture(scope="module")
def explained() -> Explanation:
    """Give a program whose tasks take two chunks of 32 MiB at least, and three at most."""
    x = da.from_array(np.zeros((8192, 2048)), chunks=(2048, 2048))
    with gpusched.enable():
        return gpusched.explain((x - 1) * 3 + x)


def test_as_many_tasks_run_at_once_as_there_is_room_for(explained: Explanation) -> None:
    peak = explained.totals.peak
    assert 64 * MIB <= peak <= 96 * MIB
    limit = -(-(OWN + 2 * peak) * 4 // 3) + 1
    fit = explained.on(limit, workers=2, threads=3).fit
    assert fit is not None and fit.fits and fit.at_once == 2
    assert "a worker can run 2 of them at once" in str(fit)
    roomy = explained.on(1 << 40, threads=3).fit
    assert roomy is not None and roomy.at_once == 3 and roomy.spills == 0


def test_task_that_fits_nowhere_is_named_with_what_helps(explained: Explanation) -> None:
    fit = explained.on(300 * MIB).fit
    assert fit is not None and not fit.fits
    assert "it does not fit: the most demanding task (stage 1" in str(fit)
    assert "Use smaller chunks" in str(fit)


def test_what_may_be_spilled_is_what_no_worker_has_room_for(explained: Explanation) -> None:
    fit = explained.on(1 << 40).fit
    assert fit is not None and fit.kept == 4 * 32 * MIB
    small = explained.on(100 * MIB).fit
    assert small is not None and small.spills == 128 * MIB - 60 * MIB


def test_worker_takes_results_and_tasks_up_to_what_it_has_for_them(explained: Explanation) -> None:
    roomy = explained.on(1 << 40, workers=2, threads=2).fit
    assert roomy is not None
    # Half of the results, those of the other worker while they are received, and two tasks.
    assert roomy.worker_peak == OWN + 64 * MIB + 128 * MIB + 2 * roomy.peak
    alone = explained.on(1 << 40, workers=1, threads=2).fit
    assert alone is not None
    assert alone.worker_peak == OWN + 128 * MIB + 2 * alone.peak
    unknown = replace(roomy, peak=0, exact=False)
    assert unknown.worker_peak == OWN + roomy.cluster.for_tasks
    tight = explained.on(400 * MIB, workers=1, threads=2).fit
    assert tight is not None and tight.fits
    assert tight.worker_peak == 300 * MIB
    assert "up to 300.00 MiB in all, and 1 worker up to 300.00 MiB" in str(tight)


def test_results_that_nobody_reads_any_more_are_not_kept() -> None:
    x = da.ones((64, 1000), chunks=(1, 1000))
    with gpusched.disable():
        kept = gpusched.explain(x.sum(split_every=4)).totals.kept
    # dask goes deep first: a few partial results of each round of the tree.
    assert 0 < kept < 64 * 8


def test_it_is_part_of_text_and_data(explained: Explanation) -> None:
    found = explained.on(1 << 40)
    assert str(found.fit).split(":")[0] in " ".join(found.text().split())
    assert str(found.fit).split(":")[0] in found.html()
    data = json.loads(found.to_json())
    assert data["fit"]["fits"] is True
    assert json.loads(explained.to_json())["fit"] is None


def test_cluster_is_described_by_its_smallest_worker() -> None:
    workers: dict[str, dict[str, Any]] = {
        "a": {"memory_limit": 5, "nthreads": 2},
        "b": {"memory_limit": 7, "nthreads": 1},
    }
    cluster = SimpleNamespace(scheduler_info={"workers": workers})
    assert described(cluster) == Described(memory=5, workers=2, threads=2, own=0)
    client = SimpleNamespace(scheduler_info=lambda: {"workers": workers})
    assert described(client) == described(cluster)
    assert described(SimpleNamespace(scheduler_info={"workers": {}})) is None
    workers["a"] |= {"nanny": "tcp://a:1", "metrics": {"memory": 4, "managed_bytes": 1}}
    workers["b"] |= {"nanny": None, "metrics": {"memory": 9, "managed_bytes": 1}}
    assert described(cluster) == Described(memory=5, workers=2, threads=2, own=3)
    workers["b"]["metrics"]["gpusched"] = {"memory": {"own_bytes": 4}}
    assert described(cluster) == Described(memory=5, workers=2, threads=2, own=4)
    assert described(da.ones(3)) is None
    found = gpusched.explain(da.ones(3) + 1, cluster)
    assert found.fit is not None and not found.fit.fits


def test_cluster_without_limits_is_no_argument_of_a_function() -> None:
    workers = {"a": {"memory_limit": 0, "nthreads": 2}}
    cluster = SimpleNamespace(scheduler_info={"workers": workers})
    assert gpusched.explain(np.exp, np.ones(10_000), cluster).fit is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"memory": "much"}, "memory cannot be 'much'"),
        ({"memory": -1}, "memory cannot be -1"),
        ({"memory": 1 << 30, "workers": 0}, "workers cannot be 0: write a whole number, 1 or more"),
        ({"memory": 1 << 30, "threads": 1.5}, "threads cannot be 1.5"),
    ],
)
def test_what_is_no_cluster(explained: Explanation, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        explained.on(**given)
    with pytest.raises(TypeError, match="a cluster or a client, not"):
        gpusched.explain(da.ones(3) + 1, "tcp://127.0.0.1:8786")


def test_memory_is_a_size_as_everywhere(explained: Explanation) -> None:
    assert explained.on("1 GiB").fit == explained.on(1 << 30).fit


def test_task_that_joins_chunks_needs_its_result_and_one_of_them() -> None:
    x = da.random.default_rng(0).random((8, 1 << 17), chunks=(1, 1 << 17)).rechunk((8, 1 << 17))
    with gpusched.enable():
        found = gpusched.explain(x)
        assert found.on(256 * MIB).fit.peak == 9 * MIB
        with noting(room=9 * MIB + 1000):
            dask.optimize(x)
        with noting(room=9 * MIB - 1000), pytest.raises(DoesNotFitError):
            dask.optimize(x)


PROGRAMS: dict[str, Any] = {
    "drawn": lambda x: (da.sqrt(x * 2 + 1) * x).sum(),
    "kept": lambda x: da.sqrt(x * 2 + 1) * x + 1,
    "standardised": lambda x: (x - x.mean()) / x.std(),
    "sorted": lambda x: x.map_blocks(np.sort) + 1,
    "moved": lambda x: x.reshape(400, 250).T.rechunk((50, 400)) + 1,
    "halo": lambda x: x.map_overlap(np.sort, 3, boundary="none") * 2,
    "cumulative": lambda x: da.cumsum(x, axis=0),
    "joined": lambda x: da.concatenate([x, x * 2]).rechunk(200_000) - 1,
    "ones": lambda x: da.ones_like(x) * 2 + x[::-1],
    "masked": lambda x: x[x > 0.5].sum(),
    "product": lambda x: x.reshape(400, 250) @ x.reshape(400, 250).T,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_does_not_fit_is_refused_and_what_fits_is_not(name: str) -> None:
    x = da.random.default_rng(0).random(100_000, chunks=(25_000, 50_000, 25_000))
    y = PROGRAMS[name](x)
    with gpusched.enable():
        found = gpusched.explain(y)
        need = found.on(1 << 40).fit.peak
        for room in (need - 1, need):
            limit = next(n for n in count(room * 4 // 3) if for_tasks(n) == room)
            fit = replace(found.on(limit).fit, cluster=Described(limit, own=0))
            refused = pytest.raises(DoesNotFitError, match="cannot fit")
            with noting(room=for_tasks(limit)), nullcontext() if fit.fits else refused:
                dask.optimize(y)
            assert fit.fits == (room == need)


@pytest.mark.parametrize("name", [*PROGRAMS, "kept", "one", "both", "reduced"])
def test_join_that_compute_does_is_refused_where_it_is_said_not_to_fit(name: str) -> None:
    x = da.random.default_rng(0).random(100_000, chunks=(25_000, 50_000, 25_000))
    one = da.from_array(np.ones(50_000), chunks=-1)
    kept = x.persist(scheduler="sync")
    more = {"kept": [kept], "one": [one + 1], "both": [x, one * 2], "reduced": [x, x.sum()]}
    results = more[name] if name in more else [PROGRAMS[name](x)]
    with gpusched.enable():
        found = gpusched.explain(results)
        need = max(found.on(1 << 40).fit.peak, found.joined)
        for room in (need - 1, need):
            limit = next(n for n in count(room * 4 // 3) if for_tasks(n) == room)
            fit = replace(found.on(limit).fit, cluster=Described(limit, own=0))
            refused = pytest.raises(DoesNotFitError, match="cannot fit")
            with noting(room=for_tasks(limit)), nullcontext() if fit.fits_joined else refused:
                dask.compute(*results, scheduler=_optimised)
            assert fit.fits_joined == (room == need)
            assert fit.fits_joined or not fit.fits or "But compute()" in str(fit)


def _optimised(graph: Any, keys: Any, **kwargs: Any) -> Any:
    """Optimise a graph, and compute nothing of it."""
    graph.__dask_graph__()
    return [None for _ in keys]
