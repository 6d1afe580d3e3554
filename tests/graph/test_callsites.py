"""Where arrays are made is noted while fusion is on, with dask's own hook, and no longer."""

from __future__ import annotations

import sys
import threading
from typing import Any

import dask
import dask.array as da
import pytest

from gpusched import disable, enable
from gpusched.graph import callsites
from gpusched.graph.callsites import is_last, note, site_of
from gpusched.graph.hook import intercepting
from gpusched.newest import Newest


def test_the_site_is_the_users_line() -> None:
    with enable():
        x = da.ones((10, 10), chunks=5).sum(axis=0)
    site = site_of(x.name)
    assert site is not None
    assert site[0] is sys._getframe().f_code


def test_only_the_last_array_of_an_expression_is_a_variables() -> None:
    with enable():
        x = da.ones((10, 10), chunks=5)
        y = x.mean()
    parts = [name for name in y.dask.layers if site_of(name) == site_of(y.name)]
    assert len(parts) > 1
    assert [name for name in parts if is_last(name)] == [y.name]


def test_configuration_is_left_as_it_was() -> None:
    before = dict(dask.config.config)
    with enable():
        assert dask.config.get("array_plugins") == [note]
        with enable():
            assert dask.config.get("array_plugins") == [note]
        with disable():
            assert dask.config.get("array_plugins", None) is None
        assert dask.config.get("array_plugins") == [note]
    assert dask.config.config == before


def test_plugins_of_others_stay() -> None:
    seen: list[str] = []

    def other(array: Any) -> None:
        seen.append(array.name)

    with dask.config.set({"array_plugins": [other]}):
        with enable():
            x = da.ones(10, chunks=5)
            assert site_of(x.name) is not None
        assert dask.config.get("array_plugins") == [other]
    assert x.name in seen


def test_a_setting_switches_it_off() -> None:
    with dask.config.set({"gpusched.inspection.call-sites": False}), enable():
        x = da.ones(10, chunks=5) + 4711
    assert site_of(x.name) is None


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callsites, "_sites", Newest(5))
    monkeypatch.setattr(callsites, "_last", Newest(5))
    with enable():
        made = [da.ones(10 + k, chunks=5) for k in range(20)]
    noted = [x for x in made if site_of(x.name) is not None]
    assert noted == made[-len(noted) :]
    assert len(callsites._sites) == 5
    assert len(callsites._last) <= 5


def test_threads_may_make_arrays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callsites, "_sites", Newest(10))
    monkeypatch.setattr(callsites, "_last", Newest(10))
    errors: list[BaseException] = []
    x = da.ones(10, chunks=5)

    def make(first: int) -> None:
        try:
            for k in range(100):
                x + (first + k)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with enable():
        threads = [threading.Thread(target=make, args=(1000 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert len(callsites._sites) == 10


def test_graphs_can_be_taken_instead_of_optimised() -> None:
    taken: list[Any] = []

    def take(graph: Any, keys: Any, **kwargs: Any) -> Any:
        taken.append(keys)
        return dask.array.optimization.optimize(graph, keys)

    x = da.ones(10, chunks=5) + 1
    with enable(), intercepting(take):
        assert x.compute(scheduler="sync").sum() == 20
    assert len(taken) == 1
    with enable():
        x.compute(scheduler="sync")
    assert len(taken) == 1
