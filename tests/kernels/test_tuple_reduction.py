"""Reductions of tuples: a maximum and where it is, a mean and how many."""

from __future__ import annotations

import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.kernels import KernelError, tuple_reduction

X = np.random.default_rng(0).normal(size=(7, 5, 6))
PLACES = np.arange(5)[:, None]


@gpusched.kernel.reduction(identity=(-math.inf, -1))
def largest(a, b):
    return a if a[0] >= b[0] else b


@gpusched.kernel.reduction(identity=(0.0, 0), value=lambda x: (x, 1))
def mean_and_count(a, b):
    count = a[1] + b[1]
    if count == 0:
        return a
    return (a[0] * a[1] + b[0] * b[1]) / count, count


@pytest.mark.parametrize("keepdims", [False, True])
def test_maximum_and_where_it_is(keepdims: bool) -> None:
    highest, where = largest(X, PLACES, axis=1, keepdims=keepdims)
    np.testing.assert_array_equal(highest, X.max(1, keepdims=keepdims))
    np.testing.assert_array_equal(where, X.argmax(1, keepdims=keepdims))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("fused", [True, False])
def test_chunks_are_joined(axis: Any, fused: bool) -> None:
    x = da.from_array(X, chunks=(3, 2, 4))
    with gpusched.enable() if fused else gpusched.disable():
        mean, count = mean_and_count(x * 2, axis=axis)
        found = da.compute(mean, count, scheduler="sync")
    expected = np.mean(X * 2, axis=axis)
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_array_equal(found[1], X.size // np.size(expected))
    assert count.dtype == np.int64 and mean.shape == np.shape(expected)


def test_first_of_equal_values_is_found_across_chunks() -> None:
    x = da.ones((12,), chunks=5)
    highest, where = largest(x, da.arange(12, chunks=5))
    assert (int(highest.compute()), int(where.compute())) == (1, 0)


def test_values_are_fused_with_what_makes_their_arguments() -> None:
    x = da.from_array(X, chunks=(7, 5, 6))
    gpusched.reset_statistics()
    with gpusched.enable():
        mean_and_count((x - 1) * 2)[0].compute(scheduler="sync")
    assert gpusched.statistics().launches >= 1


@pytest.mark.parametrize("dtype", [X.dtype, np.dtype("float32")])
def test_no_loop_waits_for_another_one_to_be_compiled(dtype: np.dtype) -> None:
    """Whether it has been compiled before, or is now."""
    x = X.astype(dtype)
    expected = mean_and_count(X)
    other = tuple_reduction.Loop(largest.frozen().combine, (X.dtype, PLACES.dtype))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(mean_and_count(x)), daemon=True)
    with other._compiling:
        thread.start()
        thread.join(30)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_threads_have_a_loop_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def compiled(*made_of: Any) -> Any:
        made.append(made_of)
        return lambda *arrays: None

    monkeypatch.setattr(tuple_reduction, "_compiled", compiled)
    loop = tuple_reduction.Loop(largest.frozen().combine, (X.dtype,))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: loop(), range(16)))
    assert len(made) == 1


def test_numbers_come_out_of_whole_arrays() -> None:
    mean, count = mean_and_count(X)
    assert type(mean) is np.float64 and type(count) is np.int64
    np.testing.assert_allclose(mean, X.mean(), rtol=1e-12)


def test_nothing_to_join_gives_the_identity() -> None:
    highest, where = largest(np.ones((0, 3)), np.zeros((0, 3), int), axis=0)
    np.testing.assert_array_equal(highest, [-np.inf] * 3)
    np.testing.assert_array_equal(where, [-1] * 3)


def test_kernel_can_be_sent() -> None:
    sent = pickle.loads(pickle.dumps(mean_and_count))
    assert sent(X)[1] == X.size


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: a[0] + b[0], "joins tuples of 2 into a single value"),
        (lambda a, b: (a[0], a[1], b[0]), "joins tuples of 2 into a tuple of 3"),
        (lambda a, b: (a[0].nothing, b[1]), "nothing"),
    ],
)
def test_errors_name_the_users_line(function: Any, message: str) -> None:
    kernel = gpusched.kernel.reduction(identity=(0.0, 0))(function)
    with pytest.raises(KernelError, match=message) as caught:
        kernel(X, 1)
    assert f"{__file__}:" in str(caught.value)


def test_wrong_number_of_values_is_an_error() -> None:
    with pytest.raises(KernelError, match=r"joins tuples of 2.*; 1 values were given"):
        largest(X)
    with pytest.raises(KernelError, match="a tuple of numbers, not"):
        gpusched.kernel.reduction(identity=(0, "x"))(lambda a, b: a)


def test_function_that_is_not_associative_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="depends on the order"):
        gpusched.kernel.reduction(identity=(0.0, 0))(lambda a, b: (a[0] - b[0], a[1] + b[1]))
