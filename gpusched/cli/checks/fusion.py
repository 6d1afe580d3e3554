"""Whether kernels can be compiled, kept, and give the right result."""

from __future__ import annotations

import tempfile

from gpusched.cli.checks import isolated
from gpusched.cli.checks.finding import Finding

_ENOUGH = 2**16
"""Bytes that are written where kernels are kept: as much as some kernels take."""
_PROGRAM = """
import dask, dask.array as da, numpy as np, gpusched
x = da.arange(100_000, chunks=20_000, dtype="float64")
# Or a program as small as this one would be over before its kernels are compiled.
with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "wait"}):
    found = ((x * 2 + 1) / (x + 3)).sum().compute(scheduler="sync")
y = np.arange(100_000.0)
assert abs(found - ((y * 2 + 1) / (y + 3)).sum()) < 1e-6 * abs(found), found
found = gpusched.statistics()
print(found.fused_tasks, *{reason for _, reason in found.breaks}, sep="; ")
"""


def kernel_cache() -> Finding:
    """Write a file where kernels are kept."""
    from gpusched.files import own_folder
    from gpusched.store import kernelfiles
    from gpusched.store.kernelfiles import directory

    folder = directory()
    if folder is None:
        return Finding.warning(
            "kernels are kept in memory only, and compiled again in each process",
            "set gpusched.fusion.cache-directory to a folder",
        )
    try:
        own_folder(folder, "chmod 700 it")
        # An empty file can be made on a full disk, too.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ENOUGH))
            file.flush()
        return Finding.ok(str(folder))
    except OSError as error:
        full = error.errno in kernelfiles.FULL
        return Finding.warning(
            f"{folder} cannot be written ({error}), so kernels are compiled again in each process",
            f"{'free space there, or ' if full else ''}set gpusched.fusion.cache-directory to a "
            "folder that can be",
        )


def program() -> Finding:
    """Compute a small array, fused, in a process of its own, and compare with NumPy."""
    done = isolated.run(_PROGRAM, 300)
    if done.problem:
        return Finding.failure(
            f"a small fused program fails: {done.problem}", "run gpusched info, report"
        )
    count, _, reasons = done.output.partition("; ")
    if count == "0":
        return Finding.failure(
            f"a small program was not fused: {reasons or 'nothing says why'}",
            "check gpusched info for what the settings say",
        )
    return Finding.ok(f"{count} chunk tasks fused, with NumPy's result")
