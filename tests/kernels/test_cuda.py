"""Users' kernels for NVIDIA GPUs: compiled to machine code, and run without a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpusched
from tests.record import recording
from tests.record.recording import assert_same, record

pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")

from tests.backends.cuda.runtimes import IrRuntime, SimulatorRuntime
from tests.tiers import every


@gpusched.kernel
def escape(real, imaginary, limit):
    z = 0j
    c = complex(real, imaginary)
    n = 0
    while n < limit and abs(z) <= 2.0:
        z = z * z + c
        n += 1
    return n


@gpusched.kernel
def logistic(x):
    return 1 / (1 + math.exp(-x))


@gpusched.kernel
def polar(x, y):
    return np.sqrt(x * x + y * y), np.arctan2(y, x), x > y


@gpusched.kernel.reduction(identity=-math.inf)
def largest(a, b):
    return a if a >= b or a != a else b


@gpusched.kernel.reduction(identity=0)
def total(a, b):
    return a + b


@gpusched.kernel.stencil(boundary="nearest")
def diffuse(a, rate):
    return a[0, 0] + rate * (a[-1, 0] + a[1, 0] + a[0, -1] + a[0, 1] - 4 * a[0, 0])


def numbers(dtype: str, shape: Any = 3000) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "escape": (lambda x, y: escape.frozen()(x, y, 30) * 2, (numbers("f8"), numbers("f8") * 0.5)),
    "logistic-f4": (lambda x: logistic.frozen()(x * 2) + 1, (numbers("f4"),)),
    "logistic-f8": (lambda x: logistic.frozen()(x), (numbers("f8"),)),
    "polar": (lambda x, y: polar.frozen()(x, y), (numbers("f4", (50, 40)), numbers("f4", 40))),
    "largest": (lambda x: largest.frozen()(x * 2), (numbers("f4", 5001),)),
    "largest-rows": (lambda x: largest.frozen()(x, axis=1), (numbers("f4", (50, 70)),)),
    "largest-columns": (lambda x: largest.frozen()(x, axis=0), (numbers("f8", (70, 50)),)),
    "diffuse-f4": (lambda x: diffuse.frozen()(x, 0.1) + 1, (numbers("f4", (50, 70)),)),
    "total": (lambda x: total.frozen()(x), (np.arange(5001, dtype="i4"),)),
}


@pytest.mark.parametrize("case", every(3, CASES))
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_simulated(case: str, backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimulatorRuntime(backwards)
    monkeypatch.setitem(recording.BACKENDS, "simulator", runtime.get)
    function, arrays = CASES[case]
    found = record(function, *arrays, backend="simulator").result
    assert_same(found, record(function, *arrays, backend="cpu").result, ulp=4)
    assert runtime.launches


@pytest.mark.parametrize("case", CASES)
def test_the_compilers_own_code_run_on_the_cpu(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    runtime = IrRuntime()
    monkeypatch.setitem(recording.BACKENDS, "ir", runtime.get)
    function, arrays = CASES[case]
    found = record(function, *arrays, backend="ir").result
    assert_same(found, record(function, *arrays, backend="cpu").result, ulp=4)
    assert runtime.launches


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_machine_code(case: str, cc: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    from gpusched.backends.cuda.runtime import compile_for

    function, arrays = CASES[case]
    for launch in record(function, *arrays).launches:
        compiled = compile_for(launch.kernel.kernel, cc)
        assert compiled.cubin[:4] == b"\x7fELF"
        sass = compiled.sass()
        assert "STL" not in sass, "registers are spilled"
        if "-f4" in case:
            assert "F64" not in sass, "float32 goes through float64"
