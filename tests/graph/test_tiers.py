"""Tasks run as NumPy runs them until their kernels are compiled, and as kernels from then on."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends import cache
from gpusched.config import ChoiceError
from gpusched.emit.kernel import Kernel
from gpusched.graph.running.segment import Segment
from gpusched.plan import tiers
from gpusched.plan.tiles import TiledLaunches
from gpusched.store import background, worthwhile
from gpusched.store.handles import CompiledKernel, Handle
from gpusched.store.statistics import Statistics, reset_statistics, statistics
from tests.plan.tiled import make_small
from tests.store.test_cache import sample_kernel
from tests.waiting import PATIENCE

VALUES = np.random.default_rng(3).normal(size=(64, 600))
CHUNKS = 8


class Compiler:
    """Stands for what compiles in the background: does so when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Handle] = []

    def request(self, handles: Iterable[Handle], gain: float, urgent: bool = True) -> None:
        assert (gain > 0) == urgent
        for handle in handles:
            handle.requested, handle.urgent = True, urgent
            self.asked.append(handle)

    def work(self) -> None:
        for handle in self.asked:
            handle.wait()

    def fail(self) -> None:
        for handle in self.asked:
            handle.error = RuntimeError("no")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Let all kernels be unknown, and compiled by a compiler that waits for a word."""
    found = Compiler()
    for asked in (background, background.process):
        monkeypatch.setattr(asked, "request", found.request)
    settings = {"fusion.compile": "background", "fusion.cache-directory": str(tmp_path),
                "fusion.minimum-elements": 0}  # fmt: skip
    cache.kernels.clear()
    with dask.config.set({f"gpusched.{key}": value for key, value in settings.items()}):
        reset_statistics()
        yield found
    cache.kernels.clear()


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every compilation pay."""
    monkeypatch.setattr(worthwhile, "gain", lambda *given: 1.0)


def chunked() -> da.Array:
    return da.from_array(VALUES, chunks=(CHUNKS, 600))


def computed(of: Callable[[Any], Any], x: da.Array | None = None) -> tuple[Any, Statistics]:
    """Return what a computation gives, and what it counted."""
    reset_statistics()
    with gpusched.enable():
        found = of(chunked() if x is None else x).compute(scheduler="sync")
    return found, statistics()


def expression(x: Any) -> Any:
    return np.exp(-x) * 2 + x


def test_chunks_switch_to_kernels_when_these_are_compiled(compiler: Compiler, pays: None) -> None:
    first, counts = computed(expression)
    np.testing.assert_array_equal(first, expression(VALUES))
    assert (counts.unfused_tasks, counts.tasks, counts.launches) == (8, 8, 0)
    assert counts.compilations == 0 and counts.unfused_seconds > 0
    (spent,) = counts.unfused_microseconds.values()
    assert abs(spent * 1e-6 - counts.unfused_seconds) < 1e-4
    assert list(counts.unfused_launches.values()) == [8]
    assert len(compiler.asked) == 1
    compiler.work()
    second, counts = computed(expression)
    np.testing.assert_allclose(second, first, rtol=1e-15)
    assert (counts.unfused_tasks, counts.launches, counts.fused_tasks) == (0, 8, 8)


def test_they_switch_in_the_middle_of_a_computation(
    compiler: Compiler, pays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Segment.run
    done: list[Segment] = []

    def noted(self: Segment, registers: Any) -> None:
        run(self, registers)
        done.append(self)
        if len(done) == 5:
            compiler.work()

    monkeypatch.setattr(Segment, "run", noted)
    found, counts = computed(expression)
    np.testing.assert_allclose(found, expression(VALUES), rtol=1e-15)
    assert (counts.unfused_tasks, counts.fused_tasks) == (5, 3)
    assert counts.unfused_launches.keys() == counts.kernels.keys()


def test_a_kernel_that_is_on_disk_is_used_at_once(compiler: Compiler) -> None:
    with dask.config.set({"gpusched.fusion.compile": "wait"}):
        computed(expression)
    for mode in ("background", "off"):
        cache.kernels.clear()
        with dask.config.set({"gpusched.fusion.compile": mode}):
            _, counts = computed(expression)
        assert (counts.unfused_tasks, counts.launches, counts.kernels_loaded) == (0, 8, 1)


@pytest.mark.parametrize("mode", ["off", False])
def test_off_compiles_nothing(compiler: Compiler, pays: None, mode: Any) -> None:
    with dask.config.set({"gpusched.fusion.compile": mode}):
        found, counts = computed(expression)
    np.testing.assert_array_equal(found, expression(VALUES))
    assert counts.compilations == 0 and not compiler.asked


def test_another_word_is_an_error(compiler: Compiler) -> None:
    with (
        gpusched.enable(),
        dask.config.set({"gpusched.fusion.compile": "later"}),
        pytest.raises(ChoiceError, match="'later': write 'background', 'wait' or 'off'"),
    ):
        expression(chunked()).compute(scheduler="sync")


def test_small_work_compiles_nothing(compiler: Compiler) -> None:
    for _ in range(3):
        computed(expression)
    assert not compiler.asked


def test_much_work_is_known_from_the_graph_after_two_chunks(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    def gain(codes: Any, seconds: float, count: int, *rest: Any) -> float:
        left.append(count)
        return seconds or -1.0

    monkeypatch.setattr(worthwhile, "gain", gain)
    computed(expression)
    assert set(left) == {7, 6}


def test_kernels_know_that_a_second_graph_does_without_them(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Handle] = []
    monkeypatch.setattr(worthwhile, "gain", lambda codes, *given: found.extend(codes) or -1.0)
    for repeated in (False, True):
        computed(expression)
        assert {handle.repeated for handle in found} == {repeated} and len(set(found)) == 1


def test_a_failed_compilation_is_a_reason_not_to_fuse(compiler: Compiler, pays: None) -> None:
    computed(expression)
    compiler.fail()
    with dask.config.set({"gpusched.fusion.strict": False}):
        found, counts = computed(expression)
        np.testing.assert_array_equal(found, expression(VALUES))
    assert counts.breaks == {("add", "compilation failed"): 8}
    ((_, reason),) = counts.breaks
    assert str(reason) == "compilation failed: RuntimeError: no"
    assert len(compiler.asked) == 1


def test_a_failed_compilation_is_an_error_where_errors_are(compiler: Compiler, pays: None) -> None:
    computed(expression)
    compiler.fail()
    with pytest.raises(RuntimeError, match="no"):
        computed(expression)


def test_warnings_are_numpy_s(compiler: Compiler) -> None:
    def divided(x: Any) -> Any:
        return np.log(x) / 0.0

    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        wanted = divided(VALUES[:CHUNKS])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        given, _ = computed(divided, chunked()[:CHUNKS])
    np.testing.assert_array_equal(given, wanted)
    assert [str(w.message) for w in found] == [str(w.message) for w in expected]


def test_a_function_that_is_no_kernel_gets_values(compiler: Compiler, pays: None) -> None:
    given: list[int] = []

    @gpusched.fusible
    def sort(x: np.ndarray) -> np.ndarray:
        return np.sort(x * 2 + 1, axis=1) * 3 - 1

    def program(x: da.Array) -> da.Array:
        return x.map_blocks(sort, meta=VALUES[:0])

    for _ in range(4):
        found, counts = computed(program)
        np.testing.assert_array_equal(found, sort(VALUES))
        given.append(counts.unfused_tasks)
        compiler.work()
    assert given == [8, 8, 0, 0], "first what is before the sort, then what comes after it"


def test_users_kernels_are_waited_for(compiler: Compiler) -> None:
    @gpusched.kernel
    def poly(x: float) -> float:
        return x * x + 3.0

    found, counts = computed(lambda x: poly(x) + 1)
    np.testing.assert_array_equal(found, VALUES * VALUES + 3.0 + 1)
    assert counts.unfused_tasks == 0 and counts.launches == 8


def softmax(x: Any) -> Any:
    powers = np.exp(x - np.max(x, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


def test_kernels_that_share_tiles_switch_together(
    compiler: Compiler, pays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    run: list[TiledLaunches] = []
    call = TiledLaunches.__call__

    def noted(self: TiledLaunches, registers: Any) -> None:
        run.append(self)
        call(self, registers)

    monkeypatch.setattr(TiledLaunches, "__call__", noted)

    def program(x: da.Array) -> da.Array:
        return x.map_blocks(softmax, meta=VALUES[:0])

    x = da.from_array(VALUES.reshape(-1, 60), chunks=(320, 60))
    first, counts = computed(program, x)
    assert counts.unfused_tasks == 2 and not run and len(compiler.asked) == 3
    compiler.asked.pop().wait()
    _, counts = computed(program, x)
    assert counts.unfused_tasks == 2 and not run, "not before all are ready"
    compiler.work()
    second, counts = computed(program, x)
    assert counts.unfused_tasks == 0 and len(run) == 2
    np.testing.assert_allclose(second, first, rtol=1e-14)


def test_time_that_other_programs_take_is_no_reason_to_compile(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = itertools.count()
    monkeypatch.setattr(tiers, "perf_counter", lambda: 3600.0 * next(hours))
    _, counts = computed(expression)
    assert counts.unfused_seconds == 8 * 3600 and not compiler.asked


def test_work_that_does_not_pay_now_is_left_for_later(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()  # Each task takes one.
    monkeypatch.setattr(tiers, "thread_time", lambda: float(next(seconds)))
    monkeypatch.setattr(worthwhile, "gain", lambda *given: -1.0)
    computed(expression)
    assert [(h.requested, h.urgent) for h in compiler.asked] == [(True, False)]
    monkeypatch.setattr(worthwhile, "gain", lambda *given: 1.0)
    computed(expression)
    assert [h.urgent for h in compiler.asked] == [True, True], "asked for once more, with urgency"


@pytest.mark.parametrize("tier", ["fused", "unfused"])
def test_one_tier_gives_the_same_bits_in_every_run(
    compiler: Compiler, pays: None, tier: str
) -> None:
    found = []
    with dask.config.set({"gpusched.fusion.tier": tier}):
        for _ in range(3):
            result, counts = computed(lambda x: expression(x).sum(axis=0))
            found.append(result.tobytes())
            assert counts.fused_tasks == (counts.tasks if tier == "fused" else 0)
            compiler.work()
            cache.kernels.clear()
    assert len(set(found)) == 1
    assert not compiler.asked, "nothing is left to the background"


def test_a_mode_that_waits_gives_the_same_bits_in_every_run(compiler: Compiler) -> None:
    found = []
    with dask.config.set({"gpusched.fusion.compile": "wait"}):
        for _ in range(2):
            found.append(computed(lambda x: expression(x).sum(axis=0))[0].tobytes())
            cache.kernels.clear()
    assert found[0] == found[1]


def test_kernels_that_are_waited_for_are_compiled_at_once() -> None:
    all_there = threading.Barrier(3)

    def compiled(kernel: Kernel) -> CompiledKernel:
        all_there.wait(PATIENCE)
        return cache.reference(kernel)

    kernels = [sample_kernel(f"float64({k})") for k in range(3)]
    handles = [Handle(each, lambda: None, partial(compiled, each)) for each in kernels]
    with dask.config.set({"gpusched.fusion.compiler": "service"}):
        tiers.wait(handles)
    assert all(handle.ready for handle in handles)


@pytest.mark.parametrize("compiler", ["service", "process"])
def test_what_a_compiler_raises_is_kept_for_who_waits(compiler: str) -> None:
    def fail(error: Exception) -> CompiledKernel:
        raise error

    def handles(error: Exception) -> list[Handle]:
        kernels = [sample_kernel(f"float64({k})") for k in range(3)]
        return [Handle(each, lambda: None, partial(fail, error)) for each in kernels]

    with dask.config.set({"gpusched.fusion.compiler": compiler}):
        tiers.wait(found := handles(RuntimeError("no")))
        assert [str(each.error) for each in found] == ["no"] * 3
        with pytest.raises(MemoryError):
            tiers.wait(handles(MemoryError()))


def test_the_tier_goes_with_a_computation_to_the_workers(compiler: Compiler) -> None:
    for tier, fused in (("unfused", 0), ("fused", 8)):
        with dask.config.set({"gpusched.fusion.tier": tier}):
            graph = chunked()
            with gpusched.enable():
                (optimised,) = dask.optimize(expression(graph))
        sent = pickle.loads(pickle.dumps(optimised))
        reset_statistics()
        np.testing.assert_allclose(sent.compute(scheduler="sync"), expression(VALUES), rtol=1e-15)
        assert statistics().fused_tasks == fused


def test_another_tier_is_an_error() -> None:
    with (
        gpusched.enable(),
        dask.config.set({"gpusched.fusion.tier": "second"}),
        pytest.raises(ChoiceError, match="'second': write 'any', 'fused' or 'unfused'"),
    ):
        expression(chunked()).compute(scheduler="sync")


@pytest.mark.processes
def test_a_forked_process_asks_for_itself(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = cache.kernels.handle(sample_kernel())
    handle.requested = handle.urgent = True
    monkeypatch.setattr(background.process, "_pending", {handle: None})
    # As if another thread were compiling it, and loading it.
    with handle._compiling, handle._looking:
        pid = os.fork()
        if not pid:
            signal.alarm(int(PATIENCE))
            os._exit(2 * handle.requested + bool(background.pending()) + 4 * handle.look())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert handle.requested and background.pending() == [handle], "here all is as before"
