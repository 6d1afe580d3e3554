"""A notebook session: many small expressions, each of them once.

``python -m tests.benchmarks.notebook`` computes thirty different expressions on 50 MB, one after
the other, with gpusched and with plain dask, each in a process of its own with an empty cache, and
prints the sum of both and what was compiled and never used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dask.array as da
import numpy as np

from tests.benchmarks import page, report

ELEMENTS = 6_250_000
"""Of float64: 50 MB."""
CHUNKS = 8

UNARY: dict[str, Callable[[Any], Any]] = {
    "root": lambda x: np.sqrt(np.abs(x) + 1), "power": lambda x: np.exp(-x * x),
    "clip": lambda x: np.clip(2 * x + 1, -1, 1), "wave": lambda x: np.sin(x) * np.cos(x),
    "line": lambda x: (x - 0.25) * 3 + 1, "logarithm": lambda x: np.log1p(x * x),
}  # fmt: skip
ENDS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(), "maximum": lambda x: (x * 2 + 1).max(), "std": lambda x: x.std(),
    "sum": lambda x: (x - 0.5).sum(), "share": lambda x: (x > 0.5).mean(),
}  # fmt: skip


def expressions() -> list[Callable[[Any], Any]]:
    """Return thirty different expressions."""
    return [lambda x, f=f, g=g: g(f(x)) for f in UNARY.values() for g in ENDS.values()]


def session(fused: bool) -> dict[str, Any]:
    """Compute all of them once; return seconds, results and counts."""
    import gpusched

    rng = np.random.default_rng(0)
    x = da.from_array(rng.normal(size=ELEMENTS), chunks=ELEMENTS // CHUNKS)
    with gpusched.enable() if fused else gpusched.disable():
        started = perf_counter()
        results = [float(each(x).compute(scheduler="threads")) for each in expressions()]
        seconds = perf_counter() - started
    counted = gpusched.statistics()
    return {"seconds": seconds, "results": results, "unfused": counted.unfused_tasks,
            "fused": counted.fused_tasks, "requested": len(counted.kernels_requested),
            "used": sorted(counted.kernels)}  # fmt: skip


def run(fused: bool) -> dict[str, Any]:
    """Return what a session gives in a process of its own, on a machine that knows no kernels."""
    with tempfile.TemporaryDirectory(prefix="gpusched-notebook-") as folder:
        Path(folder, "run").mkdir(mode=0o700)
        own = {"XDG_RUNTIME_DIR": f"{folder}/run", "XDG_CACHE_HOME": f"{folder}/cache"}
        command = [sys.executable, "-m", "tests.benchmarks.notebook", "--one", str(int(fused))]
        done = subprocess.run(command, env=os.environ | own, check=True, capture_output=True)
        return dict(json.loads(done.stdout))


def one(fused: bool) -> None:
    """Print what a session gives, and what compiling has cost beside it and after it, as JSON."""
    from gpusched.store import background
    from gpusched.store.service import client as service

    found = session(fused)
    background.join()  # What is asked for is compiled after a session, too.
    made = service.made()
    service.stop()
    print(json.dumps(found | {"made": made}))


def spent(made: dict[str, float]) -> str:
    """Return how many kernels were compiled, and what that took, in words."""
    return f"{len(made)} compiled in {sum(made.values()):.1f} s of processor time"


def compared(repeat: int) -> str:
    """Return what sessions take beside plain dask's, which take turns, and what was compiled."""
    plain, fused = [], []
    for _ in range(repeat):
        plain.append(run(False))
        fused.append(run(True))
        np.testing.assert_allclose(fused[-1]["results"], plain[-1]["results"], rtol=1e-9)
    ours, theirs = (median(each["seconds"] for each in found) for found in (fused, plain))
    last = fused[-1]
    unused = {name: s for name, s in last["made"].items() if name not in last["used"]}
    return "\n".join([
        f"- plain dask {theirs:.2f} s, gpusched {ours:.2f} s: {ours / theirs:.2f} of its time",
        f"- {last['unfused']} tasks unfused, {last['fused']} fused",
        f"- {last['requested']} kernels asked for, {spent(last['made'])}",
        f"- of these never used: {spent(unused)}",
    ])  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.notebook",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--repeat", type=int, default=3, help="sessions of each (default 3)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the figures there")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        one(bool(options.one))
        return 0
    text = compared(options.repeat)
    header = report.header("tests.benchmarks.notebook", arguments)
    page.show(f"{text}\n\n{header}", options.write, "tests.benchmarks.notebook")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
