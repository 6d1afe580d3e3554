"""Shapes, strides and broadcasts: the loops reach the right elements, whatever the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.backends.devices import HOST
from gpusched.plan.plan import Allocation
from tests.record.recording import assert_same, check, record
from tests.tiers import exhaustive

DTYPES = ["bool", "int8", "int32", "uint16", "int64", "float16", "float32",
          "float64"]  # fmt: skip


@st.composite
def strided(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Draw an array of `shape` with any strides: steps, reversed, transposed, or zero."""
    order = draw(st.permutations(range(len(shape))))
    steps = draw(st.lists(st.sampled_from([1, 1, 2, -1, -2, 0]), min_size=len(shape),
                          max_size=len(shape)))  # fmt: skip
    base_shape = tuple(1 if s == 0 else n * abs(s) for n, s in zip(shape, steps, strict=True))
    values = draw(hnp.arrays(dtype, tuple(base_shape[k] for k in order), elements=numbers(dtype)))
    array = values.transpose(np.argsort(order)) if shape else values
    array = array[tuple(slice(None) if s == 0 else slice(None, None, s) for s in steps)]
    return np.broadcast_to(array, shape) if 0 in steps else array


def numbers(dtype: str) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "f":
        # Of float16 so small that no sum of some hundred is infinite.
        narrow = dtype == "float16"
        ordinary = st.floats(-10, 10, width=16) if narrow else st.floats(-100, 100, width=32)
        return ordinary | st.sampled_from([np.nan, np.inf, -np.inf, -0.0])
    return st.booleans() if kind == "b" else st.integers(0 if kind == "u" else -20, 20)


@st.composite
def operand_lists(draw: st.DrawFn) -> list[np.ndarray]:
    """Draw arrays that broadcast with each other."""
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=4)
    )
    return [draw(strided(shape, draw(st.sampled_from(DTYPES)))) for shape in shapes.input_shapes]


def mixture(a: Any, b: Any, c: Any) -> Any:
    return np.where(c, a + b, a * 2) < b, (a + 1.5) * c, np.maximum(abs(b), abs(c))


@given(operand_lists())
def test_elementwise_agrees_with_numpy(arrays: list[np.ndarray]) -> None:
    check(mixture, *arrays, backend="python")


@pytest.mark.slow
@given(operand_lists())
def test_compiled_agrees_with_numpy(arrays: list[np.ndarray]) -> None:
    check(mixture, *arrays, backend="cpu")


@st.composite
def reductions(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    shape = draw(hnp.array_shapes(max_dims=4, max_side=5))
    array = draw(strided(shape, draw(st.sampled_from(DTYPES))))
    axes = draw(st.none() | st.sets(st.integers(0, len(shape) - 1)).map(tuple))
    return array, {"axis": axes, "keepdims": draw(st.booleans())}


REDUCTIONS = ["sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "nansum", "nanprod",
              "nanmin", "nanmax"]  # fmt: skip


def is_product_of_any_order(array: np.ndarray) -> bool:
    """Return whether no factors of an array overflow, or vanish, before another one is 0 or inf."""
    if array.dtype.kind != "f" or np.all(np.isfinite(array) & (array != 0)):
        return True
    factors = np.abs(array[np.isfinite(array) & (array != 0)])
    with np.errstate(all="ignore"):
        largest, least = np.prod(np.maximum(factors, 1)), np.prod(np.minimum(factors, 1))
    return bool(np.isfinite(largest) and least > 0)


@pytest.mark.parametrize("backend", ["python", *exhaustive("cpu")])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
def test_reductions_agree_with_numpy(name: str, backend: str) -> None:
    function = getattr(np, name)

    @given(reductions())
    def agree(case: tuple[np.ndarray, dict[str, Any]]) -> None:
        array, options = case
        if "prod" in name and not is_product_of_any_order(array + array):
            return
        if "prod" in name and array.dtype == np.float16:
            return  # NumPy rounds each product along some axes, to subnormal numbers too.
        largest = float(np.nanmax(np.abs(np.where(np.isfinite(array), array, 1)), initial=1.0))
        exponent = array.size if "prod" in name else 2 if name == "var" else 1
        terms = array.size if "sum" in name else 1
        with np.errstate(all="ignore"):
            scale = np.float64(2 * largest) ** min(exponent, 20) * 4 * terms  # of x + x
        # Each addition rounds once: (n - 1) times in a row here, log n times in NumPy.
        ulp = max(8, array.size)
        check(lambda x: function(x + x, **options), array, backend=backend, ulp=ulp, scale=scale)

    agree()


def test_views_do_not_copy_and_fuse_with_what_follows() -> None:
    z = np.random.default_rng(0).random((40, 50))

    def views(z: Any) -> Any:
        return (z[1:-1, 2:] - z[1:-1, :-2]) / 2 + z[::2][:18, None, 1:-1].sum(axis=1)[:1]

    found = check(views, z, ulp=4)
    assert len(found.launches) == 2


def test_slices_of_an_expression_are_pushed_to_its_inputs() -> None:
    x = np.random.default_rng(1).random((30, 40))
    found = check(lambda x: (x * 3 + 1)[5:9, ::2].T[::-1] * 2, x)
    assert [launch.bytes_written for launch in found.launches] == [4 * 20 * 8]


def test_an_expression_sliced_often_is_computed_once() -> None:
    x = np.random.default_rng(1).random(100)

    def neighbours(x: Any) -> Any:
        y = np.exp(x) * 2
        return y[:-4] + y[1:-3] + y[2:-2] + y[3:-1] + y[4:]

    found = check(neighbours, x, ulp=8)
    assert len(found.launches) <= 3


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 2), ()])
def test_empty_and_zero_dimensional(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, "float32")
    check(lambda x: (x + 1) * 2 - x, x)
    for name in ("sum", "prod", "any", "all"):
        check(lambda x, name=name: getattr(np, name)(x * 2, axis=None), x)


def test_extremes_of_nothing_raise_as_numpy_does() -> None:
    with pytest.raises(ValueError, match="zero-size array"):
        record(lambda x: (x + 1).min(), np.ones((0, 3)))


def test_fortran_order_is_kept() -> None:
    x = np.asfortranarray(np.random.default_rng(2).random((6, 7)))
    found = check(lambda x: (x + 1) * x, x)
    assert found.result.flags.f_contiguous
    assert len(found.plan.launches[0].numbers) == 1  # one flat loop


def test_sums_are_as_exact_as_pairwise_ones() -> None:
    generator = np.random.default_rng(3)
    for dtype, bound in (("float32", 2), ("float64", 2)):
        x = (generator.random(1_000_003) - 0.3).astype(dtype)
        found = record(lambda x: (x * 1).sum(), x).result
        exact = float(np.sum(x.astype(np.longdouble)))
        assert abs(float(found) - exact) <= bound * np.spacing(np.abs(found))


def test_readonly_inputs() -> None:
    x = np.arange(10.0)
    x.flags.writeable = False
    found = check(lambda x: x * 2 + 1, x)
    assert found.result.flags.writeable


def test_unaligned_inputs_such_as_come_over_the_network() -> None:
    frame = np.zeros(8 * 1000 + 4, np.uint8)[3:-1]
    x = frame.view("float64").reshape(50, 20)
    assert not x.flags.aligned
    frame[:] = np.random.default_rng(4).random(1000).view(np.uint8)
    for backend in ("python", "cpu"):
        check(lambda x: x * 2 + 1, x, backend=backend)
        check(lambda x: (x[:, ::2] * 2 - x[::-1, 1::2]).max(axis=1), x, backend=backend)


@pytest.mark.parametrize("function", [np.zeros_like, np.ones_like, lambda x: np.full_like(x, 2.5)])
def test_arrays_made_anew_do_not_compute_their_model(function: Any) -> None:
    x = np.random.default_rng(0).random((5, 6)).astype("float32")
    found = check(lambda x: function(x * 2 + 1) + x, x)
    assert len(found.launches) == 1
    assert len(found.launches[0].kernel.kernel.statements) <= 1
    result = record(lambda x: (x * 2, function(x * 2)), x).result[1]
    result[0] = 7  # a new array each time, not a view of a shared one


def test_inputs_are_never_written() -> None:
    x = np.arange(10.0)
    before = x.copy()
    found = record(lambda x: (x + 0) * 1, x)
    found.result[:] = -1
    assert_same(x, before)


@given(st.data())
def test_results_of_accumulators_are_laid_out_as_what_stands_in_for_them(
    data: st.DataObject,
) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=3))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    turned = tuple(shape[axis] for axis in axes)
    output = Allocation(0, shape, np.dtype("f8"), axes, turned, np.dtype("f4"), initial=0.0)
    registers: list[Any] = [None]
    output.finish(output.allocate(HOST), registers)
    assert registers[0].strides == output.stand_in(HOST).strides
