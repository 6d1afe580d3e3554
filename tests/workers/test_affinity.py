"""Binding to cores: tried in a process of its own, whose cores are its own business."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.workers import affinity


@given(st.lists(st.integers(0, 200), unique=True, min_size=1), st.integers(1, 40))
def test_slices_cover_the_cores_evenly(cpus: list[int], count: int) -> None:
    found = affinity.slices(cpus, count)
    assert len(found) == count
    sizes = {len(part) for part in found}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    used = [cpu for part in found for cpu in part]
    assert set(used) <= set(cpus)
    if count <= len(cpus):
        assert used == cpus


def test_cores_that_are_not_allowed_are_left_out() -> None:
    assert affinity.choose([1, 2, 9], [0, 1, 2]) == ((1, 2), None)
    cores, reason = affinity.choose([8, 9], [0, 1])
    assert cores == (0, 1)
    assert "none of the cores 8-9 is allowed" in (reason or "")


@given(st.sets(st.integers(0, 200)))
def test_ranges_name_every_core(cpus: set[int]) -> None:
    found: set[int] = set()
    for part in affinity.ranges(cpus).split(",") if cpus else []:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == cpus


def in_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"from gpusched.workers import affinity\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.processes
def test_every_thread_is_bound() -> None:
    core = affinity.allowed_cpus()[-1]
    code = (
        "import os, threading\n"
        "barrier = threading.Barrier(2)\n"
        "seen = []\n"
        "def other():\n"
        "    barrier.wait(); barrier.wait()\n"
        "    seen.append(os.sched_getaffinity(0))\n"
        "thread = threading.Thread(target=other)\n"
        "thread.start(); barrier.wait()\n"
        f"print(affinity.pin([{core}]))\n"
        "barrier.wait(); thread.join()\n"
        "print(seen, os.sched_getaffinity(0))\n"
    )
    assert in_process(code) == f"None\n[{{{core}}}] {{{core}}}"


@pytest.mark.processes
def test_refusal_is_told_and_no_error() -> None:
    told = in_process("print(affinity.pin([100000]))")
    assert "Invalid argument" in told
    assert f"allowed are {affinity.ranges(affinity.allowed_cpus())}" in told


def test_thread_that_starts_meanwhile_is_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[int] = []
    listings = iter([{1, 2}, {1, 3}, {1, 3}])

    def bind(thread: int, cores: set[int]) -> None:
        if thread == 2:
            raise ProcessLookupError
        assert cores == {5}
        bound.append(thread)

    monkeypatch.setattr(affinity, "_threads", lambda: next(listings))
    monkeypatch.setattr(os, "sched_setaffinity", bind)
    assert affinity.pin(iter([5])) is None
    assert bound == [1, 3]


@pytest.mark.parametrize("error", [OSError(22, "Invalid argument"), PermissionError(1, "refused")])
def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert str(error) in (affinity.pin([0]) or "")


def test_system_that_cannot_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    assert "binds no process" in (affinity.pin([0]) or "")
