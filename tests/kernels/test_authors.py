"""What authors of kernels write without thinking of it, and what they are told of mistakes."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numba import cuda

import gpusched
from gpusched.kernels import KernelError

X = np.arange(6.0)
REACH = 2
OFFSETS = ((0, -1), (1, 0))


def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def scaled(x, scale=2.0, shift=0.0):
    return x * scale + shift


def difference(a, step=1.0):
    return (a[1] - a[-1]) / step


@pytest.mark.parametrize("make", [gpusched.kernel.raw, gpusched.kernel.raw()])
def test_raw_kernels_with_and_without_parentheses(make: Any) -> None:
    x = X.copy()
    make(add_one)[1, 8](x)
    np.testing.assert_array_equal(x, X + 1)


@pytest.mark.parametrize("make", [gpusched.kernel, gpusched.kernel()])
def test_arguments_by_name(make: Any) -> None:
    kernel = make(scaled)
    np.testing.assert_array_equal(kernel(X, shift=1.0), X * 2 + 1)
    x = da.from_array(X, chunks=3)
    np.testing.assert_array_equal(kernel(x=x, scale=3.0).compute(), X * 3)
    with pytest.raises(KernelError, match=rf"^{__file__}:\d+: kernel scaled: .*'factor'"):
        kernel(X, factor=2.0)
    with pytest.raises(KernelError, match="missing a required argument: 'x'"):
        kernel(scale=2.0)


@pytest.mark.parametrize("make", [gpusched.kernel.stencil, gpusched.kernel.stencil()])
def test_arguments_of_stencils_by_name(make: Any) -> None:
    kernel = make(difference)
    np.testing.assert_array_equal(kernel(X, step=2.0), kernel(X) / 2)


def test_windows_are_as_wide_as_a_number_from_outside_says() -> None:
    @gpusched.kernel.stencil(boundary="nearest")
    def mean(a):
        total = 0.0
        for k in range(-REACH, REACH + 1):
            total += a[k]
        return total / (2 * REACH + 1)

    @gpusched.kernel.stencil(boundary=0)
    def neighbours(a):
        total = 0.0
        for i, j in OFFSETS:
            total += a[i, j]
        return total

    padded = np.pad(X, REACH, "edge")
    expected = [padded[k : k + 5].mean() for k in range(6)]
    np.testing.assert_allclose(mean(X), expected)
    table = np.arange(12.0).reshape(3, 4)
    outside = np.pad(table, 1)
    np.testing.assert_array_equal(neighbours(table), outside[1:-1, :-2] + outside[2:, 1:-1])


def test_raw_kernel_that_is_called_says_how_it_is_launched() -> None:
    with pytest.raises(KernelError, match=r"launch as add_one\[blocks, threads\]"):
        gpusched.kernel.raw(add_one)(X)


def missing_name(x):
    x[cuda.grid(1)] += nothing_of_that_name  # noqa: F821


def missing_attribute(x):
    x[cuda.grid(1)] = x[0].nothing_of_that_name


@pytest.mark.parametrize("function", [missing_name, missing_attribute])
@pytest.mark.parametrize("simulated", [True, False])
def test_mistakes_in_raw_kernels_name_the_line(function: Any, simulated: bool) -> None:
    pytest.importorskip("greenlet")
    kernel = gpusched.kernel.raw(function)
    launch = kernel.simulate(1, 4) if simulated else kernel[1, 4]
    with pytest.raises(KernelError) as caught:
        launch(X.copy())
    line = function.__code__.co_firstlineno + 1
    assert str(caught.value).startswith(f"{__file__}:{line}: kernel {function.__name__} fails: ")
    assert "nothing_of_that_name" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "not None$"), ({}, "not dict$"), (np.ma.array([1.0]), r"not numpy\.ma\.\S+$")],
)
def test_what_no_kernel_takes_is_named_as_it_is_written(value: Any, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        gpusched.kernel(scaled)(value)


@pytest.mark.parametrize("form", ["", ".reduction", ".scan", ".stencil", ".raw"])
def test_errors_of_decorators_have_the_names_that_users_write(form: str) -> None:
    decorator = attrgetter(f"kernel{form}")(gpusched)
    with pytest.raises(
        TypeError, match=rf"^kernel{form}\(\) got an unexpected .* 'nothing_of_that_name'"
    ):
        decorator(nothing_of_that_name=0)
