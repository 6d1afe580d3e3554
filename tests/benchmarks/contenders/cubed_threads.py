"""cubed on its threaded executor: every operation's result goes through Zarr, here in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import cubed  # type: ignore[import-untyped]
import numpy as np

from tests.benchmarks import names
from tests.benchmarks.contenders.base import THREADS, Case, Prepared
from tests.benchmarks.works.base import several

SHARED = Path("/dev/shm")


def prepare(case: Case) -> Prepared:
    folder = tempfile.mkdtemp(dir=SHARED if SHARED.is_dir() else None)
    spec = cubed.Spec(
        folder,
        allowed_mem="8GB",
        executor_name="threads",
        executor_options={"max_workers": THREADS},
    )
    program, xp = case.work.program_of("cubed"), names.cubed()
    arrays = [
        cubed.from_array(x, chunks=chunks, spec=spec)
        for x, chunks in zip(case.inputs, case.chunks(), strict=True)
    ]

    def run() -> Any:
        return cubed.compute(*several(program(xp, *arrays)))

    weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return Prepared(run, lambda results: [np.asarray(x) for x in results])
