"""Every operation, every dtype it takes, at the values where arithmetic goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import dask
import dask.array as da
import mpmath
import numpy as np
import pytest
import scipy.special

import gpusched
from gpusched.emit import operations
from gpusched.emit.floatingpoint import IS_X86
from gpusched.emit.operations import OPERATIONS, operation_of
from tests.record.recording import check, record
from tests.tiers import every, exhaustive

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-3, 3.7, -7.3, 100.25, 1e30, -1e30, 1e-40,
          np.inf, -np.inf, np.nan]  # fmt: skip
CONVERSIONS = {name for name in OPERATIONS if name.startswith("astype")}
CONVERSIONS |= {"where", "clip", "clip_by_arrays", "real", "imag", "complex", "search_left",
                "search_right", "interpolate", "element", "select", "select_next",
                "select_sorted", "last_number"}  # fmt: skip
SIGNED_ZEROS_FREE = {"fmin", "fmax"} if IS_X86 else {"minimum", "maximum", "fmin", "fmax"}
"""NumPy's own result for (0.0, -0.0) depends on the machine, and of some on the place in the loop:
the second of the two in whole vectors, the first in what is left over."""

NAMES = sorted(OPERATIONS.keys() - CONVERSIONS)
DTYPES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32",
          "float64"]  # fmt: skip


def ufunc_of(name: str) -> Any:
    return getattr(np, name, None) or getattr(scipy.special, name)


def samples(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind == "f":
        more = [300.0, 6e4, 1e-5, 6e-8] if dtype == "float16" else []
        with np.errstate(over="ignore"):
            return np.array(FLOATS + more).astype(dtype)
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
    compiled = [pytest.param(*values, name, marks=marks) for name in ("cpu", "arrays")]
    return [pytest.param(*values, "python"), *compiled]


@pytest.mark.parametrize(
    ("name", "dtype", "backend"), [p for n, d in CASES for p in on_backends(n, d, dtypes=(d,))]
)
def test_operation_agrees_with_numpy(name: str, dtype: str, backend: str) -> None:
    agrees(name, dtype, backend, errors="warn")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operation_agrees_with_numpy_where_errors_are_ignored(name: str, dtype: str) -> None:
    agrees(name, dtype, "cpu", errors="ignore")


def agrees(name: str, dtype: str, backend: str, errors: str) -> None:
    """Assert that an operation fuses and gives what NumPy gives."""
    ufunc = ufunc_of(name)
    arrays = operands(name, dtype)
    if backend == "arrays" and name == "nextafter":
        backend = "python"  # CuPy's is another for small numbers: it has no call.
    if name == "frexp":
        arrays = [a[np.isfinite(a)] for a in arrays]  # C leaves the exponent of inf undefined
    if name in SIGNED_ZEROS_FREE and np.dtype(dtype).kind == "f":
        keep = (arrays[0] != 0) | (arrays[1] != 0)
        arrays = [a[keep] for a in arrays]
    ulp = min(OPERATIONS[name].ulp, 1) if loop_of(name, dtype) == "e" else OPERATIONS[name].ulp
    found = check(lambda *a: ufunc(*a), *arrays, backend=backend, ulp=ulp, errors=errors)
    supported = all(d not in "FDGg" for d in [r.dtype.char for r in outputs(found.result)])
    if supported and fuses(name, dtype):
        assert len(found.launches) == 1
        assert not found.recorder.breaks


def outputs(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def loop_of(name: str, dtype: str) -> str:
    """Return what NumPy's loop for `dtype` takes first."""
    types = ufunc_of(name).resolve_dtypes(
        (*(o.dtype for o in operands(name, dtype)), *(None,) * ufunc_of(name).nout)
    )
    return str(types[0].char)


def fuses(name: str, dtype: str) -> bool:
    """Return whether NumPy's loop for `dtype` is one the table has."""
    taken = np.dtype(loop_of(name, dtype))
    if name == "power" and taken.kind == "i":
        return False  # a negative exponent is an error that depends on the data
    return OPERATIONS[name].template(taken) is not None


def test_most_cases_fuse() -> None:
    assert sum(fuses(name, dtype) for name, dtype in CASES) > 0.8 * len(CASES)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 0.5, -1, -0.5, 2.5])
@pytest.mark.parametrize("dtype", ["int32", *exhaustive("uint8", "float32"), "float64"])
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
    if np.dtype(source).kind == "f":
        edges = [2.0**k for k in (7, 8, 15, 16, 31, 32, 62, 63, 64, 70)]
        more = [0.9, 1.5, 127.5, 255.5, 300.0, 70000.5, 3e9, 5e9, 1e19, *edges]
        with np.errstate(all="ignore"):
            values = np.array([*values, *more, *(-x for x in more)]).astype(source)
    check(lambda x: x.astype(target), values, backend=backend)


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1.0, -1, 1.0, 0.0, 3.0, -0.5])
@pytest.mark.parametrize("dtype", [*exhaustive("float16", "float32"), "float64"])
def test_power_with_one_exponent(dtype: str, exponent: float) -> None:
    values = samples(dtype)
    for number in (exponent, np.float64(exponent), np.float32(exponent)):
        exact = 0 if exponent in (2, 0.5, -1) else 2
        check(lambda x, n=number: x**n, values, ulp=exact)
        check(lambda x, n=number: np.power(x, n), values, ulp=exact)


def test_power_with_an_exponent_that_is_broadcast_is_left_to_numpy() -> None:
    values = np.array([[-np.inf, -0.0, 4.0], [1.0, 2.0, -np.inf]])
    for exponent in (np.array(0.5), np.array([0.5]), np.array([[0.5], [2.0]]), np.ones((1, 3))):
        found = check(lambda x, e=exponent: np.power(x, e) + 1, values, ulp=2)
        assert ("power", "power whose exponent is broadcast") in found.recorder.breaks
    found = check(lambda x: np.power(x, x) + 1, values, ulp=2)
    assert not found.recorder.breaks


@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float16", "float64")])
@pytest.mark.parametrize("axis", [None, 0, 1, ()])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (7, 9)])
def test_sum_of_negative_zeros(shape: tuple[int, int], axis: Any, dtype: str) -> None:
    zeros = np.full(shape, -0.0, dtype)
    for function in (np.sum, np.mean, np.nansum):
        if axis != () or function is np.sum:
            check(lambda x, f=function: f(x, axis=axis), zeros)


@pytest.mark.parametrize(
    "function", [np.sum, np.var, *exhaustive(np.mean, np.std, np.nansum, np.prod)]
)
def test_columns_and_rows_that_begin_with_infinity(function: Any) -> None:
    values = np.linspace(1, 2, 100).reshape(20, 5)
    values[0, 0] = np.inf
    for axis in (0, 1):
        check(lambda x, a=axis: function(x, axis=a), values, ulp=16)


@pytest.mark.parametrize(
    "decimals", [1, 8, 9, 20, 22, 23, 38, 45, 300, 309, 400, -1, -9, -30, -309]
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_to_many_decimals(dtype: str, decimals: int) -> None:
    values = samples(dtype)
    values = np.append(values, values[np.abs(values) < 5e4] * 1.2345678)
    check(lambda x: np.round(x, decimals), values.astype(dtype))


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_sums_are_near_the_true_value(dtype: str, name: str) -> None:
    random = np.random.default_rng(0)
    a, b = random.uniform(-3, 3, (2, 2000)).astype(dtype)
    ufunc = getattr(np, name)
    found = record(lambda x, y: ufunc(x, y), a, b).result
    base = 2 if name.endswith("2") else mpmath.e
    with mpmath.workprec(120):
        true = [
            mpmath.log(mpmath.power(base, float(x)) + mpmath.power(base, float(y)), base)
            for x, y in zip(a, b, strict=True)
        ]
        errors = [float(mpmath.mpf(float(f)) - t) for f, t in zip(found, true, strict=True)]
    size = np.maximum(np.maximum(abs(a), abs(b)), abs(found))
    assert (np.abs(errors) / np.spacing(size)).max() <= OPERATIONS[name].ulp


@pytest.mark.parametrize("backend", ["python", "cpu", "arrays"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_above_the_signed_integers_become_unsigned_ones(source: str, backend: str) -> None:
    values = np.array([0.5, 2.0**62, 2.0**63, 1e19, 1.8e19, -3.0], source)
    check(lambda x: x.astype("uint64"), values, backend=backend)


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float16", "float32", "float64"])
def test_where_and_clip(dtype: str) -> None:
    values = samples(dtype)
    for backend in ("python", "cpu", "arrays"):
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


LENGTHS = [1, 3, 7, 8, 9, 16, 31, 100]
STRIDES = {
    "contiguous": slice(None), "strided": slice(None, None, 3), "backwards": slice(None, None, -1),
}  # fmt: skip


def zeros(dtype: str, count: int, layout: str) -> list[np.ndarray]:
    """Return zeros of either sign, two arrays with all pairs of them, and a NaN at the end."""
    step = STRIDES[layout].step or 1
    found = []
    for period in (2, 4):
        values = np.where(np.arange(count) % period < period // 2, 0.0, -0.0).astype(dtype)
        values[9::11] = np.nan
        room = np.empty(count * abs(step), dtype)
        room[STRIDES[layout]][:] = values
        found.append(room[STRIDES[layout]])
    return found


@pytest.mark.skipif(not IS_X86, reason="NumPy's rule is another one on each machine")
@pytest.mark.parametrize("layout", every(3, STRIDES))
@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float16", "float64")])
def test_zeros_have_numpys_signs(dtype: str, layout: str) -> None:
    scalar = np.dtype(dtype).type
    for count in LENGTHS:
        a, b = zeros(dtype, count, layout)
        for function in [
            np.minimum, np.maximum,
            lambda a, b: np.clip(a, 0, 1), lambda a, b: np.clip(a, -0.0, 1),
            lambda a, b: np.clip(a, -1, 0), lambda a, b: np.clip(a, -1, scalar(-0.0)),
            lambda a, b: np.clip(a, 0, None), lambda a, b: np.clip(a, None, -0.0),
            lambda a, b: a.clip(0), lambda a, b: a.clip(-1, -0.0),
            lambda a, b: np.clip(a, b, 1), lambda a, b: np.clip(a, -1, b),
            lambda a, b: np.clip(a, b, b), lambda a, b: np.clip(a, a, b),
            lambda a, b: np.clip(a, b[:1], b[:1]),
            lambda a, b: np.clip(a, np.zeros(()), np.ones(())),
            lambda a, b: np.clip(a, np.nan, 1), lambda a, b: np.clip(a, 0, np.nan),
            lambda a, b: np.clip(a, 2, 1),
        ]:  # fmt: skip
            assert not check(function, a, b).recorder.breaks
        still = np.broadcast_to(scalar(0), a.shape)
        check(lambda a, b: np.clip(a, b, 1), a, still)


def test_traits_are_of_operations_that_there_are() -> None:
    assert operations._NAMES.keys() == operations.TRAITS.keys()
    named = {name for names in operations._NAMES.values() for name in names}
    assert named - operations.OPERATIONS.keys() == set()


WHOLE = [0, 5, -200, 70_000, 2**31 + 5, -(2**31) - 5, 2**32 + 7, 2**53 + 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("source", ["uint32", *exhaustive("int64", "uint64", "int32")])
@pytest.mark.parametrize("middle", ["float64", *exhaustive("float32", "float16")])
def test_integers_that_go_through_floats_end_beyond_other_integers_as_in_numpy(
    source: str, middle: str
) -> None:
    """Of a float that was an integer, LLVM knows its bits, and may take those."""
    x = np.array([each % 2**64 for each in WHOLE * 4], np.uint64).astype(source)
    targets = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    check(lambda a: tuple(a.astype(middle).astype(target) for target in targets), x)


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "sum compared": lambda x: x + 1 < 0, "sum of itself": lambda x: x + 1 > x,
    "difference": lambda x: np.sign((x - 1) * 1.0), "product": lambda x: x * 3 // 3 == x,
    "negative": lambda x: -x > 0, "absolute": lambda x: np.abs(x) < 0,
    "square": lambda x: np.square(x) < 0, "power": lambda x: x**3 < 0,
    "quotient": lambda x: x // np.array(-1).astype(x.dtype) < 0,
    "as a float": lambda x: 1.5 % (x + 1),
    "chosen": lambda x: np.where((x + 1) * 1.0 > 0, 1, 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "i1", "u8", "u4"])
@pytest.mark.parametrize("name", WRAPPED)
def test_integers_wrap_around_whatever_is_made_of_them(name: str, dtype: str) -> None:
    """LLVM may take sums of signed integers for such as do not."""
    limits = np.iinfo(dtype)
    values = np.array([limits.max, limits.min, 5, 0, limits.max // 2, 3], dtype)
    x = da.from_array(values, chunks=3)
    with np.errstate(all="ignore"):
        expected = WRAPPED[name](values) * 1
        settings = {"gpusched.fusion.compile": "wait", "gpusched.fusion.minimum-elements": 0}
        with gpusched.enable(), dask.config.set(settings):
            found = (WRAPPED[name](x) * 1).compute(scheduler="sync")
    np.testing.assert_array_equal(found, expected)
