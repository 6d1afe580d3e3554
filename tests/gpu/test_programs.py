"""Programs of dask.array with chunks on a GPU: fused, they give what dask alone and NumPy give."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.backends.devices import cuda
from gpusched.plan.overrides import NONE
from gpusched.record.record import Recorder

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

SHAPE = (96, 80)


@pytest.fixture(autouse=True)
def everything_fuses() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0, "scheduler": "sync"}):
        yield


# A random program: a source, operations on what there is so far, and a reduction or a view.

UNARY: dict[str, Callable[[Any], Any]] = {
    "negative": operator.neg,
    "absolute": abs,
    "sqrt of abs": lambda x: np.sqrt(abs(x)),
    "exp": lambda x: np.exp(-abs(x)),
    "clip": lambda x: x.clip(-1, 2),
    "floor": np.floor,
    "tanh": np.tanh,
    "astype": lambda x: x.astype("f4"),
    "where": lambda x: np.where(x > 0.5, x, -x),
    "reversed": lambda x: x[::-1],
    "every other": lambda x: x[::2].repeat(2, axis=0),
    "transposed twice": lambda x: (x.T + 1).T,
    "minus its mean": lambda x: x - x.mean(axis=0),
    "over its sum": lambda x: x / (abs(x).sum(axis=1, keepdims=True) + 1),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "multiply": operator.mul,
    "subtract": operator.sub,
    "divide": lambda x, y: x / (abs(y) + 0.5),
    "maximum": np.maximum,
    "hypot": np.hypot,
    "row": lambda x, y: x + y[:1],
}
LAST: dict[str, Callable[[Any], Any]] = {
    "all of it": lambda x: x,
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "mean of rows": lambda x: x.mean(axis=1),
    "largest": lambda x: x.max(axis=1),
    "variance": lambda x: x.var(axis=0),
    "first of the largest": lambda x: x.argmax(axis=0),
    "a part": lambda x: x[5:60, 3:70:3],
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.none()),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=5,
)


def program(x: Any, steps: list[tuple[str, int | None]], last: str) -> Any:
    made = [x]
    for name, other in steps:
        if other is None:
            made.append(UNARY[name](made[-1]))
        else:
            made.append(BINARY[name](made[-1], made[other % len(made)]))
    return LAST[last](made[-1])


@given(
    steps=STEPS,
    last=st.sampled_from(sorted(LAST)),
    dtype=st.sampled_from(["f4", "f8", "i4"]),
    chunks=st.sampled_from([(96, 80), (32, 80), (40, 30)]),
    seed=st.integers(0, 100),
)
def test_fused_is_what_plain_dask_and_numpy_give(
    steps: list[tuple[str, int | None]], last: str, dtype: str, chunks: Any, seed: int
) -> None:
    values = (np.random.default_rng(seed).standard_normal(SHAPE) * 3).astype(dtype)

    def build() -> Any:
        return program(da.from_array(cupy.asarray(values), chunks=chunks), steps, last)

    plain = build().compute()
    with gpusched.enable():
        fused = build().compute()
    assert isinstance(fused, cupy.ndarray)
    assert (fused.dtype, fused.shape) == (plain.dtype, plain.shape)
    exact = np.dtype(plain.dtype).kind in "iub"
    want = program(values.astype("f8") if values.dtype.kind == "f" else values, steps, last)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(fused.get(), plain.get(), **tolerance)
    if not exact:
        np.testing.assert_allclose(fused.get(), np.asarray(want), **tolerance)


def test_a_chain_is_one_kernel_per_chunk() -> None:
    x = da.from_array(cupy.asarray(np.arange(10_000.0)), chunks=2_500)
    gpusched.reset_statistics()
    with gpusched.enable():
        found = ((x * 2 + 1) / (x + 3)).compute()
    counts = gpusched.statistics()
    assert (counts.fused_tasks, counts.launches, not counts.breaks) == (4, 4, True)
    values = np.arange(10_000.0)
    assert np.array_equal(found.get(), (values * 2 + 1) / (values + 3))


def test_copies_to_the_gpu_are_no_graph_breaks() -> None:
    x = da.from_array(np.arange(10_000.0), chunks=2_500)
    gpusched.reset_statistics()
    with gpusched.enable():
        y = x.map_blocks(cupy.asarray, meta=np.array(()))
        ((y * 2 + 1) / (y + 3)).compute()
    counts = gpusched.statistics()
    assert counts.fused_tasks == 4
    assert not counts.breaks


def test_conversions_to_dtypes_without_kernels_are_cupys() -> None:
    x = da.from_array(cupy.asarray(np.arange(10_000.0)), chunks=2_500)
    with gpusched.enable():
        found = ((x + 1) * x).astype("c16").compute()
    assert found.dtype == "c16"
    assert np.array_equal(found.get(), (np.arange(10_000.0) + 1) * np.arange(10_000.0))


def test_constants_of_plans_are_there_when_other_threads_read_them() -> None:
    recording, reading = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with recording:
        recorder = Recorder(NONE.on(cuda()))
        recorder.constant(np.arange(5.0))
    (_, constant), *_ = recorder._constants
    assert constant.get(stream=reading).tolist() == [0, 1, 2, 3, 4]


def test_a_dask_array_of_the_gpu_is_tuned_for_the_gpu() -> None:
    x = da.from_array(cupy.asarray(np.arange(100_000.0)), chunks=50_000)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.cache-directory": None}):
        tuned = gpusched.tune((x * 2 + 1) / (x + 3), remember=False)
    assert {table.place.target for table in tuned.tables} == {"cuda"}


@pytest.mark.parametrize("tier", ["unfused", "any"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_variances_before_their_kernels_are_compiled(name: str, tier: str) -> None:
    values = np.random.default_rng(3).standard_normal((64, 50))
    x = da.from_array(cupy.asarray(values), chunks=(16, 50))
    settings = {"gpusched.fusion.compile": "off", "gpusched.fusion.tier": tier}
    with gpusched.enable(), dask.config.set(settings):
        found = getattr(x, name)(axis=0).compute()
        whole = getattr(x, name)().compute()
    np.testing.assert_allclose(found.get(), getattr(values, name)(axis=0), rtol=1e-12)
    np.testing.assert_allclose(whole.get(), getattr(values, name)(), rtol=1e-12)


def test_bessel_functions_are_cupys() -> None:
    x = np.linspace(-5, 5, 2_000)
    with gpusched.enable():
        found = da.from_array(cupy.asarray(x), chunks=1_000).map_blocks(np.i0).compute()
    np.testing.assert_allclose(found.get(), np.i0(x), rtol=1e-12)


def test_halos_of_chunks_that_are_there_are_cut_by_the_tasks_that_read_them() -> None:
    values = np.random.default_rng(0).random((256, 256), "f4")

    def step(a: Any) -> Any:
        return a[1:-1, 1:-1] + 0.1 * (a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2])

    def tasks(chunks: Any) -> tuple[int, Any]:
        x = da.from_array(chunks, chunks=64).persist()
        y = x.map_overlap(step, depth=1, boundary="reflect", trim=False, dtype="f4")
        with gpusched.enable(), dask.config.set({"gpusched.batching.chunk-bytes": 0}):
            (made,) = dask.optimize(y)
            gpusched.reset_statistics()
            found = y.compute()
        assert sum(gpusched.statistics().recorded.values()) <= 1
        return len(made.dask), found

    on_host, wanted = tasks(values)
    on_device, found = tasks(cupy.asarray(values))
    assert on_device == on_host
    np.testing.assert_allclose(found.get(), wanted, rtol=1e-6)
