"""Stencils give what SciPy gives, on chunks as on the whole."""

from __future__ import annotations

import linecache
import math
import pickle
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.kernels import KernelError

BOUNDARIES = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap", 2.5: "constant"}


def make(boundary: Any) -> Any:
    @gpusched.kernel.stencil(boundary=boundary)
    def diffuse(a, rate):
        around = a[-1, 0] + a[1, 0] + a[0, -2] + a[0, 1]
        return a[0, 0] + rate * (around - 4.0 * a[0, 0])

    return diffuse


def expected(a: np.ndarray, rate: float, boundary: Any) -> np.ndarray:
    mode = BOUNDARIES[boundary]
    options = {"constant_values": boundary} if mode == "constant" else {}
    p = np.pad(a, ((1, 1), (2, 2)), mode, **options)
    around = p[:-2, 2:-2] + p[2:, 2:-2] + p[1:-1, :-4] + p[1:-1, 3:-1]
    return a + a.dtype.type(rate) * (around - 4 * a)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy(boundary: Any, dtype: str) -> None:
    a = np.random.default_rng(0).random((20, 30)).astype(dtype)
    kernel = make(boundary)
    for array in (a, a[::2, ::-1], a.T):
        found = kernel(array, 0.1)
        np.testing.assert_allclose(found, expected(array, 0.1, boundary), rtol=1e-5)
        assert found.dtype == dtype
    at = kernel.at((3, 0), a.astype("f8"), 0.1)
    assert at == pytest.approx(expected(a.astype("f8"), 0.1, boundary)[3, 0])


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("chunks", [(8, 10), (20, 1), (7, 30), ((1, 19), (2, 28))], ids=str)
def test_dask(boundary: Any, chunks: Any) -> None:
    a = np.random.default_rng(0).random((20, 30))
    kernel, x = make(boundary), da.from_array(a, chunks=chunks)
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        for hook in (gpusched.enable, gpusched.disable):
            with hook():
                lazy = kernel(x * 2, 0.1) + 1
                found = lazy.compute(scheduler="sync")
                assert lazy.shape == found.shape
                np.testing.assert_allclose(found, expected(a * 2, 0.1, boundary) + 1, rtol=1e-12)


def test_it_fuses_and_reads_each_input_once() -> None:
    a = np.random.default_rng(0).random((40, 40))
    x = da.from_array(a, chunks=20)
    kernel = make("periodic")
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        (kernel(x, 0.1) * 2 + 1).compute(scheduler="sync")
    counts = gpusched.statistics()
    assert counts.launches == 4
    assert len(counts.kernels) == 1
    assert counts.bytes_read <= 4 * 22 * 24 * 8
    assert counts.bytes_written == 40 * 40 * 8


def test_several_arrays_and_results() -> None:
    @gpusched.kernel.stencil(boundary=("periodic", 0.0))
    def advect(u, v, scale):
        return u[0, 0] - v[1, 0] * scale, v[0, 1] + u[-1, 0]

    u, v = np.random.default_rng(0).random((2, 12, 9))
    p = np.pad(np.pad(v, ((1, 1), (0, 0)), "wrap"), ((0, 0), (1, 1)))
    q = np.pad(u, ((1, 1), (0, 0)), "wrap")
    scale = np.arange(9.0)
    wanted = u - p[2:, 1:-1] * scale, p[1:-1, 2:] + q[:-2]
    for found, value in zip(advect(u, v, scale), wanted, strict=True):
        np.testing.assert_allclose(found, value)
    lazy = advect(da.from_array(u, chunks=4), da.from_array(v, chunks=(5, 9)), scale)
    for found, value in zip(dask.compute(*lazy, scheduler="sync"), wanted, strict=True):
        np.testing.assert_allclose(found, value)


@given(st.integers(3, 40), st.integers(1, 12), st.sampled_from(["reflect", "nearest", "periodic"]))
def test_one_axis(length: int, chunk: int, boundary: str) -> None:
    kernel = gpusched.kernel.stencil(boundary)(far)
    a = np.arange(length) ** 2
    p = np.pad(a, 3, BOUNDARIES[boundary])
    wanted = p[:-6] + 2 * p[4:-2]
    np.testing.assert_array_equal(kernel(a), wanted)
    lazy = kernel(da.from_array(a, chunks=chunk))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), wanted)


def far(a):
    return a[-3] + 2 * a[1]


def test_names_of_others_for_boundaries() -> None:
    for other, name in (("wrap", "periodic"), ("edge", "nearest"), ("symmetric", "reflect")):
        assert gpusched.kernel.stencil(other)(far).boundary == (name,)


def test_pickling() -> None:
    kernel = make("nearest")
    again = pickle.loads(pickle.dumps(kernel))
    a = np.random.default_rng(0).random((6, 7))
    np.testing.assert_array_equal(again(a, 0.1), kernel(a, 0.1))
    assert again.at((0, 0), a, 0.1) == kernel.at((0, 0), a, 0.1)
    assert again.frozen() == kernel.frozen()


def variable_offset(a, n):
    return a[n]


def mixed(a):
    return a[1] + a


def none(a):
    return a + 1


def axes(a, b):
    return a[1] + b[0, 1]


def stores(a):
    a[1] = 2
    return a[1]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variable_offset, r"test_stencil.py:\d+: stencil variable_offset uses a\[n\]"),
        (mixed, "uses a with and without an offset"),
        (none, "reads no neighbours"),
        (axes, r"offsets of \[1, 2\] axes"),
        (stores, "neighbours are only read"),
        (eval("lambda a: a[1]"), "source of stencil <lambda> was not found"),
    ],
)
def test_refused(function: Any, reason: str) -> None:
    with pytest.raises(KernelError, match=reason):
        gpusched.kernel.stencil()(function)


def test_a_documented_one_with_functions_inside() -> None:
    half = 0.5

    @gpusched.kernel.stencil("nearest")
    def mean(a: np.ndarray) -> float:
        """Return the mean
        of two neighbours.
        """

        def scaled(value):
            return value * half

        return scaled(a[-1] + a[1])

    assert mean(np.arange(4.0)).tolist() == [0.5, 1, 2, 2.5]
    assert mean.__doc__.startswith("Return the mean")


def test_a_source_that_has_changed_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    text = "def f(a):\n    return a[1] - a[-1]\n"
    path.write_text(text)
    scope: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), scope)
    kernel = gpusched.kernel.stencil()(scope["f"])
    assert kernel(np.arange(4)).tolist() == [1, 2, 2, 1]
    path.write_text(text.replace("-", "+", 1))
    linecache.checkcache(str(path))
    with pytest.raises(KernelError, match="has changed since it was run"):
        gpusched.kernel.stencil()(scope["f"])


def test_refused_arrays() -> None:
    kernel = gpusched.kernel.stencil()(far)
    with pytest.raises(
        KernelError, match=r"offsets of 1 axes; it was given an array of shape \(2, 2\)"
    ):
        kernel(np.ones((2, 2)))
    with pytest.raises(KernelError, match="takes 1 arguments; 2 were given"):
        kernel(np.ones(2), 1)
    with pytest.raises(KernelError, match="boundary 'other'"):
        gpusched.kernel.stencil("other")(far)


def test_errors_have_the_users_line() -> None:
    @gpusched.kernel.stencil()
    def wrong(a):
        left = a[-1]
        return left.nothing + a[1]

    with pytest.raises(KernelError, match=r"test_stencil.py:\d+: .*nothing") as caught:
        wrong(np.ones(3))
    assert "return left.nothing + a[1]" in str(caught.value)


@gpusched.kernel.stencil(boundary="nearest")
def root_of_a_neighbour(a):
    return math.sqrt(a[-1]) + a[1]


def test_modules_that_the_file_imports() -> None:
    """Python calls what a file imports in its own way, by which its text is known again."""
    np.testing.assert_array_equal(root_of_a_neighbour(np.array([4.0, 9.0])), [11, 11])
