"""The benchmark of programs larger than memory: it ends whatever the workers do."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest

import gpusched
from tests.benchmarks.memory import faults, groups
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


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["disk-full", "disk-slow"])
def test_disk_that_is_full_or_slow_costs_time_and_nothing_else(tmp_path: Path, fault: str) -> None:
    row = run(request(tmp_path, system="admission", fault=fault, patience=600.0))
    assert row.outcome.outcome == "finished"
    assert (row.restarts, row.ended) == (0, 0)
    assert row.written > 0
    assert row.resident < row.request.limit


def test_groups_are_made_where_this_process_may(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/mine\n1:cpu:/\n0::/\n")
    (tmp_path / "memory" / "mine").mkdir(parents=True)
    first = groups.hierarchy(tmp_path, own)
    assert first is not None
    assert (first.own, first.limit) == (tmp_path / "memory" / "mine", "memory.limit_in_bytes")
    own.write_text("0::/scope\n")
    scope = tmp_path / "scope"
    scope.mkdir()
    assert groups.hierarchy(tmp_path, own) is None
    (scope / "cgroup.subtree_control").write_text("cpu memory\n")
    second = groups.hierarchy(tmp_path, own)
    assert second is not None and (second.own, second.limit) == (scope, "memory.max")


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(groups.hierarchy() is None, reason="may not make memory cgroups")
def test_kernel_ends_a_worker_that_exceeds_its_group(tmp_path: Path) -> None:
    take = "x = bytearray(100_000_000); input()  # spawn_main"
    with groups.groups(40 * MB) as made:
        command = [sys.executable, "-c", take]
        ended = subprocess.run(command, env={**os.environ, **made.environment}, input=b"\n")
    assert ended.returncode == -signal.SIGKILL
    assert made.ended == 1
