"""Every operation, every dtype it takes, at the values where arithmetic goes wrong."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.special

from gpusched.fusion.operations import OPERATIONS, operation_of
from tests.fusion.recording import check, record

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-3, 3.7, -7.3, 100.25, 1e30, -1e30, 1e-40,
          np.inf, -np.inf, np.nan]  # fmt: skip
CONVERSIONS = {"astype", "astype_small", "astype_uint64", "astype_bool", "where", "clip"}
SIGNED_ZEROS_FREE = {"minimum", "maximum", "fmin", "fmax"}
"""NumPy's own result for (0.0, -0.0) depends on the machine."""

NAMES = sorted(OPERATIONS.keys() - CONVERSIONS)
DTYPES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64"]


def ufunc_of(name: str) -> Any:
    return getattr(np, name, None) or getattr(scipy.special, name)


def samples(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind == "f":
        return np.array(FLOATS).astype(dtype)
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, 0, 1, 2, 3, 5, 7, 64, limits.max - 1, limits.max]
    return np.array([v for v in [*values, -1, -2, -3] if limits.min <= v], dtype)


def operands(name: str, dtype: str) -> list[np.ndarray]:
    first = samples(dtype)
    if ufunc_of(name).nin == 1:
        return [first]
    second = samples("int32" if name == "ldexp" else dtype)
    if name == "power" and np.dtype(dtype).kind in "iu":
        second = second[(second >= 0) & (second < 70)]
    pairs = list(product(first, second))
    return [np.array([p[k] for p in pairs], d) for k, d in enumerate((first.dtype, second.dtype))]


def accepts(name: str, dtype: str) -> bool:
    try:
        with np.errstate(all="ignore"):
            ufunc_of(name)(*(o[:1] for o in operands(name, dtype)))
    except TypeError:
        return False
    return True


CASES = [(n, d) for n in NAMES for d in DTYPES if accepts(n, d)]

COMPILED = {"float32", "float64", "int32"}
"""The dtypes of which the default tier compiles every operation; for all others it runs Python."""


def on_backends(*values: Any, dtypes: tuple[str, ...]) -> list[Any]:
    """Return a case for each backend, some of the compiled ones left to the exhaustive tests."""
    quick = COMPILED.issuperset(dtypes)
    marks = () if quick else pytest.mark.exhaustive
    return [pytest.param(*values, "python"), pytest.param(*values, "cpu", marks=marks)]


@pytest.mark.parametrize(
    ("name", "dtype", "backend"), [p for n, d in CASES for p in on_backends(n, d, dtypes=(d,))]
)
def test_operation_agrees_with_numpy(name: str, dtype: str, backend: str) -> None:
    ufunc = ufunc_of(name)
    arrays = operands(name, dtype)
    if name == "frexp":
        arrays = [a[np.isfinite(a)] for a in arrays]  # C leaves the exponent of inf undefined
    if name in SIGNED_ZEROS_FREE and np.dtype(dtype).kind == "f":
        keep = (arrays[0] != 0) | (arrays[1] != 0)
        arrays = [a[keep] for a in arrays]
    found = check(lambda *a: ufunc(*a), *arrays, backend=backend, ulp=OPERATIONS[name].ulp)
    supported = all(d not in "eFDGg" for d in [r.dtype.char for r in outputs(found.result)])
    if supported and fuses(name, dtype):
        assert len(found.launches) == 1
        assert not found.recorder.breaks


def outputs(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def fuses(name: str, dtype: str) -> bool:
    """Return whether NumPy's loop for `dtype` is one the table has."""
    types = ufunc_of(name).resolve_dtypes(
        (*(o.dtype for o in operands(name, dtype)), *(None,) * ufunc_of(name).nout)
    )
    if name == "power" and types[0].kind == "i":
        return False  # a negative exponent is an error that depends on the data
    return types[0].char != "e" and OPERATIONS[name].template(types[0].kind) is not None


def test_most_cases_fuse() -> None:
    assert sum(fuses(name, dtype) for name, dtype in CASES) > 0.8 * len(CASES)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 0.5, -1, -0.5, 2.5])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float64"])
def test_power_with_a_python_exponent(exponent: float, dtype: str) -> None:
    if np.dtype(dtype).kind in "iu" and exponent < 0 and isinstance(exponent, int):
        with pytest.raises((ValueError, OverflowError)) as expected:
            samples(dtype) ** exponent
        with pytest.raises(expected.type, match=str(expected.value)):
            record(lambda x: x**exponent, samples(dtype))
        return
    check(lambda x: x**exponent, samples(dtype), ulp=4)


@pytest.mark.parametrize(
    ("source", "target", "backend"),
    [p for s, t in product(DTYPES, DTYPES) for p in on_backends(s, t, dtypes=(s, t))],
)
def test_astype_agrees_with_numpy(source: str, target: str, backend: str) -> None:
    values = samples(source)
    if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
        values = np.array([0.0, 0.9, 1.5, 100.75, 127.0, 3.999], source)
        if np.dtype(target).kind == "i":
            values = np.concatenate([values, -values]).astype(source)
    check(lambda x: x.astype(target), values, backend=backend)


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_above_the_signed_integers_become_unsigned_ones(source: str, backend: str) -> None:
    values = np.array([0.5, 2.0**62, 2.0**63, 1e19, 1.8e19, -3.0], source)
    check(lambda x: x.astype("uint64"), values, backend=backend)


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float32", "float64"])
def test_where_and_clip(dtype: str) -> None:
    values = samples(dtype)
    for backend in ("python", "cpu"):
        check(lambda x: np.where(x > 3, x, 1), values, backend=backend)
        check(lambda x: np.clip(x, 2, 5), values, backend=backend)
        check(lambda x: np.clip(x, None, 5), values, backend=backend)
        check(lambda x: x.clip(2), values, backend=backend)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin", "add"])
def test_python_scalars_are_weak(name: str) -> None:
    ufunc = ufunc_of(name)
    values = np.linspace(0.1, 2, 50, dtype="float32")
    found = check(lambda x: ufunc(x * 2.5 + 1, *[1] * (ufunc.nin - 1)), values, ulp=4)
    assert found.result.dtype == np.float32


def test_table_knows_numpy_and_scipy_functions_only_by_identity() -> None:
    assert operation_of(np.add) is not None
    assert operation_of(scipy.special.erf) is not None
    assert operation_of(np.frompyfunc(abs, 1, 1)) is None
    assert operation_of(scipy.special.jv) is None
