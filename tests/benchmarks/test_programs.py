"""That each program runs, and computes the same with gpusched, on inputs too small to measure."""

from __future__ import annotations

import pytest

from tests.benchmarks.programs import PROGRAMS, first_calls, measure

pytest.importorskip("xarray")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs(name: str) -> None:
    timing = measure(name, nbytes=1 << 20, repeat=1)
    assert min(*timing.plain, *timing.fused) > 0


@pytest.mark.slow
@pytest.mark.processes
def test_first_calls_have_processes_of_their_own() -> None:
    assert min(first_calls("ndvi", megabytes=1, repeat=1)) > 0
