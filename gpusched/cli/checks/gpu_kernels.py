"""Whether kernels can be compiled for each GPU, run there, and give NumPy's result."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpusched import installing
from gpusched.cli.checks import isolated
from gpusched.cli.checks.finding import Finding
from gpusched.cli.checks.gpu import has_hardware
from gpusched.workers.visible_gpus import ENVIRONMENT_VARIABLE, visible_devices

_SECONDS = 300

_PROGRAM = """
import os
os.environ[{variable!r}] = {entry!r}
import json
import cupy, dask, dask.array as da, numpy as np, gpusched

values = np.linspace(-2, 2, 40_000, dtype="float32").reshape(200, 200)
settings = {{"gpusched.fusion.strict": True, "gpusched.fusion.compile": "wait"}}

def computed(name, program):
    x = da.from_array(cupy.asarray(values), chunks=(100, 200))
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set(settings):
        found = cupy.asnumpy(program(x).compute(scheduler="sync"))
    wanted = program(values)
    worst = abs(found - wanted).max()
    assert np.allclose(found, wanted, rtol=1e-5), f"{{name}} is {{worst:.3g}} off NumPy's result"
    assert gpusched.statistics().launches, f"{{name}}: no kernel was launched"

computed("an elementwise kernel", lambda x: (x * 2 + 1) / (x * x + 3))
computed("a reduction", lambda x: (x * x + 1).sum(axis=1))
properties = cupy.cuda.runtime.getDeviceProperties(0)
print(json.dumps(properties["name"].decode()))
"""


def kernels() -> Finding:
    """Compile and run an elementwise kernel and a reduction on each GPU; compare with NumPy.

    Each GPU is used by a process of its own, which sees it alone, as a worker does.
    """
    entries = visible_devices() if has_hardware() else []
    if not entries:
        return Finding.skipped("no NVIDIA GPU")
    outcomes = list(_outcomes(entries))
    failed = [f"GPU {entry}: {problem}" for entry, _, problem in outcomes if problem]
    if failed:
        return Finding.failure(
            f"a small program fails: {'; '.join(failed)}",
            f"{installing.command('cuda13')}, or [cuda12] for a driver of CUDA 12, which bring the "
            "versions that are known to work",
        )
    names = ", ".join(f"{entry} ({name})" for entry, name, _ in outcomes)
    return Finding.ok(f"an elementwise kernel and a reduction, with NumPy's results, on {names}")


def _outcomes(entries: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each GPU's entry with its name, and what went wrong there; empty if nothing did."""
    for entry in entries:
        code = _PROGRAM.format(variable=ENVIRONMENT_VARIABLE, entry=entry)
        done = isolated.run(code, _SECONDS)
        name = "" if done.problem else json.loads(done.output.splitlines()[-1])
        yield entry, name, done.problem
