"""Three front ends of dask arrays: the same kernels and counts for the same program."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import gpusched
from tests.frontends.programs import (
    CLONED,
    FURTHER,
    ON_CLUSTERS,
    PROGRAMS,
    WAYS,
    WITH_THREADS,
)
from tests.tiers import starts_processes

ROOT = Path(__file__).parents[2]
ALL_WAYS = [f"way {name}" for name in (*WAYS, *CLONED)]
WITH = {
    "threads": [*ALL_WAYS, *(f"way {name}" for name in WITH_THREADS)],
    "cluster": [*ALL_WAYS, *(f"way {name}" for name in ON_CLUSTERS)],
}
"""Ways to compute with each scheduler."""

_FROM_DELAYED = {"way from_delayed", "way delayed between", "way scattered", "way submitted"}

MISSING = {
    "dask.array": set[str](),
    "expressions": {
        *FURTHER, *_FROM_DELAYED, "way store", "way to_zarr", "way to_delayed", "way clone",
        "way bind", "way checkpoint", "way columns", "way to_npy_stack", "way to_hdf5",
    },
    "dask-array": {"way delayed", "way delayed between", "way clone", "way bind", "way columns"},
}  # fmt: skip
"""What front ends do not have, or fail at without gpusched (dask 2026.8, dask-array 0.7.1)."""
OTHERS = [name for name in MISSING if name != "dask.array"]

LAUNCHES = {
    "way persist": 8,
    "way dask.persist": 8,
    "way dask.compute": 8,
    "way Client.compute several": 8,
    "way Client.persist": 8,
    # A function of the whole array, whose result is one further chunk.
    "way delayed between": 5,
}
"""Those of ways that compute more than the one program, whose four chunks are a kernel each."""

Outcomes = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
@starts_processes
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Give a function that runs all programs with a front end and a scheduler, each once.

    Once for all processes of pytest-xdist: the first one that asks runs them, others wait.
    """
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent

    @cache
    def run(front_end: str, scheduler: str) -> dict[str, Any]:
        path = folder / f"outcomes-{front_end}-{scheduler}.json"
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                command = [sys.executable, "-W", "ignore", "-m", "tests.frontends"]
                done = subprocess.run(
                    [*command, front_end, scheduler], cwd=ROOT, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stderr[-3000:]
                path.write_text(done.stdout)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    return run


def outcome_of(name: str, front_end: str, scheduler: str, outcomes: Outcomes) -> dict[str, Any]:
    """Return what came of a program; skip the test where the front end does not have it."""
    found: dict[str, Any] = outcomes(front_end, scheduler)[name]
    missing = found.get("missing", "")
    if missing and (name in MISSING[front_end] or missing.startswith("ModuleNotFoundError")):
        pytest.skip(missing)
    assert not missing
    return found


def compare(name: str, front_end: str, scheduler: str, outcomes: Outcomes) -> None:
    found = outcome_of(name, front_end, scheduler, outcomes)
    assert found == outcome_of(name, "dask.array", scheduler, outcomes)
    assert found["fused"] > 0


@pytest.mark.parametrize("front_end", OTHERS)
@pytest.mark.parametrize("name", [*PROGRAMS, *FURTHER, *WITH["threads"]])
def test_same_kernels_with_threads(name: str, front_end: str, outcomes: Outcomes) -> None:
    pytest.importorskip("dask_array")
    compare(name, front_end, "threads", outcomes)


@pytest.mark.parametrize("front_end", OTHERS)
@pytest.mark.parametrize("name", WITH["cluster"])
def test_same_kernels_on_a_cluster(name: str, front_end: str, outcomes: Outcomes) -> None:
    pytest.importorskip("dask_array")
    compare(name, front_end, "cluster", outcomes)


@pytest.mark.parametrize("front_end", list(MISSING))
@pytest.mark.parametrize(
    ("scheduler", "name"), [(scheduler, name) for scheduler in WITH for name in WITH[scheduler]]
)
def test_each_way_runs_the_kernels_of_computing_at_once(
    scheduler: str, name: str, front_end: str, outcomes: Outcomes
) -> None:
    if front_end != "dask.array":
        pytest.importorskip("dask_array")
    found = outcome_of(name, front_end, scheduler, outcomes)
    direct = outcome_of("way compute", front_end, scheduler, outcomes)
    rows = name == "way to_npy_stack" and scheduler == "threads"  # Two chunks, of whole rows.
    expected = 2 if rows else LAUNCHES.get(name, 4)
    assert sum(direct["kernels"].values()) == 4
    assert sum(found["kernels"].values()) == found["fused"] == expected


def test_programs_run_as_few_kernels_as_are_known(outcomes: Outcomes) -> None:
    found = outcomes("dask.array", "threads")
    launches = {name: sum(each.get("kernels", {}).values()) for name, each in found.items()}
    assert launches["chain"] == launches["sum"] == 4


@pytest.mark.parametrize("name", ["chain", "mean", "var", "slice", "concatenate"])
def test_explained_as_run(name: str) -> None:
    package = pytest.importorskip("dask_array")
    x = package.from_array(np.random.default_rng(0).standard_normal((200, 200)), chunks=100)
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        lazy = (PROGRAMS | FURTHER)[name](package, x)
        expected = gpusched.explain(lazy)
        gpusched.reset_statistics()
        with gpusched.enable():
            lazy.compute(scheduler="sync")
    counts = gpusched.statistics()
    assert expected.totals.launches == counts.launches > 0
    gpusched.reset_statistics()
