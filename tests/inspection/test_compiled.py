"""What an explanation says of kernels that are not compiled yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends import cache
from gpusched.backends.devices import HOST
from gpusched.emit.kernel import Kernel
from gpusched.inspection import kernel_listings
from gpusched.store.handles import KernelStore
from gpusched.store.service.client import CompilerDiedError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    cache.kernels.clear()
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path
    cache.kernels.clear()


def test_a_kernel_is_compiled_once_it_has_run(folder: Path) -> None:
    x = da.from_array(np.ones((200, 300)), chunks=(100, 300))
    with gpusched.enable():
        y = np.exp(x) * 3 + x
        found = gpusched.explain(y)
        assert not found.kernels[0].compiled and not found.to_dict()["kernels"][0]["compiled"]
        text = " ".join(found.text().split())
        assert "not compiled on this machine yet: takes about " in text
        assert "tasks wait for it" in text and "once all are compiled" not in text
        assert not list(folder.rglob("*.py")), "explaining leaves nothing"
        y.compute(scheduler="sync")
        assert gpusched.explain(y).kernels[0].compiled
        cache.kernels.clear()
        found = gpusched.explain(y)
    assert found.kernels[0].compiled, "in a file"
    assert "not compiled" not in found.text()


def test_what_tasks_do_until_then_follows_from_the_configuration() -> None:
    x = da.from_array(np.ones((200, 300)), chunks=(100, 300))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "background"}):
        found = gpusched.explain(np.exp(x) * 3 + x)
        text = " ".join(found.text().split())
        assert "once that pays; unfused until then" in text and "once all are compiled" in text
        with dask.config.set({"gpusched.fusion.tier": "fused"}):
            assert "tasks wait for it" in " ".join(found.text().split())
        with dask.config.set({"gpusched.fusion.compile": "off"}):
            assert "gpusched.fusion.compile is off: unfused" in " ".join(found.text().split())


def test_kernels_of_ones_own_are_waited_for() -> None:
    @gpusched.kernel
    def poly(x: float) -> float:
        return x * x + 3.0

    x = da.from_array(np.ones((200, 300)), chunks=(100, 300))
    with gpusched.enable():
        text = gpusched.explain(poly(x) + 1).text()
    assert "tasks wait for it" in " ".join(text.split())


def test_a_kernel_whose_compilation_failed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def obtained(kernel: Kernel) -> NoReturn:
        raise CompilerDiedError("killed")

    monkeypatch.setattr(cache.kernels, "obtained", obtained)
    x = da.from_array(np.ones((200, 300)), chunks=(100, 300))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.strict": False}):
        y = np.exp(x) * 3 + x
        assert np.array_equal(y.compute(scheduler="sync"), np.full((200, 300), np.exp(1.0) * 3 + 1))
        text = " ".join(gpusched.explain(y).text().split())
    assert "could not be compiled" in text and "killed; unfused" in text
    assert "not compiled on this machine yet" not in text


def test_where_settings_forbid_it_that_is_the_reason() -> None:
    x = da.ones((1000, 1000), chunks=500) * 2 + 1
    with gpusched.enable(), dask.config.set({"gpusched.fusion.tier": "unfused"}):
        assert "since gpusched.fusion.tier is unfused" in gpusched.explain(x).text(width=1000)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "off"}):
        text = gpusched.explain((x - 0.123) / 0.777).text(width=1000)
    assert "if all were compiled (gpusched.fusion.compile is off)" in text


class Elsewhere(KernelStore):
    """The kernels of another backend, all of which are in files."""

    def loaded(self, kernel: Kernel) -> None:
        """Return None: nothing is to be loaded."""

    def obtained(self, kernel: Kernel) -> NoReturn:
        """Fail: nothing is to be compiled."""
        raise AssertionError

    def is_kept(self, kernel: Kernel) -> bool:
        """Return that it is in a file."""
        return True


def test_a_backend_says_itself_which_kernels_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.from_array(np.ones((200, 300)), chunks=(100, 300))
    with gpusched.enable():
        (kernel,) = gpusched.explain(np.exp(x) * 3 + x).kernels
        assert not kernel.compiled
        other = replace(HOST, compile=Elsewhere().handle)
        monkeypatch.setattr(kernel_listings, "HOST", other)
        assert kernel.compiled
