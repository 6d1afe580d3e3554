"""Elementwise kernels give what NumPy and Python give, fused with the calls around them."""

from __future__ import annotations

import ast
import math
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.emit import hostloops
from gpusched.kernels import KernelError, typed
from gpusched.kernels.definition import FACTS
from tests.record.recording import record
from tests.tiers import exhaustive

DTYPES = [np.dtype(c) for c in "?bhilBHILfd"]


@gpusched.kernel
def blend(x, y):
    """Return the mean where that is positive, and the difference elsewhere."""
    mean = (x + y) * 0.5
    return mean if mean > 0 else x - y


def numpy_blend(x: Any, y: Any) -> Any:
    x, y = (np.asarray(v) for v in (x, y))
    narrow = {v.dtype for v in (x, y) if v.dtype.kind == "f"} == {np.dtype("f4")}
    x, y = (v.astype("i8") if v.dtype.kind in "ib" or (v.dtype.itemsize < 8 and v.dtype.kind == "u")
            else v for v in (x, y))  # fmt: skip
    x, y = (v.astype("f8") if v.dtype == "u8" else v for v in (x, y))
    mean = (x + y) * (np.float32(0.5) if narrow else 0.5)
    found = np.where(mean > 0, mean, (x - y).astype(mean.dtype))
    return found.astype("f4" if narrow else "f8")


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
def polar(x, y):
    return math.hypot(x, y), math.atan2(y, x), x > y


@pytest.fixture
def everything_fuses() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        yield


def persisted(shape: tuple[int, ...], chunks: Any, dtype: str = "float32", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).random(shape).astype(dtype)
    return da.from_array(values, chunks=chunks).persist(scheduler="sync")


# Values ----------------------------------------------------------------------------------


@st.composite
def pairs(draw: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """Arrays that broadcast: of any dtype, empty, 0-d, transposed, strided, reversed."""
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0))
    arrays = []
    for shape in shapes.input_shapes:
        dtype = draw(st.sampled_from(DTYPES))
        wide = tuple(2 * n for n in shape)
        elements = {"allow_nan": False, "min_value": -1000, "max_value": 1000}
        if dtype.kind in "iu":
            elements = {"min_value": 0 if dtype.kind == "u" else -100, "max_value": 100}
        source = hnp.from_dtype(dtype, **(elements if dtype.kind != "b" else {}))
        array = draw(hnp.arrays(dtype, wide, elements=source))
        step = draw(st.sampled_from([(None, None, 2), (None, None, -2)]))
        view = array[(slice(*step),) * len(shape)]
        assert view.shape == shape
        arrays.append(view if draw(st.booleans()) else view.copy(order="F"))
    return arrays[0], arrays[1]


@given(pairs())
def test_values_dtypes_and_shapes_are_numpys(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    found, expected = blend(*arrays), numpy_blend(*arrays)
    assert np.shape(found) == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_loops_and_branches() -> None:
    real, imaginary = np.linspace(-2, 1, 40), np.linspace(-1.5, 1.5, 30)[:, None]
    found = escape(real, imaginary, 50)
    expected = np.vectorize(escape.python)(real, imaginary, 50)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


def test_several_results() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50))
    r, angle, larger = polar(x, y)
    np.testing.assert_allclose(r, np.hypot(x, y), rtol=1e-15)
    np.testing.assert_allclose(angle, np.arctan2(y, x), rtol=1e-15)
    np.testing.assert_array_equal(larger, x > y)
    assert (r.dtype, larger.dtype) == (np.float64, np.bool_)


def test_several_results_come_of_one_call() -> None:
    recorded = record(lambda x: polar.frozen()(x, x), np.ones(5))
    assert len(recorded.launches) == 1
    assert hostloops.source(recorded.launches[0].kernel.kernel).count("= polar_") == 1


def test_numbers_give_a_number() -> None:
    found = blend(3.0, 1)
    assert type(found) is np.float64
    assert found == 2.0
    assert blend.python(3.0, 1) == 2.0


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sqrt", "sin", "expm1", "log1p", "log10"])
@pytest.mark.parametrize("module", [math, np], ids=["math", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float64")])
def test_mathematics(name: str, module: Any, dtype: str) -> None:
    function = getattr(module, name)
    kernel = gpusched.kernel(lambda x: function(x) + module.pi)
    x = np.random.default_rng(0).uniform(0.1, 9, 500).astype(dtype)
    found = kernel(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, getattr(np, name)(x) + np.pi, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324])
def test_special_values(value: float) -> None:
    kernel = gpusched.kernel(lambda x: (x * 2.0, -x, 1.0 / x))
    x = np.array([value])
    with np.errstate(all="ignore"):
        expected = x * 2.0, -x, 1.0 / x
    for found, wanted in zip(kernel(x), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_reference_execution_is_the_same() -> None:
    x, y = (np.random.default_rng(k).normal(size=20).astype("f4") for k in (0, 1))
    program = lambda a, b: blend.frozen()(a * 2, b) + 1  # noqa: E731
    slow = record(program, x, y, backend="python").result
    fast = record(program, x, y).result
    np.testing.assert_array_equal(slow, fast)


# Fusion ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("everything_fuses")
def test_fuses_with_the_calls_around_it() -> None:
    x, y = persisted((40, 30), 10), persisted((40, 30), 10, seed=1)
    gpusched.reset_statistics()
    with gpusched.enable():
        found = (blend(x * 2, y) + 1).compute(scheduler="sync")
    counts = gpusched.statistics()
    assert (counts.tasks, counts.fused_tasks, counts.launches) == (12, 12, 12)
    assert len(counts.kernels) == 1
    assert counts.bytes_read == 2 * 40 * 30 * 4
    assert not counts.breaks
    np.testing.assert_array_equal(found, numpy_blend(x.compute() * 2, y.compute()) + 1)


@pytest.mark.usefixtures("everything_fuses")
def test_fuses_with_a_reduction() -> None:
    x = persisted((64, 64), 32)
    gpusched.reset_statistics()
    with gpusched.enable():
        found = (escape(x, x, 100) * 2).sum().compute(scheduler="sync")
    counts = gpusched.statistics()
    assert counts.bytes_written <= 5 * 8
    assert found == (np.vectorize(escape.python)(x.compute(), x.compute(), 100) * 2).sum()


@pytest.mark.usefixtures("everything_fuses")
def test_a_single_call_is_a_kernel_too() -> None:
    x = persisted((40,), 10)
    gpusched.reset_statistics()
    with gpusched.enable():
        blend(x, 1.0).compute(scheduler="sync")
    counts = gpusched.statistics()
    assert (counts.fused_tasks, dict(counts.breaks)) == (4, {})


@pytest.mark.usefixtures("everything_fuses")
def test_several_results_are_one_task_a_chunk() -> None:
    x, y = persisted((40,), 10), persisted((40,), 10, seed=1)
    gpusched.reset_statistics()
    with gpusched.enable():
        r, angle, larger = dask.compute(*polar(x + 1, y), scheduler="sync")
    assert gpusched.statistics().launches == 4
    expected = polar(x.compute() + 1, y.compute())
    for found, wanted in zip((r, angle, larger), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


@pytest.mark.usefixtures("everything_fuses")
def test_inside_a_function_of_the_users() -> None:
    x = persisted((40,), 10)
    gpusched.reset_statistics()
    with gpusched.enable():
        found = x.map_blocks(lambda a: blend(a * 2, 1.0) + 1, dtype="f4").compute(scheduler="sync")
    counts = gpusched.statistics()
    assert (counts.launches, dict(counts.breaks)) == (4, {})
    np.testing.assert_array_equal(found, blend(x.compute() * 2, 1.0) + 1)


def test_without_fusion_dask_arrays_work_too() -> None:
    x = persisted((40, 3), 10)
    found = blend(x, np.arange(3.0))
    assert found.dtype == np.float64
    assert found.chunks == x.chunks
    np.testing.assert_array_equal(
        found.compute(scheduler="sync"), blend(x.compute(), np.arange(3.0))
    )


def test_dask_arrays_without_axes_and_of_unknown_sizes() -> None:
    x = persisted((40,), 10)
    values = x.compute()
    with gpusched.enable():
        assert blend(x.sum(), 2.0).compute(scheduler="sync") == blend(values.sum(), 2.0)
        found = (blend(x[x > 0.5], 1.0) + 1).compute(scheduler="sync")
    np.testing.assert_array_equal(found, blend(values[values > 0.5], 1.0) + 1)


def test_any_name_will_do() -> None:
    kernel = gpusched.kernel(lambda x: x + 1)
    kernel.python.__name__ = "größe" * 100
    assert kernel(np.ones(2)).tolist() == [2, 2]


def test_equal_kernels_have_equal_names() -> None:
    x = persisted((4,), 2)

    def make(scale: float) -> Any:
        return gpusched.kernel(lambda v: v * scale)

    assert make(2.0)(x).name == make(2.0)(x).name
    assert make(2.0)(x).name != make(3.0)(x).name


# Dtypes ----------------------------------------------------------------------------------


def test_float32_stays_float32() -> None:
    kernel = gpusched.kernel(lambda x: (x * 2 + 0.1, 0.5 * x))
    both = kernel(np.float32([1, 2, 3]))
    assert [b.dtype for b in both] == [np.float32, np.float32]


def test_numbers_beside_float32_are_float32() -> None:
    def each(x):
        total = 0.0
        for _ in range(3):
            total += (2 * x + 1) * 0.1 - x / 3
        if x > 0:
            total = 1 - total
        return total

    x = np.random.default_rng(0).normal(size=1000).astype("f4")
    with np.errstate(all="ignore"):
        expected = np.array([each(value) for value in x])
    assert expected.dtype == np.float32  # As NumPy has it, at each step.
    np.testing.assert_array_equal(gpusched.kernel(each)(x), expected)


def test_large_numbers_stay_exact() -> None:
    kernel = gpusched.kernel(lambda x: (x < 1e300, x + (2**24 + 1)))
    found = kernel(np.float32([1.0, np.inf]))
    assert found[0].tolist() == [True, False]
    assert found[1][0] == np.float32(2**24 + 2)


def test_declared_dtypes() -> None:
    @gpusched.kernel(dtypes="int16")
    def whole(x):
        return x * 2

    @gpusched.kernel("float32(float32, int32)", "(float64, bool)(float64, int64)")
    def scaled(x, n):
        return x * n

    assert whole(np.array([1.5, 2.0])).dtype == np.int16
    assert scaled(np.float32([1, 2]), np.int32(2)).dtype == np.float32
    with pytest.raises(KernelError, match="returns 1 values, but 2 dtypes are declared"):
        scaled(np.array([1.0]), 2)
    with pytest.raises(KernelError, match=r"not declared for \(float64, float64\)"):
        gpusched.kernel("float32(float32, int32)")(scaled.python)(np.ones(2), np.ones(2))


@pytest.mark.parametrize("dtype", ["complex64", "float16", "datetime64[s]", "O"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(KernelError, match="kernels hold bool, integers, float32 and float64"):
        blend(np.zeros(3, dtype), 1.0)


def test_other_byte_order_and_fields_of_records() -> None:
    records = np.zeros(5, [("a", "i4"), ("b", "f8")])
    records["b"] = np.arange(5)
    np.testing.assert_array_equal(blend(records["b"], 0.0), blend(np.arange(5.0), 0.0))
    np.testing.assert_array_equal(blend(np.arange(5, dtype=">f8"), 0.0), blend(np.arange(5.0), 0.0))


# What cannot be --------------------------------------------------------------------------


def here() -> int:
    return sys._getframe(1).f_lineno


def test_what_numba_cannot_compile_names_the_line() -> None:
    first = here()

    @gpusched.kernel
    def wrong(x):
        y = x + 1
        return y.nothing

    with pytest.raises(KernelError) as caught:
        wrong(np.ones(3))
    message = str(caught.value)
    assert message.startswith(f"{__file__}:{first + 5}: kernel wrong cannot be compiled")
    assert "nothing" in message
    assert "return y.nothing" in message


def test_the_error_comes_when_the_dask_array_is_made() -> None:
    wrong = gpusched.kernel(lambda x: x.nothing)
    with pytest.raises(KernelError, match="nothing"):
        wrong(persisted((4,), 2))


TABLE = {1: 2}


def _raises(x):
    if x < 0:
        raise ValueError("negative")
    return x


def _starred(*x):
    return x[0]


def _reads_a_dict(x):
    return x + TABLE[1]


def _recursive(x):
    return x if x < 1 else _recursive(x - 1)


def _array(x):
    return np.zeros(3)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_raises, "raises an exception"),
        (_starred, r"no \* or \*\* ones"),
        (_reads_a_dict, "uses TABLE, a dict"),
        (_recursive, "calls itself"),
        (_array, "a kernel returns a number"),
        (lambda x: (x for _ in range(3)), "cannot be compiled"),
        (lambda x: None, "a kernel returns a number"),
        (np.sin, "made of a Python function"),
    ],
)
def test_refused_functions(function: Any, reason: str) -> None:
    with pytest.raises(KernelError, match=reason):
        gpusched.kernel(function)(np.ones(3))


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(KernelError, match="kernel blend takes 2 arguments; 1 were given"):
        blend(np.ones(3))


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(TypeError):
        blend(np.ma.masked_array([1.0, 2.0], [True, False]), 1.0)


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        blend(np.ones(3), np.ones(4))


# What a kernel reads from outside ---------------------------------------------------------

SCALE = 2.0


def helper(x):
    return x * SCALE


@gpusched.kernel
def scaled(x):
    return helper(x)


@gpusched.kernel
def calls_a_kernel(x):
    return scaled.python(x) if False else helper(x) + 1


def test_a_global_that_changes_is_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(3)
    lazy = scaled(da.from_array(x))
    assert scaled(x).tolist() == [2, 2, 2]
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 5.0)
    assert scaled(x).tolist() == [5, 5, 5]
    assert lazy.compute(scheduler="sync").tolist() == [2, 2, 2]


def test_kernels_call_kernels() -> None:
    outer = gpusched.kernel(lambda x: scaled(x) + 1)
    assert outer(np.ones(2)).tolist() == [3, 3]


def test_arrays_from_outside() -> None:
    table = np.array([10.0, 20.0, 30.0])
    lookup = gpusched.kernel(lambda k: table[k])
    assert lookup(np.array([2, 0])).tolist() == [30, 10]
    table[0] = 5.0
    assert lookup(np.array([2, 0])).tolist() == [30, 5]


def test_a_kernel_without_source() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x):\n    s = 0.0\n    for k in range(3):\n        s += x\n    return s", scope)
    kernel = gpusched.kernel(scope["f"])
    assert kernel(np.array([1.0, 2.0])).tolist() == [3, 6]
    assert kernel(persisted((4,), 2)).compute().shape == (4,)


@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
def test_pickling(dump: Any) -> None:
    again = pickle.loads(dump(blend))
    x = np.linspace(-1, 1, 7)
    np.testing.assert_array_equal(again(x, 0.1), blend(x, 0.1))
    assert again.frozen() == blend.frozen()
    assert again.__name__ == "blend"
    assert again.__doc__ == blend.__doc__


def test_workers_need_not_infer_dtypes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = np.dtype("f4"), np.dtype("f4")
    expected = blend.frozen().typed(kinds)
    sent = pickle.dumps(blend.frozen())
    FACTS.clear()
    typed.typed.cache_clear()
    monkeypatch.setattr(typed, "_inferred", None)
    assert pickle.loads(sent).typed(kinds) == expected


def test_travels_without_its_module() -> None:
    module = types.ModuleType("kernels_nobody_else_has")
    sys.modules[module.__name__] = module
    text = (
        "OFFSET = 4\ndef inner(x):\n    return x + OFFSET\ndef outer(x):\n    return inner(x) * 2\n"
    )
    exec(compile(ast.parse(text), "nowhere.py", "exec"), module.__dict__)
    sent = cloudpickle.dumps(gpusched.kernel(module.outer).frozen())  # type: ignore[attr-defined]
    del sys.modules[module.__name__]
    assert pickle.loads(sent)(np.array([1])).tolist() == [10]


# Arrays of others -------------------------------------------------------------------------


def test_dlpack() -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 9)
    found = blend(x, 0.5)
    np.testing.assert_array_equal(found, blend(x.numpy(), 0.5))


def test_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(np.arange(6.0).reshape(2, 3), dims=("a", "b"))
    y = xarray.DataArray(np.arange(3.0), dims="b")
    found = blend(x, y)
    assert found.dims == ("a", "b")
    np.testing.assert_array_equal(found.values, blend(x.values, y.values))
    lazy = blend(x.chunk({"a": 1}), y)
    np.testing.assert_array_equal(lazy.compute().values, found.values)


def test_lists() -> None:
    assert blend([1, 2], [3, 4]).tolist() == [2, 3]
