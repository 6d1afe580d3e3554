"""Profiles of computations in this process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.local
import numpy as np
import pytest
from dask.callbacks import Callback

import gpusched
from gpusched import events, threadsafe
from gpusched.backends.cache import kernels
from gpusched.profiling import Profile
from gpusched.settings import SettingError
from tests.contention import wait_for


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    """Switch fusion on, and check that no recording is left behind."""
    with gpusched.enable():
        yield
    assert events.active == ()
    assert dask.local.get_async.__module__ == "dask.local"


def program(rows: int = 8) -> da.Array:
    x = da.ones((rows * 1000, 100), chunks=(1000, 100))
    return ((x - 0.5) * 3 + x).sum()


def launches(found: Profile) -> Counter[str]:
    return Counter({row.name: row.launches for row in found.kernels})


def kinds(found: Profile) -> Counter[str]:
    return Counter(span.kind for span in found.timeline.spans)


def test_explaining_launches_nothing() -> None:
    x = program()
    with gpusched.profile() as found:
        gpusched.explain(x)
        gpusched.explain(lambda block: (block - 0.5) * 3 + block, np.ones((1000, 100)))
    assert not launches(found)
    with gpusched.profile() as found:
        gpusched.explain(x)
        x.compute()
    assert list(launches(found).values()) == [8]


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_each_task_and_each_launch_is_there_once(scheduler: str) -> None:
    x = program()
    done: list[Any] = []
    gpusched.reset_statistics()
    with Callback(posttask=lambda key, *_: done.append(key)), gpusched.profile() as found:
        assert float(x.compute(scheduler=scheduler)) == 8 * 1000 * 100 * 2.5
    assert launches(found) == gpusched.statistics().kernels
    assert sorted(s.task for s in found.timeline.spans if s.kind == "task") == sorted(
        map(str, done)
    )
    assert [s.name for s in found.timeline.spans if s.kind == "graph"] == ["optimise", "rewrite"]


def test_spans_are_within_the_profile_and_within_each_other() -> None:
    with gpusched.profile() as found:
        program().compute(scheduler="threads")
    for span in found.timeline.spans:
        assert 0 <= span.start <= span.end <= found.seconds
        assert span.inside <= span.seconds + 1e-6
    kernels = [span for span in found.timeline.spans if span.kind == "kernel"]
    assert kernels and all(span.depth for span in kernels)


def test_kernel_has_the_lines_it_computes_and_no_others() -> None:
    x = da.ones((8000, 100), chunks=(1000, 100))
    first = (x - 0.5) * 3  # first line
    second = np.sqrt(first.sum(axis=0) + 1).rechunk(100) * 2  # second line
    with gpusched.profile() as found, dask.config.set({"gpusched.fusion.minimum-elements": 1}):
        second.compute(scheduler="threads")
    rows = {row.name: [place.text for place in row.places] for row in found.kernels}
    (chunks,) = [lines for name, lines in rows.items() if name.startswith("subtract")]
    assert any("first line" in line for line in chunks)
    (ends,) = [lines for name, lines in rows.items() if "sqrt" in name]
    assert all("second line" in line for line in ends)
    assert all(place.file == __file__ for row in found.kernels for place in row.places)


def test_bytes_are_those_that_statistics_count() -> None:
    gpusched.reset_statistics()
    with gpusched.profile() as found:
        x = da.from_array(np.ones((4000, 100)), chunks=(1000, 100))
        ((x - 0.5) * 3).compute(scheduler="threads")
    counted = gpusched.statistics()
    assert sum(row.nbytes for row in found.kernels) == counted.bytes_read + counted.bytes_written
    assert all(row.limit and row.rate > 0 for row in found.kernels)


def test_compilation_says_where_the_code_came_from(tmp_path: Path) -> None:
    details = []
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        for chunk in (10_000, 12_000):
            x = da.ones(2 * chunk, chunks=chunk)
            kernels.clear()
            with gpusched.profile() as found:
                ((x - 0.125) * 7 - x * x).compute(scheduler="sync")
            details += [s.detail for s in found.timeline.spans if s.kind == "compile"]
    assert details == ["compiled now", "loaded from disk"]


def test_wait_for_another_threads_compilation_is_there() -> None:
    x = da.ones(20_000, chunks=10_000)
    barrier = threading.Barrier(2)

    def meet(block: np.ndarray) -> np.ndarray:
        barrier.wait(60)
        return block

    kernels.clear()
    with dask.config.set({"gpusched.fusion.cache-directory": None}), gpusched.profile() as found:
        y = x.map_blocks(meet, meta=np.empty(0))
        ((y - 0.375) * 7 - y * y).compute(scheduler="threads", num_workers=2)
    details = sorted(s.detail for s in found.timeline.spans if s.kind == "compile")
    assert details == ["compiled now", "waited for another thread, which had it first"]


def test_fusion_off_shows_tasks() -> None:
    with gpusched.disable():
        x = program(4)
        with gpusched.profile() as found:
            x.compute(scheduler="threads")
    assert kinds(found)["task"] >= 4
    assert not found.kernels
    assert "of 0 kernels" in found.text()


def test_nothing_computed() -> None:
    with gpusched.profile() as found:
        pass
    assert found.timeline.spans == []
    assert found.kernels == [] and found.spent == {}
    assert found.threads == 0
    assert found.html() and found.to_dict()["spans"] == [] and str(found)


def test_error_ends_the_profile_and_is_raised() -> None:
    def fail(block: Any) -> Any:
        raise ZeroDivisionError("told")

    session = gpusched.profile()
    with pytest.raises(ZeroDivisionError, match="told"), session as found:
        da.ones(10, chunks=5).map_blocks(fail, dtype=float).compute(scheduler="threads")
    assert kinds(found)["task"] >= 1


def test_not_to_be_read_before_its_end() -> None:
    with gpusched.profile() as found:
        for read in (lambda: found.kernels, lambda: found.seconds, lambda: found.text(),
                     lambda: found.to_dict(), lambda: found.notes):  # fmt: skip
            with pytest.raises(RuntimeError, match="still runs"):
                read()
        assert repr(found) == "<Profile that still runs>"
        assert found._repr_html_() is None


def test_begins_once() -> None:
    session = gpusched.profile()
    with session:
        pass
    with pytest.raises(RuntimeError, match="begins once"):
        session.__enter__()


def test_computations_of_two_threads_are_both_there() -> None:
    """dask's own callbacks know only the one that began first."""
    barrier = threading.Barrier(2)

    def compute(k: int) -> None:
        x = da.ones(4, chunks=2).map_blocks(meet, k, meta=np.empty(0))
        x.compute(scheduler="threads", num_workers=2)

    def meet(block: Any, k: int) -> Any:
        barrier.wait(60)
        return block

    with gpusched.disable(), gpusched.profile() as found, ThreadPoolExecutor(2) as pool:
        list(pool.map(compute, range(2)))
    assert sum(span.name == "meet" for span in found.timeline.spans) == 4


def test_two_profiles_at_once() -> None:
    with gpusched.profile() as outer:
        program(2).compute(scheduler="threads")
        with gpusched.profile() as inner:
            program(4).compute(scheduler="threads")
    assert sum(launches(inner).values()) == 4
    assert sum(launches(outer).values()) == 6


def test_task_that_computes_shows_both() -> None:
    def nested(block: np.ndarray) -> np.ndarray:
        inner: np.ndarray = da.ones(4, chunks=2).map_blocks(np.negative).compute(scheduler="sync")
        return block * inner.sum()

    with gpusched.disable(), gpusched.profile() as found:
        da.ones(4, chunks=4).map_blocks(nested, dtype=float).compute(scheduler="threads")
    inner = [s for s in found.timeline.spans if s.kind == "task" and s.depth]
    assert inner and "nested" in {s.name for s in found.timeline.spans}


def test_waits_name_policy_and_holder() -> None:
    lock = threadsafe.lock("profiled")
    with gpusched.profile() as found:
        wait_for(lock)
    (contention,) = found.contention
    assert (contention.policy, contention.waits) == ("lock(profiled)", 1)
    assert contention.holders == ("thread 'MainThread'",)
    assert "lock(profiled): 1 wait" in found.text()
    assert "lock(profiled)" in found.html()


def test_waits_for_a_dedicated_thread_are_the_callers() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go_on.wait(60)

    policy = threadsafe.one_thread("profiled")
    held, free = threadsafe.wrap(hold, policy), threadsafe.wrap(lambda: None, policy)

    def late() -> None:
        free()

    with gpusched.profile() as found:
        first = threading.Thread(target=held, name="first")
        first.start()
        assert entered.wait(60)
        second = threading.Thread(target=late, name="second")
        second.start()
        while not waiting_calls(policy):
            assert second.is_alive()
        go_on.set()
        first.join(60)
        second.join(60)
    threadsafe.close()
    (span,) = [span for span in found.timeline.spans if span.kind == "wait"]
    assert found.timeline.lanes[span.lane].name == "second"
    assert span.name == "one_thread(profiled)"


def waiting_calls(policy: Any) -> int:
    """Return how many calls wait for a policy's thread."""
    from gpusched.threadsafe import registry

    return sum(
        guard._line.calls.qsize()
        for guard in registry.named()
        if str(guard) == str(policy) and getattr(guard, "_line", None)
    )


def test_full_recording_says_so() -> None:
    with dask.config.set({"gpusched.profiling.maximum-events": 5}), gpusched.profile() as found:
        program(16).compute(scheduler="threads")
    assert len(found.timeline.spans) == 5
    assert "raise gpusched.profiling.maximum-events" in found.notes[0]
    assert found.notes[0] in " ".join(found.text().split())


def test_settings_that_cannot_be_are_an_error_before_anything_runs() -> None:
    wrong = {"gpusched.profiling.maximum-events": "many"}
    told = pytest.raises(SettingError, match="maximum-events cannot be 'many'")
    with dask.config.set(wrong), told:
        gpusched.profile()


def test_multiprocessing_scheduler_still_works() -> None:
    with gpusched.disable(), gpusched.profile() as found:
        x = da.ones(4, chunks=2).sum()
        assert x.compute(scheduler="processes", num_workers=1) == 4
    assert kinds(found)["scheduling"] > 0
    told = "the tasks of 1 computation, which ran in processes of dask's own"
    assert [note.partition(":")[0] for note in found.notes] == [told]
