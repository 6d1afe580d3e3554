"""The closing lines of a run."""

from __future__ import annotations

from collections import Counter
from unittest.mock import Mock

import dask
import pytest

from gpusched.breaks import GraphBreak
from gpusched.cli import run_cluster
from gpusched.cli.summary import summary
from gpusched.store.statistics import Committed, Statistics


def test_everything_counted_is_told() -> None:
    counted = Statistics(
        tasks=1200,
        fused_tasks=1000,
        launches=1000,
        kernels=Counter(first=999, second=1),
        compilations=2,
        compile_seconds=0.5,
        compilation_microseconds=Counter(second=250_000, third=125_000),
        bytes_read=2**30,
        bytes_written=2**20,
        breaks=Counter({("sort", "no scalar meaning"): 3, ("fft", "not known"): 1}),
    )
    assert summary(counted, 2.0).splitlines() == [
        "gpusched: 2.00 s",
        "  tasks     1,200 with array functions, 1,000 of them fused",
        "  kernels   2, launched 1,000 times",
        "  data      1.00 GiB read and 1.00 MiB written by kernels",
        "  compiled  2 times, 0.50 s, which tasks waited for, one kernel not launched any more",
        "  unfused   sort: no scalar meaning (3 times)",
        "  unfused   fft: not known (once)",
    ]


def test_where_a_numpy_program_ran_is_told() -> None:
    counted = Statistics(
        tasks=9, device_tasks=8, host_tasks=1, bytes_to_device=2**30, bytes_to_host=2**20,
        host_reasons=Counter({("sort", "no kernel computes it"): 1}),
        bytes_between_devices=3 * 2**30, bytes_through_host=2**20,
    )  # fmt: skip
    assert summary(counted, 2.0).splitlines()[4:] == [
        "  device    8 of 9 tasks ran on GPUs, 1.00 GiB copied to GPUs and 1.00 MiB back",
        "  sent      3.00 GiB from GPU to GPU, 1.00 MiB through the host",
        "  on host   sort: no kernel computes it (once)",
    ]


def test_what_had_no_room_is_told() -> None:
    counted = Statistics(spilled_bytes=2**30, unspilled_bytes=2**29, memory_waits=1200,
                         memory_wait_seconds=3.456, memory_pieces=1)  # fmt: skip
    told = (
        "  memory    1.00 GiB of results spilled to disk, 512.00 MiB read back; 1,200 tasks waited "
        "for room, 3.46 s together; one task run on parts of their chunks"
    )
    assert summary(counted, 2.0).splitlines()[-1] == told
    counted.memory_reasons.update({"running tasks": 1199, "spilling": 1})
    counted.memory_fullest += Committed(2**30, held=2**29, reserved=2**28, unmanaged=2**27)
    counted.memory_fullest += Committed(2**30, held=2**29)
    assert summary(counted, 2.0).splitlines()[-3:] == [
        told,
        "            waited for: running tasks (1,199 times), spilling (once)",
        "            a worker took at most 896.00 MiB of the 1.00 GiB for tasks: 512.00 MiB held, "
        "256.00 MiB reserved, 128.00 MiB unmanaged",
    ]


def test_rare_reasons_are_counted_together() -> None:
    breaks = Counter({(f"function{n}", "not known"): 20 - n for n in range(11)})
    lines = summary(Statistics(tasks=1, breaks=breaks), 1.0).splitlines()
    assert sum("unfused" in line for line in lines) == 8
    assert lines[-1].strip() == "and 3 other reasons"


def test_what_was_not_put_together_is_one_plain_sentence() -> None:
    apart = Counter({
        ("batch", GraphBreak.UNKNOWN_SIZE("chunks of unknown size")): 1200,
        ("tile", GraphBreak.SMALL("few tiles")): 34,
        ("stream", GraphBreak.NO_GAIN("results that stay in the cache")): 8,
    })  # fmt: skip
    assert summary(Statistics(tasks=1, apart=apart), 1.0).splitlines()[-1] == (
        "  apart     1,234 times, tasks or kernels were not put together, and ran as they are; "
        "gpusched explain --details SCRIPT says why"
    )


def test_nothing_to_fuse_is_said() -> None:
    assert "nothing was fused" in summary(Statistics(), 1.0)


def test_what_a_failed_script_would_have_fused_is_not_guessed() -> None:
    assert summary(Statistics(), 1.0, code=3).splitlines() == [
        "gpusched: 1.00 s",
        "  tasks     none with array functions had ended when the script failed (exit code 3)",
    ]
    assert "fused" in summary(Statistics(tasks=1), 1.0, code=3)


def test_missing_counts_are_named() -> None:
    lines = summary(Statistics(tasks=1), 1.0, missing=["worker a died"]).splitlines()
    assert lines[-1] == "  missing   worker a died"
    assert "nothing was fused" not in summary(Statistics(), 1.0, missing=["worker a died"])


def test_what_ran_without_its_kernels_is_told_with_what_the_next_run_finds() -> None:
    counted = Statistics(
        tasks=40, fused_tasks=28, unfused_tasks=12, unfused_seconds=3.456, kernel_seconds=1.0,
        unfused_microseconds=Counter(first=2_000_000, second=1_000_000, third=456_000),
        kernels_requested=Counter(first=2), kernels=Counter(second=28),
    )  # fmt: skip
    lines = summary(counted, 2.0).splitlines()
    assert lines[4:6] == [
        "  waiting   12 of 40 tasks ran unfused, as kernels were not compiled: 3.46 s of the "
        "4.46 s on chunks",
        "  next run  will find 2 of 3 kernels compiled, for 3.00 s of these",
    ]
    counted.kernels_requested["third"] = 1
    assert "will find all 3 kernels compiled, for 3.46 s" in summary(counted, 2.0)
    lines = summary(counted, 2.0, compiling=["third", "another process's"]).splitlines()
    assert lines[5].endswith("of these; the compile service is still making one of them")


def test_too_little_work_for_a_compilation_is_said() -> None:
    counted = Statistics(tasks=4, unfused_tasks=4, unfused_seconds=0.1,
                         unfused_microseconds=Counter(first=100_000))  # fmt: skip
    lines = summary(counted, 2.0).splitlines()
    assert "all 4 tasks ran unfused" in lines[4]
    told = "  next run  takes as long: too little so far to compile one kernel for; runs add up"
    assert lines[5] == told
    with dask.config.set({"gpusched.fusion.compile": "off"}):
        assert summary(counted, 2.0).splitlines()[5].endswith("gpusched.fusion.compile is off")


def test_kernels_that_came_too_late_are_told() -> None:
    counted = Statistics(tasks=4, compilations=2, compile_seconds=0.5,
                         compilation_microseconds=Counter(first=400_000, second=100_000),
                         kernels=Counter(second=1))  # fmt: skip
    told = "  compiled  2 times, 0.50 s of processor time in the background, one kernel not "
    with dask.config.set({"gpusched.fusion.compile": "background"}):
        assert told in summary(counted, 2.0)


def test_what_chunks_would_have_taken_unfused_is_estimated_where_that_was_measured() -> None:
    counted = Statistics(
        tasks=8, fused_tasks=5, unfused_tasks=3, unfused_seconds=3.5, kernel_seconds=0.5,
        unfused_microseconds=Counter(first=3_000_000, late=500_000),
        unfused_launches=Counter(first=6, late=1), kernels=Counter(first=4),
    )  # fmt: skip
    told = "  estimate  5.50 s if all had run unfused, as long as these"
    assert told in summary(counted, 2.0).splitlines()
    counted.kernels["always there"] = 1
    assert f"{told}; not counting one kernel, there from the beginning" in summary(counted, 2.0)
    del counted.kernels["first"]
    assert "estimate" not in summary(counted, 2.0)


def test_counts_of_a_worker_that_does_not_answer_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Mock(status="running")
    client.get_events.return_value = []
    session = run_cluster.Session(client, None, fused=True, before={("host", 1): Statistics()})
    monkeypatch.setattr(run_cluster, "gather", lambda *_: {})
    assert session.end()[2] == ["counts of a worker that does not answer"]
    client.get_events.return_value = [(1.0, {"worker": "a", "action": "remove-worker"})]
    assert session.end()[2] == ["worker a died: its counts are lost"]
