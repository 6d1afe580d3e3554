"""First calls of whole programs with chunks on the card, each in a process that knows no kernel.

`python -m tests.gpu_report.steps.first dask heat 512` is one of those processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from tests.gpu_report.steps.attempts import or_error
from tests.gpu_report.steps.rates import RUNS

CALLS = 4
SECONDS = 60.0


def first_calls(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return milliseconds of first and later calls, by plain dask and fused."""
    side = 512 if rehearsal else 16_384
    return {
        f"First calls on {side} x {side} float32, 16 chunks": [
            {"program": name, **or_error(lambda name=name: _beside(name, side))} for name in RUNS
        ]
    }


def _beside(name: str, side: int) -> dict[str, Any]:
    for _ in range(2):  # The second time, CuPy's own kernels are on disk.
        plain, fused = (_process([who, name, str(side)]) for who in ("dask", "gpusched"))
    return {
        "dask + CuPy first ms": plain["ms"][0], "later": plain["ms"][-1],
        "gpusched first ms": fused["ms"][0], "second": fused["ms"][1],
        "tasks without kernels in the first": f"{fused['unfused'][0]} of {fused['tasks'][0]}",
        "modules imported in it": fused["imported"][0],
    }  # fmt: skip


def _process(arguments: list[str]) -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory(prefix="gpusched-first-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", __name__, *arguments], check=True, capture_output=True,
            text=True, timeout=SECONDS, env=os.environ | {"XDG_CACHE_HOME": folder},
        )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def calls(who: str, name: str, side: int) -> dict[str, list[int]]:
    """Return what each of some calls took, and what it counted."""
    import cupy
    import dask
    import dask.array as da

    import gpusched

    (gpusched.enable if who == "gpusched" else gpusched.disable)()
    draws, chunk = cupy.random.default_rng(0), side // 4
    parts = [[draws.random((chunk, chunk), "f4") for _ in range(4)] for _ in range(4)]
    x = da.block([[da.from_array(part, chunks=chunk) for part in row] for row in parts])
    x = x.persist(scheduler="threads")
    found: dict[str, list[int]] = {"ms": [], "tasks": [], "unfused": [], "imported": []}
    with dask.config.set(scheduler="threads", num_workers=2):
        for _ in range(CALLS):
            gpusched.reset_statistics()
            modules = len(sys.modules)
            cupy.cuda.Device().synchronize()
            started = time.perf_counter()
            made = RUNS[name](x)
            (abs(made).sum(axis=0) if made.ndim == 2 else made).compute()
            cupy.cuda.Device().synchronize()
            counts = gpusched.statistics()
            found["ms"].append(round((time.perf_counter() - started) * 1e3))
            found["tasks"].append(counts.tasks)
            found["unfused"].append(counts.unfused_tasks)
            found["imported"].append(len(sys.modules) - modules)
    return found


if __name__ == "__main__":
    print(json.dumps(calls(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
