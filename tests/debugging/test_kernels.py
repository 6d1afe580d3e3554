"""Users' kernels, and users' versions of kernels, under the debugger."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.inspection.programs import numbers


@gpusched.kernel
def steps(real: Any, imaginary: Any) -> Any:
    z, c, n = 0j, complex(real, imaginary), 0
    while n < 20 and abs(z) < 2.0:
        z = z * z + c
        n += 1
    return n


@gpusched.kernel
def both(a: Any, b: Any) -> Any:
    return a + b, a * b


@gpusched.kernel.stencil(boundary="nearest")
def slope(a: Any, step: Any) -> Any:
    return (a[1] - a[-1]) / (2 * step)


@gpusched.kernel.reduction(identity=0.0, value=lambda x, y: (x - y) ** 2)
def squared_distance(a: Any, b: Any) -> Any:
    return a + b


def test_elementwise(frames: list[FrameType]) -> None:
    x, y = numbers((30,), 10), numbers((20, 1), 10, seed=1)
    z = steps(x, y) * 2
    assert gpusched.debug(z, (11, 17)) == z[11, 17].compute()
    (frame,) = frames
    given = [frame.f_locals[name] for name in frame.f_code.co_varnames[:2]]
    assert given == [x[17].compute(), y[11, 0].compute()]


def test_several_results_in_a_trace() -> None:
    x = numbers((30,), 10)
    total, product = both(x, 3.0)
    trace = gpusched.trace_element(total - product, 12)
    assert [step.operation for step in trace.steps][-3:] == ["both", "both", "subtract"]


@pytest.mark.parametrize("index", [0, 9, 10, 29])
def test_stencil(index: int) -> None:
    y = slope(numbers((30,), 10) * 2 - 1, 0.5) + 1
    assert gpusched.debug(y, index, stop="never") == y[index].compute()
    assert gpusched.trace_element(y, index).value == y[index].compute()


def test_reduction_over_its_chunks(frames: list[FrameType]) -> None:
    x = numbers((30,), 10)
    distance = squared_distance(x, x * 2)
    assert gpusched.debug(distance, ()) == distance.compute()
    assert frames[0].f_code.co_name == "chunk"


def test_stepping_into_the_users_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []

    def hook() -> None:
        sys.settrace(lambda frame, event, arg: entered.append(frame.f_code) or None)

    monkeypatch.setattr(sys, "breakpointhook", hook)
    before = sys.gettrace()
    try:
        gpusched.debug(steps(numbers((30,), 10), 0.5) + 1, 3)
    finally:
        sys.settrace(before)
    assert steps.python.__code__ in entered


def test_a_users_version_is_what_runs(frames: list[FrameType], tmp_path: Path) -> None:
    x = da.from_array(np.arange(40.0), chunks=20)
    y = (x * 2.5 + 1) / 3
    edited = gpusched.explain(y).kernels[0].edit(tmp_path / "mine.py")
    file = Path(edited.path)
    file.write_text(file.read_text().replace("    return ", "    extra = 7\n    return "))
    with edited:
        assert gpusched.debug(y, 5) == y[5].compute()
        assert "your version" in gpusched.trace_element(y, 5).text()
    assert "extra" in frames[0].f_code.co_varnames
    gpusched.debug(y, 5)
    assert "extra" not in frames[1].f_code.co_varnames


def test_a_users_function_in_the_place_of_a_kernel(frames: list[FrameType]) -> None:
    y = da.from_array(np.arange(40.0), chunks=20) * 2.5 + 1
    kernel = gpusched.explain(y).kernels[0]

    def mine(a: Any, s0: Any) -> Any:
        return a * s0 + 1

    with gpusched.override(kernel, mine):
        assert gpusched.debug(y, 5) == y[5].compute()
        assert "your version" in gpusched.trace_element(y, 5).text()
    assert len(frames) == 1
