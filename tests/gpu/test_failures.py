"""A kernel that cannot be made for chunks on a GPU is said once and counted each time."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends.cuda import runtime
from gpusched.graph.running import decisions
from gpusched.graph.running.traced import Trace

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu


def computed(step: float) -> Any:
    x = da.from_array(cupy.asarray(np.arange(20_000.0)), chunks=10_000)
    # Another program for each step, of which nothing has been compiled.
    return ((x + 1) * x - step).compute(scheduler="sync")


@pytest.mark.parametrize(
    ("owner", "name", "steps"), [(runtime.GpuRuntime, "compile", (3.25, 7.5)),
                                 (Trace, "__init__", (4.25, 8.5))]
)  # fmt: skip
def test_failures_warn_once_and_count(
    owner: type, name: str, steps: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AttributeError("told by the test")

    monkeypatch.setattr(owner, name, fail)
    decisions._has_warned.clear()
    gpusched.reset_statistics()
    settings = {"gpusched.fusion.strict": False, "gpusched.fusion.cache-directory": None}
    with dask.config.set(settings), gpusched.enable(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in steps:
            found = computed(step)
            assert np.array_equal(
                found.get(), (np.arange(20_000.0) + 1) * np.arange(20_000.0) - step
            )
    said = [each for each in told if each.category is decisions.GpuFallbackWarning]
    assert len(said) == 1
    assert "AttributeError: told by the test" in str(said[0].message)
    reasons = gpusched.statistics().breaks
    assert sum(n for (_, why), n in reasons.items() if "told by the test" in str(why)) >= 4
