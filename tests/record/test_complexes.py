"""Complex numbers: split where kernels read them, computed by parts as NumPy does, and joined."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import DECLARABLE, SUPPORTED
from gpusched.emit.floatingpoint import DIVIDE, INVALID, OVERFLOW, take
from gpusched.kernels import KernelError
from gpusched.record import complexes
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import check, record
from tests.tiers import every, exhaustive

PARTS = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e12, -1e-12, 0.3, 81.0]
"""Parts whose products no dtype rounds to infinity: see `test_rounding_of_products`."""
COMPLEX = ["complex64", "complex128"]
BACKENDS = ["python", *exhaustive("cpu")]
"""Backends, of which the default tier has only some kernels compiled."""


def of_parts(dtype: str) -> np.ndarray:
    """Return every pair of parts there is."""
    found = np.empty((len(PARTS), len(PARTS)), dtype)
    found.real, found.imag = np.meshgrid(PARTS, PARTS)
    return found.ravel()


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return some pairs of such numbers, zeros and infinities among both."""
    random = np.random.default_rng(0)
    values = of_parts(dtype)
    return random.permutation(np.tile(values, 8)), random.permutation(np.tile(values, 8))


def ordinary(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)


def assert_alike(found: Any, expected: Any, ulp: float = 0) -> None:
    """Assert equal types and parts: NaN, infinities and signs of zeros, and numbers within a bound.

    The unit is that of the larger part: a sum of two products is as exact as these are.
    """
    if isinstance(expected, tuple):
        for each, other in zip(found, expected, strict=True):
            assert_alike(each, other, ulp)
        return
    assert (type(found), found.dtype, found.shape) == (
        type(expected), expected.dtype, expected.shape,
    )  # fmt: skip
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected)
        return
    if not ulp:
        np.testing.assert_array_equal(found, expected)
        for name in ("real", "imag"):
            one, other = getattr(found, name), getattr(expected, name)
            zero = other == 0
            np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]))
        return
    with np.errstate(all="ignore"):
        sizes = (np.abs(each) for each in (expected.real, expected.imag))
        size = np.maximum(*(np.where(np.isfinite(each), each, 0) for each in sizes))
        unit = ulp * np.spacing(np.maximum(size, np.finfo(expected.dtype).tiny))
        for name in ("real", "imag"):
            one, other = getattr(found, name), getattr(expected, name)
            finite = np.isfinite(other)
            np.testing.assert_array_equal(np.where(finite, 0, one), np.where(finite, 0, other))
            assert np.all(np.where(finite, np.abs(one - other), 0) <= unit)


def checked(function: Callable[..., Any], *arrays: np.ndarray, backend: str = "cpu",
            ulp: float = 0) -> Any:  # fmt: skip
    """Assert that a function is recorded without breaks, and gives what NumPy gives."""
    with np.errstate(all="ignore"):
        expected = function(*arrays)
        found = record(function, *arrays, backend=backend)
        again = found.run(*arrays)
    assert not found.recorder.breaks
    for result in (found.result, again):
        assert_alike(result, expected, ulp)
    return found


def of_one(z: Any) -> Any:
    return (-z, +z, z.conj(), np.conjugate(z), np.reciprocal(z), z**-1, np.isnan(z), np.isinf(z),
            np.isfinite(z), np.logical_not(z), z.real, z.imag, np.real(z), np.imag(z),
            z.astype(bool), z.astype("complex128"), np.copy(z))  # fmt: skip


def with_constants(z: Any) -> Any:
    return (z + 2, z - 1j, 0.5 - z, z / 2, z / 2j, 1 / z, z == 1, z != 1j,
            np.where(z.imag > 0, z, 0), np.where(z.real > 0, 1j, z))  # fmt: skip


def of_two(z: Any, w: Any) -> Any:
    return (z + w, z - w, z / w, z == w, z != w, np.logical_and(z, w), np.logical_or(z, w),
            np.logical_xor(z, w), np.where(z == w, z, w), z + w.real, w.imag - z)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("function", [of_one, with_constants, of_two], ids=lambda f: f.__name__)
def test_arithmetic_is_numpy_s_to_the_bit(function: Any, dtype: str, backend: str) -> None:
    arrays = pairs(dtype) if function is of_two else (of_parts(dtype),)
    found = checked(function, *arrays, backend=backend)
    assert len(found.launches) == 1


def test_where_of_scalars_gives_an_array() -> None:
    found = record(lambda z: np.where(z.sum() == 0, z.sum(), 1), np.ones(5, complex)).result
    assert type(found) is np.ndarray


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_rounding_of_products(dtype: str, backend: str) -> None:
    """NumPy rounds one of the two products that it adds where the processor can do so, or both."""
    z, w = ordinary(dtype, 500), ordinary(dtype, 500, seed=1)
    checked(lambda z, w: (z * w, z * 0.1, z**2, np.square(z), z * z.conj()), z, w,
            backend=backend, ulp=2)  # fmt: skip
    checked(lambda z: (z * (2 + 1j), 3 * z), of_parts(dtype), backend=backend, ulp=2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions(dtype: str, backend: str) -> None:
    values = np.concatenate([of_parts(dtype), 300 * ordinary(dtype, 500)])
    checked(lambda z: (abs(z), np.angle(z)), values, backend=backend, ulp=6)
    found = checked(np.exp, values, backend=backend, ulp=12)
    assert len(found.launches) == 1


_NAMES = ("log", "log2", "log10", "log1p", "exp2", "expm1", "sign", "sin", "cos", "tan",
          "arcsin", "arccos", "arctan")  # fmt: skip
_HYPERBOLIC = ("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh")
FUNCTIONS = {name: getattr(np, name) for name in (*_NAMES, *_HYPERBOLIC)}


@pytest.mark.parametrize("backend", ["python", *exhaustive("cpu")])
@pytest.mark.parametrize("dtype", every(2, COMPLEX))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_c_library(name: str, dtype: str, backend: str) -> None:
    circle = np.exp(1j * np.linspace(0, 7, 200)).astype(dtype)
    sizes = 0.0, 1e-200, 1e-30, 1e-9, 1e-5, 1.0, 1e9, 1e30
    far = np.array([complex(x, y) for x in sizes for y in sizes]).astype(dtype)
    near = np.array([complex(1 + x, y) for x in (0, 2e-16, -1e-16, 1e-7, -1e-7, 1e-3)
                     for y in (0, 1e-300, 1e-20, 1e-10, 1e-4, 0.1)]).astype(dtype)  # fmt: skip
    alike = [sign * each for each in (far, near) for sign in (1, -1)]
    values = np.concatenate([of_parts(dtype), 2 * ordinary(dtype, 300), circle, *alike])
    found = checked(FUNCTIONS[name], values, backend=backend, ulp=12)
    assert len(found.launches) == 1 and not found.recorder.breaks


@pytest.mark.parametrize("dtype", every(2, COMPLEX))
@pytest.mark.parametrize("name", ["arcsin", "arccos", "arcsinh", "arccosh"])
def test_each_part_beside_an_axis_is_as_exact_as_numpy_s(name: str, dtype: str) -> None:
    limits = np.finfo(dtype)
    small = [limits.tiny, limits.tiny * 8, limits.tiny ** (2 / 3), limits.tiny**0.5, limits.eps]
    about = [0.3, 0.5, 0.999, 1 - limits.eps, 1.0, 1 + limits.eps, 1.001, 2.0, 7.0]
    beside = np.array([complex(x, y) for x in about for y in small])
    values = np.concatenate([sign * z for z in (beside, beside * 1j) for sign in (1, -1)])
    values = np.concatenate([values, values.conj()]).astype(dtype)
    found = record(FUNCTIONS[name], values, backend="python").run(values)
    expected = FUNCTIONS[name](values)
    for part in ("real", "imag"):
        one, other = getattr(found, part), getattr(expected, part)
        np.testing.assert_array_less(np.abs(one - other), 6 * np.spacing(np.abs(other)))


def test_zeros_and_nan_of_either_sign() -> None:
    nan = np.array([complex(0, np.nan), complex(0, -np.nan)])
    checked(np.arccosh, nan, backend="python")
    zeros = np.array([complex(x, y) for x in (0.0, -0.0) for y in (0.0, -0.0)])
    checked(lambda z: (z**1, z**1.0, z**2, z**2.0, z**0.5), zeros, backend="python")


@pytest.mark.parametrize("dtype", every(2, COMPLEX))
def test_powers_by_integers_are_products(dtype: str) -> None:
    values = np.concatenate([of_parts(dtype), ordinary(dtype, 50)])

    def raised(z: Any) -> Any:
        return (z**3, z**-2, np.power(z, 7), np.power(z, 0), np.float_power(z, 2),
                np.power(z, -1.0), z ** np.float32(4))  # fmt: skip

    checked(raised, values, backend="python", ulp=32)


@pytest.mark.parametrize("exponent", [2.5, -0.5, 1 + 2j, 1j])
@pytest.mark.parametrize("dtype", every(2, COMPLEX))
def test_other_powers_are_those_of_e(dtype: str, exponent: complex) -> None:
    """NumPy's are off by as many units as ours are, times the size of what e is raised to."""
    values = np.concatenate([of_parts(dtype)[np.abs(of_parts(dtype)) < 100], ordinary(dtype, 200)])
    checked(lambda z: np.power(z, exponent), values, backend="python", ulp=48)


def test_powers_by_arrays_are_numpy_s() -> None:
    """Those by integers among them are products."""
    z = ordinary("complex128", 4)
    found = record(lambda z: 2.0 ** (z * 1), z)
    assert [name for name, _ in found.recorder.breaks] == ["power"]


@pytest.mark.parametrize("dtype", every(2, COMPLEX))
def test_what_numpy_computes_of_parts(dtype: str) -> None:
    def of_parts_alone(z: Any) -> Any:
        w = z * 1
        return (np.angle(w, deg=True), np.nan_to_num(w, nan=3, posinf=7), np.round(w, 2),
                np.isclose(w, z + 1e-9), np.clip(w, 0, 1 + 1j))  # fmt: skip

    checked(of_parts_alone, of_parts(dtype), backend="python", ulp=6)
    checked(lambda x: np.angle(x - 0.5, deg=True), np.array([0.0, 1.0, -0.0, np.nan]))


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "rint"])
def test_comparisons_and_rounding(name: str) -> None:
    function = getattr(np, name)
    if name == "rint":
        checked(function, of_parts("complex128"), backend="python")
    else:
        found = checked(function, *pairs("complex64"), backend="python")
        assert not found.recorder.breaks


@pytest.mark.parametrize("dtype", COMPLEX)
def test_powers_of_e_that_only_an_angle_keeps_finite(dtype: str) -> None:
    most = np.log(np.finfo(dtype).max)
    values = (most + np.linspace(-1, 3, 50) + 1j * np.linspace(1.4, 1.6, 50)).astype(dtype)
    assert np.isfinite(np.exp(values.imag * 1j)).all()
    checked(np.exp, values, backend="python", ulp=12)


@pytest.mark.parametrize("source", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16"])
def test_conversions(source: str) -> None:
    values = np.arange(40).astype(source)

    def converted(x: Any) -> Any:
        return x.astype("c8"), x.astype("c16"), x + np.complex64(2), x * 1j

    checked(converted, values, backend="cpu" if source == "f2" else "python")


REAL = ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_conversions_that_lose_parts(dtype: str) -> None:
    z = np.append(of_parts(dtype), np.array([300, -1.5, 3e9, 2.0**40, -(2.0**31), 70000], dtype))

    def converted(z: Any) -> Any:
        return tuple((z + 0).astype(each) for each in REAL)

    found = check(converted, z, backend="python")
    assert not found.recorder.breaks


@pytest.mark.parametrize("mode", ["off", "wait"])
def test_lost_parts_are_warned_of_as_often(mode: str) -> None:
    """Whether the chunks' calls are repeated, as there is an error, or run once."""
    x = da.from_array(np.arange(8) * (1 + 2j), chunks=4)

    def warned(x: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            x.compute(scheduler="sync")
        return sorted(str(each.message) for each in found)

    def divided(b: Any) -> Any:
        return 1 / (b.astype("f8") * 2)

    programs = [
        x.astype("f8") * 2 + 1,
        x.map_blocks(divided, dtype="f8"),
        (x * 2).astype("i4") // 0,
    ]
    settings = {"compile": mode, "minimum-elements": 0, "minimum-operations": 0}
    for program in programs:
        with gpusched.disable():
            expected = warned(program)
        assert any("imaginary" in each for each in expected)
        fused = dask.config.set({f"gpusched.fusion.{k}": v for k, v in settings.items()})
        with fused, gpusched.enable():
            assert [warned(program), warned(program)] == [expected, expected]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: x, "columns": lambda x: x.T, "every other": lambda x: x[::2, ::3],
    "backwards": lambda x: x[::-1, ::-1], "one row": lambda x: np.broadcast_to(x[0], x.shape),
    "real parts": lambda x: x.real,
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, backend: str) -> None:
    z = LAYOUTS[layout](ordinary("complex64", 20, 30))
    checked(lambda z: (z + 1j, (z - 1).conj(), (z + 0j).real), z, backend=backend)
    checked(lambda z: (z + 1j)[1:-1, ::2].T - z[1:-1, ::2].T, z, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions(axis: int | None, backend: str) -> None:
    def reduced(z: Any) -> Any:
        w = z - 0.5j
        return (w.sum(axis=axis), np.mean(w, axis=axis), np.nansum(w, axis=axis), np.var(w, axis),
                w.std(axis=axis), w.any(axis=axis), np.all(w, axis=axis))  # fmt: skip

    z = ordinary("complex128", 40, 50)
    checked(reduced, z, backend=backend, ulp=64)
    found = checked(lambda z: z.sum(axis=axis, keepdims=True), z, backend=backend, ulp=64)
    assert len(found.launches) == 2, "both parts are added up in one pass, and then joined"


def test_sums_of_sums_are_sums() -> None:
    z = ordinary("complex64", 30, 40)
    checked(lambda z: z.sum(axis=0, keepdims=True).sum(axis=0), z, ulp=64)
    checked(lambda z: np.add.reduce(z, axis=1), z, backend="python", ulp=64)


def test_numbers_that_are_not_real_are_skipped() -> None:
    z = ordinary("complex128", 30, 40)
    z[::3, 1] = np.nan
    z[1, ::5] = complex(1, np.nan)
    checked(lambda z: np.nansum(z, axis=0), z, ulp=64)
    for function in (np.nanprod, np.nanmean, np.nanmax, np.nanmin):
        checked(lambda z, f=function: f(z, axis=0), z, backend="python", ulp=256)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("dtype", every(2, COMPLEX))
def test_products_and_extremes(dtype: str, axis: Any) -> None:
    z = ordinary(dtype, 17, 12)

    def extremes(z: Any) -> Any:
        w = np.round(z)  # so that many have the same real part
        return (w.max(axis=axis), np.min(w, axis=axis, keepdims=True), np.amax(z * 1j, axis))

    def products(z: Any) -> Any:
        return z.prod(axis=axis), np.prod(z, axis, keepdims=True), np.multiply.reduce(z, axis=1)

    checked(extremes, z, backend="python", ulp=1)  # but for the signs of zeros
    checked(products, z, backend="python", ulp=512)


@pytest.mark.parametrize("length", [1, 3])
def test_products_of_infinite_numbers_are_numpy_s(fused: None, length: int) -> None:
    """NumPy starts from 1 and goes on one after the other, which decides what is NaN."""
    z = np.full((length, 4), 2 - 0j)
    z[0, 1:] = complex(np.inf, 0), complex(np.nan, 1), complex(1, -np.inf)
    program = (da.from_array(z, chunks=(length, 2)).conj() + 1).prod(axis=0)
    with pytest.warns(RuntimeWarning, match="invalid"), gpusched.disable():
        expected = program.compute(scheduler="sync")
    with pytest.warns(RuntimeWarning, match="invalid"):
        found = program.compute(scheduler="sync")
    assert_alike(found, expected)


def test_sums_of_segments() -> None:
    z = ordinary("complex64", 20, 6)
    checked(lambda z: np.add.reduceat(z * 2, np.array([0, 3, 11]), axis=0), z, ulp=64)


@pytest.mark.parametrize("ignored", [False, True])
def test_extremes_among_nan_are_numpy_s(fused: None, ignored: bool) -> None:
    """NumPy has the first of several, with both parts of it."""
    z = ordinary("complex128", 40, 30)
    z[3, 4], z[7, 4], z[:, 9] = complex(1, np.nan), complex(np.nan, 2), complex(np.nan, 3)

    def extreme(block: Any) -> Any:
        with np.errstate(invalid="ignore" if ignored else "warn"):
            return np.max(block * 1, axis=0)

    for function in (extreme, lambda block: np.nanmin(block * 1, axis=0)):
        program = da.from_array(z, chunks=(40, 15)).map_blocks(function, drop_axis=0, dtype=z.dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with gpusched.disable():
                expected = program.compute(scheduler="sync")
            found = program.compute(scheduler="sync")
        assert_alike(found, expected)


def test_products_are_split_once() -> None:
    """What one call joins is not written to memory and split again by the next."""
    z, w = ordinary("complex64", 50), ordinary("complex64", 50, seed=1)
    (launch,) = checked(lambda z, w: abs(z * w + z), z, w, ulp=8).launches
    operations = [statement.operation for statement in launch.kernel.kernel.statements]
    assert operations.count("real") == operations.count("imag") == 2
    assert "complex" not in operations


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_what_is_not_a_number_is_replaced_by_real_numbers_only(fused: None, dtype: str) -> None:
    program = da.from_array(ordinary("complex64", 40).real.astype(dtype), chunks=20).map_blocks(
        lambda z: np.nan_to_num(z * 2, nan=1 + 2j), dtype=dtype
    )
    with pytest.raises(TypeError, match="Cannot cast scalar from"):
        program.compute(scheduler="sync")


@pytest.mark.parametrize("function", [np.var, np.std], ids=lambda f: f.__name__)
def test_deviations_in_a_real_dtype_are_numpys(fused: None, function: Any) -> None:
    """Imaginary parts were left out of them, and the warning of that they are left out of means."""
    values = ordinary("complex64", 40)
    program = da.from_array(values, chunks=-1).map_blocks(
        lambda z: function(z * 2, dtype="f4", keepdims=True), dtype="f4", chunks=(1,)
    )
    with pytest.warns(np.exceptions.ComplexWarning):
        found = program.compute(scheduler="sync")
    with pytest.warns(np.exceptions.ComplexWarning):
        np.testing.assert_allclose(found, function(values * 2, dtype="f4", keepdims=True), 1e-6)


BROKEN = [np.cumprod, np.median, np.sort]


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_what_has_no_kernel_is_counted(function: Any) -> None:
    def program(z: Any) -> Any:
        return function(z * 2) + 1

    z = ordinary("complex64", 40)
    found = record(program, z)
    assert {name for name, _ in found.recorder.breaks} == {function.__name__}
    assert_alike(found.result, program(z), ulp=8)


def extremes(z: Any, w: Any) -> Any:
    return (np.maximum(z, w), np.minimum(z, w), np.fmax(z, w), np.fmin(z, w),
            np.maximum(z, w.real), np.minimum(z, 1))  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_extremes_are_numpy_s(dtype: str, backend: str) -> None:
    z, w = pairs(dtype)
    found = checked(extremes, np.concatenate([z, z]), np.concatenate([w, z]), backend=backend)
    assert len(found.launches) == 1
    checked(lambda z, w: np.clip(z + 0, w, z.conj()), z, w, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_square_roots(dtype: str, backend: str) -> None:
    limits = np.finfo(dtype)
    sizes = [limits.max, limits.max / 3, limits.tiny, limits.smallest_subnormal, 1e-30, 1.0]
    extreme = np.array([complex(x * s, y * t) for x in sizes for y in sizes
                        for s in (1, -1, 0) for t in (1, -1, 0)], dtype)  # fmt: skip
    values = np.concatenate([of_parts(dtype), extreme, 300 * ordinary(dtype, 500)])
    found = checked(np.sqrt, values, backend=backend, ulp=6)
    assert len(found.launches) == 1
    checked(lambda z: z**0.5 + 1, ordinary(dtype, 50), backend=backend, ulp=8)


def errors_of(function: Callable[..., Any], array: np.ndarray, backend: str) -> int:
    with np.errstate(all="warn"):
        found = record(function, array, backend=backend)
        take()
        found.run(array)
    return take()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_roots_and_extremes_have_no_errors_to_report(dtype: str, backend: str) -> None:
    def program(z: Any) -> Any:
        return np.sqrt(z), np.minimum(z, 1j), np.fmax(z, 1j)

    values = of_parts(dtype)
    with np.errstate(all="raise", under="ignore"):
        program(values)
    assert errors_of(program, values, backend) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_that_numpy_reports_are_found(backend: str) -> None:
    plain = ordinary("complex64", 131)

    def chain(z: Any) -> Any:
        return np.exp(z * (2 + 1j) / (z - 30)) + abs(z).sum() - 1 / (z + 20)

    assert errors_of(chain, plain, backend) == 0
    for place in (0, 64, 130):
        for function, value, wanted in (
            (lambda z: z * z, 1e30, OVERFLOW),
            (lambda z: z * 2, complex(np.inf, 0), INVALID),
            (lambda z: z + z, 3e38, OVERFLOW),
            (lambda z: 1 / z, 0, DIVIDE),
            (lambda z: z / z, 0, INVALID),
            (lambda z: np.exp(z), 800, OVERFLOW),
            (lambda z: np.exp(z), complex(0, np.inf), INVALID),
            (lambda z: 1 / z, complex(1, np.nan), INVALID),
            (np.reciprocal, complex(np.nan, 0), INVALID),
            (np.exp, complex(0, np.nan), INVALID),
            (np.exp, complex(np.nan, 1), INVALID),
            (np.log, 0, DIVIDE),
            (np.sin, np.inf, INVALID),
            (np.sinh, complex(1, np.nan), INVALID),
            (np.cosh, complex(90, 1), OVERFLOW),
            (lambda z: z < 1, complex(np.nan, 0), INVALID),
            (lambda z: abs(z), complex(3e38, 3e38), OVERFLOW),
            (lambda z: (z * 1e30).sum(), 1e10, OVERFLOW),
            (lambda z: np.where(z.real > 1e3, z * z, z), 1e30, OVERFLOW),
        ):
            values = plain.copy()
            values[place] = value
            assert errors_of(function, values, backend) & wanted, (value, place)


def test_constants_of_both_signs_of_zero_are_two() -> None:
    def function(x: Any) -> Any:
        return np.where(x > 1, 0.0, np.where(x > 0, -0.0, x)) * 2

    check(function, np.array([-1.5, 0.5, 2.0, 0.5, -3.0]), backend="python")


@pytest.fixture
def fused() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        yield


def test_chunks_between_transforms_are_fused(fused: None) -> None:
    """Signals are filtered by their spectra."""
    signals = da.from_array(ordinary("complex128", 40, 60), chunks=(20, 60))
    spectrum = da.fft.fft(signals, axis=1)
    program = da.fft.ifft(spectrum * (abs(spectrum) > 3) / (2 - 1j), axis=1)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-9, atol=1e-9)
    assert statistics().launches == 2
    assert not {reason.kind for _, reason in statistics().breaks} & {GraphBreak.DTYPE}


def test_means_of_chunks(fused: None) -> None:
    z = da.from_array(ordinary("complex64", 60, 40), chunks=(20, 40))
    program = (z * 2 - 1j).mean(axis=0)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-5)
    assert statistics().launches


def test_warnings_are_numpy_s(fused: None) -> None:
    program = 1 / da.from_array(np.array([0, 1 + 1j]), chunks=1) + 1

    def warnings_of() -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            program.compute(scheduler="sync")
        return sorted(str(each.message) for each in found)

    with gpusched.disable():
        expected = warnings_of()
    assert expected
    assert warnings_of() == expected


def test_users_own_functions_do_not_declare_it() -> None:
    for dtype in COMPLEX:
        assert np.dtype(dtype) in SUPPORTED
        assert np.dtype(dtype) not in DECLARABLE
        with pytest.raises(KernelError, match=dtype):
            gpusched.kernel(f"float64({dtype})")(lambda x: x)


def test_a_lazy_chunk_knows_whether_it_is_complex() -> None:
    def function(z: Any) -> Any:
        assert np.iscomplexobj(z)
        assert not np.isrealobj(z)
        assert not np.iscomplexobj(z.real)
        return z.real + 1

    check(function, ordinary("complex64", 10))


def test_functions_are_ufuncs() -> None:
    names = complexes.FUNCTIONS.keys() - {"clip"}  # whose ufunc has no public name
    assert all(isinstance(getattr(np, name), np.ufunc) for name in names)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + 1j).imag,
        lambda x, y: (x + 1j).real + 1,
        lambda x, y: (x + 1j).imag.sum(axis=0),
        lambda x, y: (x + 1j).sum(),
        lambda x, y: (x + 1j).mean(axis=1),
        lambda x, y: (x[:1] + y[:, :1] * 1j).imag,
        lambda x, y: (x[:1] + y[:, :1] * 1j).real,
        lambda x, y: (x[:1] + y[:, :1] * 1j).sum(axis=0),
        lambda x, y: np.var(x + 1j, axis=0),
    ],
)
def test_a_part_by_itself_has_the_shape_of_the_whole(function: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    x, y = random.random((6, 5)), random.random((6, 5))
    found = record(function, x, y, backend="python").result
    expected = function(x, y)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if np.ndim(expected):
        assert found.flags.writeable


def test_least_and_greatest_of_complex_chunks_are_numpys() -> None:
    x = ordinary("complex64", 40, 30)
    chunks = da.from_array(x, chunks=(20, 30))
    with gpusched.enable(), dask.config.set(scheduler="sync"):
        assert da.nanmin(chunks).compute() == np.nanmin(x)
        np.testing.assert_array_equal(da.nanmax(chunks, axis=0).compute(), np.nanmax(x, axis=0))
