"""The machine's profile is measured once, kept, and measured anew where it cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import dask
import pytest

from gpusched import machine as module
from gpusched.backends.cache import kernels
from gpusched.inspection.cost import Work, compute_seconds, stage_seconds, task_seconds
from gpusched.machine import Host, Machine, host, known_host, machine, measure
from gpusched.profiling import profile
from gpusched.store.statistics import Statistics, reset_statistics, statistics

PLAIN = Machine(
    date="2026-11-21T00:00:00+00:00",
    processor="a processor",
    threads=4,
    bandwidth_one=1e9,
    bandwidth_all=2e9,
    simple_rate=1e9,
    heavy_rate_double=1e8,
    heavy_rate_single=2e8,
    task_seconds=1e-4,
    launch_seconds=1e-5,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_measured", {})
    return tmp_path


def test_what_is_measured_is_plausible() -> None:
    found = measure()
    assert found.bandwidth_all >= found.bandwidth_one > 1e7
    assert found.heavy_rate_double > 1e5
    assert 0 < found.task_seconds < 0.1
    assert 0 < found.launch_seconds < 0.1
    # Kernels keep what is between two operations in registers, as no call of NumPy's can.
    assert found.simple_rate > found.heavy_rate_double


def test_nobody_counts_the_kernels_that_measure(folder: Path) -> None:
    reset_statistics()
    before = len(kernels)
    settings = {"gpusched.fusion.cache-directory": str(folder), "gpusched.fusion.strict": True}
    with dask.config.set(settings), profile() as found:
        measure()
    assert len(kernels) == before
    assert not found.kernels
    assert statistics() == Statistics()


@pytest.mark.processes
def test_without_a_compiler_it_is_measured_and_not_kept(folder: Path) -> None:
    code = (
        "import gpusched, dask.array as da\n"
        "print(gpusched.explain(da.ones((100, 100)) * 2 + 1).machine.simple_rate > 1)\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    environment["DASK_GPUSCHED__FUSION__CACHE_DIRECTORY"] = str(folder)
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                           text=True, timeout=300)  # fmt: skip
    assert found.stdout == "True\n", found.stderr
    assert not (folder / "machine.json").exists()


def test_profile_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", lambda known: PLAIN)
    with dask.config.set({"gpusched.fusion.cache-directory": str(folder)}):
        assert machine() == PLAIN
        monkeypatch.setattr(module, "_measured", {})
        monkeypatch.setattr(module, "measure", lambda known: pytest.fail("measured again"))
        assert machine() == PLAIN
        assert json.loads((folder / "machine.json").read_text())["processor"] == "a processor"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"identity": "another machine"}'])
def test_unreadable_profile_is_measured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (folder / "machine.json").write_text(content)
    monkeypatch.setattr(module, "measure", lambda known: PLAIN)
    with dask.config.set({"gpusched.fusion.cache-directory": str(folder)}):
        assert machine() == PLAIN
        assert json.loads((folder / "machine.json").read_text())["threads"] == 4


def test_the_host_needs_no_kernels_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {f.name: getattr(PLAIN, f.name) for f in fields(Host)}
    monkeypatch.setattr(module, "measure_host", lambda: Host(**figures))
    monkeypatch.setattr(module, "_kernel_seconds", lambda *given: pytest.fail("compiled"))
    with dask.config.set({"gpusched.fusion.cache-directory": str(folder)}):
        assert known_host() is None
        found = host()
        assert found.bandwidth_all == PLAIN.bandwidth_all
        assert known_host() == found
        monkeypatch.setattr(module, "_measured", {})
        monkeypatch.setattr(module, "measure_host", lambda: pytest.fail("measured again"))
        assert host() == found
        monkeypatch.setattr(module, "_kernel_seconds", lambda *given: 1.0)
        assert machine().simple_rate > 0 and machine().bandwidth_all == found.bandwidth_all
        assert host() == machine()


def test_without_a_folder_it_is_kept_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        monkeypatch.setattr(module, "measure", lambda known: PLAIN)
        assert machine() == PLAIN
        monkeypatch.setattr(module, "measure", lambda known: pytest.fail("measured again"))
        assert machine() == PLAIN


def test_another_machine_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", lambda known: PLAIN)
    with dask.config.set({"gpusched.fusion.cache-directory": str(folder)}):
        machine()
        monkeypatch.setattr(module, "_measured", {})
        monkeypatch.setattr(module, "_identity", lambda: "another")
        called = []
        monkeypatch.setattr(module, "measure", lambda known: called.append(1) or PLAIN)
        machine()
    assert called


def test_the_slower_of_moving_and_computing_counts() -> None:
    assert task_seconds(PLAIN, 10**9, Work(simple=1), 0) == 1
    assert task_seconds(PLAIN, 1, Work(simple=2e9), 0) == 2
    assert task_seconds(PLAIN, 0, Work(), 3) == pytest.approx(3e-5)
    assert compute_seconds(PLAIN, Work(heavy=3e8, single=2e8)) == pytest.approx(2)


def test_a_stage_uses_all_threads() -> None:
    assert stage_seconds(PLAIN, 100, 2 * 10**9, Work(), 0) == pytest.approx(1.01)
    assert stage_seconds(PLAIN, 100, 0, Work(simple=4e9), 0) == pytest.approx(1.01)
    assert stage_seconds(PLAIN, 1, 0, Work(simple=4e9), 0) == pytest.approx(4.0001)
