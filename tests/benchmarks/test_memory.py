"""The benchmark of programs larger than memory: it ends whatever the workers do."""

from __future__ import annotations

import errno
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest

import gpusched
from tests.benchmarks.memory import faults
from tests.benchmarks.memory.__main__ import run
from tests.benchmarks.memory.faults import FullFiles
from tests.benchmarks.memory.programs import PROGRAMS, Sizes
from tests.benchmarks.memory.row import Request

MB = 1_000_000


def request(folder: Path, **more: object) -> Request:
    settings: dict[str, object] = {
        "program": "transpose", "system": "distributed", "workers": 1, "threads": 1,
        "limit": 400 * MB, "total": 400 * MB, "chunk": 8 * MB, "patience": 60.0,
        "folder": str(folder),
    }  # fmt: skip
    return Request(**{**settings, **more})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_compute_the_same_fused_and_unfused(program: str, tmp_path: Path) -> None:
    sizes = Sizes(total=320_000, chunk=40_000)
    values = []
    for switch in (gpusched.enable, gpusched.disable):
        folder = tmp_path / switch.__name__
        folder.mkdir()
        with switch(), dask.config.set({"gpusched.fusion.minimum-elements": 1 << 40}):
            (value,) = dask.compute(PROGRAMS[program](sizes, folder), scheduler="sync")
            values.append(float(value))
    assert np.isfinite(values).all()
    assert values[0] == pytest.approx(values[1])


def test_full_disk_takes_files_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "FULL", 1000)
    files = FullFiles(tmp_path / "files")
    files["first"] = np.ones(1000)
    with pytest.raises(OSError) as full:
        files["second"] = np.ones(10)
    assert full.value.errno == errno.ENOSPC
    files.full_until = 0.0
    files["second"] = np.ones(10)
    assert len(files) == 2
    files.close()


@pytest.mark.processes
@pytest.mark.slow
def test_row_of_a_program_that_takes_too_long_says_so_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    before = set(psutil.Process().children(recursive=True))
    row = run(request(tmp_path, patience=0.01))
    assert row.outcome.outcome == "gave up" and row.outcome.value is None
    assert "gave up after" in str(row)
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("system", ["admission", "distributed"])
def test_worker_killed_in_the_middle_is_counted(tmp_path: Path, system: str) -> None:
    row = run(request(tmp_path, system=system, fault="killed"))
    assert row.outcome.outcome == "finished"
    assert row.restarts == 1
