"""Computes the programs with one front end, and prints what came of each as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any
from zlib import crc32

import dask
import numpy as np
from distributed.client import FutureCancelledError

from tests.frontends import programs
from tests.frontends.programs import Program

FRONT_ENDS = {
    "dask.array": ("dask.array", {}),
    "expressions": ("dask.array", {"array.query-planning": True}),
    "dask-array": ("dask_array", {}),
}

ABSENT = (ImportError, NotImplementedError, AttributeError, TypeError, ValueError,
          FutureCancelledError)  # fmt: skip
"""What a front end raises that does not have what it is asked for."""


def main(front_end: str, scheduler: str) -> None:
    module, settings = FRONT_ENDS[front_end]
    dask.config.set({"gpusched.fusion.minimum-elements": 0, "scheduler": "threads", **settings})
    da = import_module(module)
    if scheduler == "explain":
        return json.dump(explained(da), sys.stdout)
    found = {}
    with ExitStack() as stack:
        chosen = {f"way {name}": way for name, way in {**programs.WAYS, **programs.CLONED}.items()}
        if scheduler == "cluster":
            from distributed import Client

            client = Client(processes=False, n_workers=1, threads_per_worker=2,
                            dashboard_address=None, set_as_default=True)  # fmt: skip
            stack.enter_context(client)
            dask.config.set({"scheduler": None})
            chosen |= {f"way {name}": way for name, way in programs.ON_CLUSTERS.items()}
        else:
            chosen |= {f"way {name}": way for name, way in programs.WITH_THREADS.items()}
            chosen |= programs.PROGRAMS | programs.FURTHER
        # Rows of chunks, whose memory is the same be they sent or not.
        chunks = (50, 200) if scheduler == "cluster" else (100, 100)
        # Expressions are named for their values: a cluster would give what it still has. So each
        # program has values of its own, and is not run twice there.
        check = scheduler == "threads" or front_end != "expressions"
        for name, program in chosen.items():
            found[name] = outcome(
                partial(computed, da, program, chunks, crc32(name.encode())), check
            )
    json.dump(found, sys.stdout)


def explained(da: Any) -> dict[str, Any]:
    """Return what each program of the benchmarks would run: kernels, launches and tasks."""
    import gpusched

    # Which imports dask.array, by the settings of the front end.
    from tests.benchmarks import programs as benchmarks

    benchmarks.da = da
    if da.__name__ == "dask_array":
        from dask_array.xarray import register

        register()
    # As on two threads, with chunks that are large enough to be put together.
    dask.config.set({"num_workers": 2, "gpusched.fusion.merge-bytes": 1 << 15})
    found: dict[str, Any] = {}
    for name, build in benchmarks.PROGRAMS.items():
        try:
            counts = gpusched.explain(build(3 << 20)())
        except ABSENT as error:
            found[name] = {"missing": f"{type(error).__name__}: {error}"}
            continue
        found[name] = {
            "kernels": sorted(each.name.rpartition("_")[0] for each in counts.kernels),
            "launches": counts.totals.launches,
            "tasks": counts.totals.tasks_after,
        }
    return found


def outcome(compute: Callable[[], Any], check: bool) -> dict[str, Any]:
    """Return what a program gave with fusion on; without, too, if that is to be checked."""
    import gpusched

    plain = None
    try:
        plain = compute() if check else None
        gpusched.reset_statistics()
        with gpusched.enable():
            fused = compute()
    except ABSENT as error:
        if plain is not None:
            raise
        return {"missing": f"{type(error).__name__}: {error}"}
    counts = gpusched.statistics()
    if check:
        np.testing.assert_allclose(fused, plain, rtol=1e-12, atol=1e-12)
        assert fused.dtype == plain.dtype
    return {
        "tasks": counts.tasks,
        "fused": counts.fused_tasks,
        "kernels": dict(sorted(counts.kernels.items())),
        "value": hashlib.sha256(np.round(fused.astype("f8"), 6).tobytes()).hexdigest()[:8],
    }


def computed(da: Any, program: Program, chunks: tuple[int, int], seed: int) -> Any:
    values = np.random.default_rng(seed).standard_normal((200, 200))
    x = da.from_array(values, chunks=chunks, name=False)
    return np.asarray(dask.compute(program(da, x))[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
