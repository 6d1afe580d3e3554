"""The LLVM IR that becomes the cubin, run on this processor, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda compiles; it is in the extra cuda13")

from gpusched.emit.operations import OPERATIONS
from tests.backends.cuda.cases import ELEMENTWISE, REDUCTIONS, Case
from tests.backends.cuda.runtimes import IrRuntime
from tests.emit.test_operations import (
    CASES,
    SIGNED_ZEROS_FREE,
    fuses,
    operands,
    samples,
    ufunc_of,
)
from tests.record import recording

QUICK_DTYPES = {"float32", "int32"}
QUICK_REDUCTIONS = ("sum-5001", "sum-50x70", "sum-70x50", "sum-9x10x20-(0", "max-5001", "any-9x10",
                    "sum-int8", "max-uint8", "two-results", "nan-propagates")  # fmt: skip
LIBDEVICE_ULP = 2
"""Room for the C library, which stands for libdevice here, on top of the table's bound."""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> IrRuntime:
    found = IrRuntime()
    monkeypatch.setitem(recording.BACKENDS, "ir", found.get)
    return found


@pytest.mark.parametrize("case", ELEMENTWISE, ids=lambda case: case.name)
def test_elementwise_agrees_with_numpy(case: Case, runtime: IrRuntime) -> None:
    recording.check(case.function, *case.arrays(), backend="ir", ulp=case.ulp)
    assert runtime.launches


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            c, id=c.name, marks=[] if c.name.startswith(QUICK_REDUCTIONS) else pytest.mark.slow
        )
        for c in REDUCTIONS
    ],
)
def test_reduction_agrees_with_numpy(case: Case, runtime: IrRuntime) -> None:
    recording.check(case.function, *case.arrays(), backend="ir", ulp=case.ulp)
    assert runtime.launches


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(n, d, marks=[] if d in QUICK_DTYPES else pytest.mark.slow)
        for n, d in CASES
        if fuses(n, d)
    ],
)
def test_operation_agrees_with_numpy(name: str, dtype: str, runtime: IrRuntime) -> None:
    ufunc, arrays = ufunc_of(name), operands(name, dtype)
    if name == "frexp":
        arrays = [a[np.isfinite(a)] for a in arrays]  # C leaves the exponent of inf undefined
    if name in SIGNED_ZEROS_FREE and np.dtype(dtype).kind == "f":
        keep = (arrays[0] != 0) | (arrays[1] != 0)
        arrays = [a[keep] for a in arrays]
    ulp = OPERATIONS[name].ulp
    recording.check(lambda *a: ufunc(*a), *arrays, backend="ir", ulp=ulp and ulp + LIBDEVICE_ULP)
    assert runtime.launches


@pytest.mark.parametrize("target", ["bool", "int8", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize("source", ["bool", "int8", "uint32", "int64", "float32", "float64"])
def test_astype_agrees_with_numpy(source: str, target: str, runtime: IrRuntime) -> None:
    values = samples(source)
    if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
        values = np.array([0.0, 0.9, 1.5, 100.75, 127.0, 3.999], source)
    if source == target:
        return
    recording.check(lambda x: x.astype(target), values, backend="ir")
    assert runtime.launches


def test_float_expressions_are_numpys_to_the_last_bit(runtime: IrRuntime) -> None:
    random = np.random.default_rng(1)
    a, b, c = (random.standard_normal(10007, dtype="float32") for _ in range(3))
    recording.check(
        lambda a, b, c: (a * b + c) / (a - b * c) - np.sqrt(a * a + b), a, b, c, backend="ir"
    )
