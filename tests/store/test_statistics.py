"""Counters of compilations, and of those that nothing has launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask
import pytest

from gpusched.backends import cache
from gpusched.backends.cache import KernelCache
from gpusched.cluster.statistics import difference
from gpusched.emit.kernel import Options
from gpusched.store import background, tuned
from gpusched.store.statistics import Statistics, reset_statistics, statistics
from tests.store.test_cache import sample_kernel


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[KernelCache]:
    """Give an empty cache in memory, with an empty one on disk."""
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        reset_statistics()
        yield KernelCache()


def test_what_is_compiled_and_never_launched_is_counted_with_its_seconds(
    kernels: KernelCache,
) -> None:
    used, unused = kernels.handle(sample_kernel()), kernels.handle(sample_kernel("float64(5)"))
    background.request([used, unused], gain=1.0)
    assert background.join(60)
    counted = statistics()
    counted.kernels[used.name] += 1
    assert counted.compilations == 2
    assert counted.unused_compilations.keys() == {unused.name}
    assert 0 < counted.unused_compilations[unused.name] < 60


def test_a_tuned_kernel_counts_under_the_name_that_it_is_launched_by(
    kernels: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Options(vector=128)
    monkeypatch.setattr(tuned, "chosen", lambda kernel, place: replace(kernel, options=other))
    handle = kernels.handle(sample_kernel())
    handle.wait()
    assert cache.prepare(sample_kernel()).wanted.name != handle.name
    assert statistics().compilation_microseconds.keys() == {handle.name}


def test_one_worker_may_compile_what_another_launches() -> None:
    compiled = Statistics(compilation_microseconds=Counter(first=500_000, second=1_500_000))
    launched = Statistics(kernels=Counter(first=3))
    assert compiled.merge(launched).unused_compilations == {"second": 1.5}


def test_only_compilations_of_the_run_itself_count() -> None:
    before = {("here", 1): Statistics(compilation_microseconds=Counter(first=500_000))}
    after = {("here", 1): Statistics(compilation_microseconds=Counter(first=500_000, second=7))}
    assert difference(after, before).compilation_microseconds == Counter(second=7)
