"""The table of operations: programs that know nothing of a GPU, compared with plain dask."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.store.statistics import Statistics
from tests.placing.conftest import Counted
from tests.placing.programs import CHUNKS, PROGRAMS, SHAPE, Program

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs/reference/gpu-programs.md"

INTRODUCTION = f"""\
# NumPy programs on GPUs

Made by `GPUSCHED_REGENERATE=1 make test-gpu PARALLEL= ARGS="-k test_table"`; do not edit.

Where the chunk tasks of an unchanged NumPy program run on workers that own a GPU, with
`gpusched.device: auto`: see [how chunks get there](../how-to/clusters.md#numpy-programs-on-gpus).
Each program is in `tests/placing/programs.py`, on arrays of {SHAPE[0]} x {SHAPE[1]} float64 in
chunks of {CHUNKS[0]} x {CHUNKS[1]}, and was compared with what plain dask gives on the host: dtype,
shape and type equal, floats within a relative and absolute 1e-12, all else exactly. The counts were
made on the emulated GPU of `tests/emulated_gpu`. A task counts as the host's if any of its calls
ran there, but for those on what is small by then. Products and Fourier transforms are cuBLAS's and
cuFFT's, decompositions NumPy's. Models compute on the GPU where their library is built for it, and
get the chunks as they are there; no library is built for the emulated GPU. Tasks that only load,
create, store or fetch chunks are not counted; of others, one more or less may find its chunk on the
GPU from run to run.

| program | tasks on GPUs | on the host | called on the host, and why |
| --- | --- | --- | --- |
"""


LINE = re.compile(r" \(.*line \d+\)")
"""The line of a user's function, which moves when this file's neighbour is changed."""


def line(program: Program, counts: Statistics) -> str:
    """Return a program's line of the page."""
    reasons = {
        f"{name}: {LINE.sub('', reason)}"
        for name, reason in counts.host_reasons
        if reason.kind is not GraphBreak.LEAVES
    }
    told = "; ".join(sorted(reasons)).replace("|", "/") or "nothing"
    return f"| {program.operation} | {counts.device_tasks} | {counts.host_tasks} | {told} |\n"


LINES: dict[str, str] = {}


def compare(found: Any, expected: Any, tolerance: float) -> None:
    assert type(found) is type(expected)
    if expected is None:
        return  # It was stored; the folder has what was.
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.operation)
def test_results_are_those_of_plain_dask(
    program: Program, counted: Counted, tmp_path: Path
) -> None:
    if program.needs:
        pytest.importorskip(program.needs, reason=f"needs {program.needs}")
    plain, own = tmp_path / "plain", tmp_path / "own"
    plain.mkdir()
    own.mkdir()
    with gpusched.disable(), dask.config.set(scheduler="sync"):
        (expected,) = dask.compute(program.build(plain))
    (found,), counts = counted(lambda: dask.compute(program.build(own)))
    compare(found, expected, program.tolerance)
    if program.stored is not None:
        np.testing.assert_array_equal(program.stored(own), program.stored(plain))
    LINES[program.operation] = line(program, counts)


def test_page_is_current() -> None:
    """Counts may differ by a task: a copy takes an array's place before or after others read it.

    The lines of programs that have not run are left as they are.
    """
    regenerate = os.environ.get("GPUSCHED_REGENERATE") == "1"
    missing = [each for each in PROGRAMS if not each.needs and each.operation not in LINES]
    if missing and not regenerate:
        pytest.skip("needs the counts of all programs")
    written = PAGE.read_text().removeprefix(INTRODUCTION).splitlines(keepends=True)
    kept = {line.removeprefix("| ").split(" | ")[0]: line for line in written}
    lines = [LINES.get(each.operation) or kept[each.operation] for each in PROGRAMS]
    if regenerate:
        PAGE.write_text(INTRODUCTION + "".join(lines))
    text = PAGE.read_text()
    assert text.startswith(INTRODUCTION), "write the page anew: its second line says how"
    assert list(map(runs_on_gpus, text.removeprefix(INTRODUCTION).splitlines())) == list(
        map(runs_on_gpus, lines)
    )


def runs_on_gpus(line: str) -> tuple[str, bool]:
    """Return a line's program, and whether a task of it ran on a GPU."""
    operation, on_gpus, *_ = line.removeprefix("| ").split(" | ")
    return operation, int(on_gpus) > 0
