"""How kernels may be written: parentheses, defaults, loops; and what their errors say."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.kernels import KernelError


@gpusched.kernel.stencil(boundary="nearest")
def blurred(a):
    total = 0.0
    for i in range(-1, 2):
        for j in range(-1, 2):
            total += a[i, j]
    return total / 9 + 0 * j


@gpusched.kernel.stencil
def around(a, scale=2.0):
    total = 0.0
    for i, j in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        for _ in range(2):
            total += a[i, 2 * j]
    return total * scale


def windows(values: np.ndarray, mode: str, depth: tuple[int, int]) -> Callable[..., np.ndarray]:
    padded = np.pad(values, [(d, d) for d in depth], mode)
    rows, columns = values.shape

    def at(i: int, j: int) -> np.ndarray:
        top, left = depth[0] + i, depth[1] + j
        return padded[top : top + rows, left : left + columns]

    return at


VALUES = np.random.default_rng(0).random((20, 30))


def expected_around(scale: float) -> np.ndarray:
    at = windows(VALUES, "symmetric", (1, 2))
    return 2 * scale * (at(-1, 0) + at(1, 0) + at(0, -2) + at(0, 2))


def test_loops_over_offsets() -> None:
    at = windows(VALUES, "edge", (1, 1))
    expected = sum(at(i, j) for i in range(-1, 2) for j in range(-1, 2)) / 9
    assert blurred.depth == (1, 1)
    np.testing.assert_allclose(blurred(VALUES), expected)
    lazy = blurred(da.from_array(VALUES, chunks=(7, 11)))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        np.testing.assert_allclose(lazy.compute(scheduler="sync"), expected)
    assert blurred.at((3, 4), VALUES) == pytest.approx(expected[3, 4])


def test_loops_over_tuples_of_offsets_and_defaults() -> None:
    assert around.depth == (1, 2)
    np.testing.assert_allclose(around(VALUES), expected_around(2.0))
    np.testing.assert_allclose(around(VALUES, 3.0), expected_around(3.0))
    sent = pickle.loads(pickle.dumps(around))
    np.testing.assert_allclose(sent(VALUES), expected_around(2.0))
    lazy = around(da.from_array(VALUES, chunks=(7, 11)))
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), expected_around(2.0))


def test_dtypes_of_stencils() -> None:
    @gpusched.kernel.stencil(boundary=0, dtypes="float32")
    def left(a):
        return a[0, -1] * 2

    found = left(VALUES)
    assert found.dtype == np.float32
    lazy = left(da.from_array(VALUES, chunks=10))
    assert lazy.dtype == lazy.compute(scheduler="sync").dtype == np.float32
    assert pickle.loads(pickle.dumps(left))(VALUES).dtype == np.float32


def test_decorators_with_and_without_parentheses() -> None:
    def double(a):
        return a * 2

    def left(a):
        return a[0, -1]

    for decorator in (gpusched.kernel, gpusched.kernel()):
        np.testing.assert_array_equal(decorator(double)(VALUES), VALUES * 2)
    stencils = [gpusched.kernel.stencil(left), gpusched.kernel.stencil()(left)]
    np.testing.assert_array_equal(*[stencil(VALUES) for stencil in stencils])


def test_defaults_of_kernels() -> None:
    @gpusched.kernel
    def scaled(a, scale=2.0, offset=1):
        return a * scale + offset

    np.testing.assert_allclose(scaled(VALUES), VALUES * 2 + 1)
    np.testing.assert_allclose(scaled(VALUES, 3.0), VALUES * 3 + 1)
    lazy = scaled(da.from_array(VALUES, chunks=10))
    with gpusched.enable():
        np.testing.assert_allclose(lazy.compute(scheduler="sync"), VALUES * 2 + 1)
    with pytest.raises(KernelError, match=r"kernel scaled takes 3 arguments; 0 were given"):
        scaled()


def nothing_on_one_path(a):
    if a > 0:
        return a


def string_on_one_path(a):
    return "text" if a > 0 else a


def method_of_an_array(a):
    return a.mean()


def function_of_an_array(a):
    return np.sort(a)


def unknown_name(a):
    return missing(a)  # noqa: F821


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (nothing_on_one_path, "returns float64 on some paths and nothing on others"),
        (string_on_one_path, "the string 'text' on one path and float64 on another"),
        (method_of_an_array, "a float64 has no attribute 'mean'"),
        (function_of_an_array, "sort cannot be called with float64 in a kernel"),
        (unknown_name, "name 'missing' is not defined"),
    ],
)
def test_errors_say_what_is_wrong_in_the_authors_words(function: Any, said: str) -> None:
    with pytest.raises(KernelError) as error:
        gpusched.kernel(function)(VALUES)
    message = str(error.value)
    assert said in message
    assert message.startswith(__file__)
    for word in ("OptionalType", "Literal[", "$phi", "Function(<", "Pass nopython"):
        assert word not in message


@pytest.mark.parametrize("value", [np.add, 3, partial(unknown_name, 1), type("C", (), {})()])
def test_what_no_kernel_is_made_of(value: Any) -> None:
    with pytest.raises(KernelError, match="made of a Python function, not of"):
        gpusched.kernel(value)


def test_what_no_stencil_is_made_of() -> None:
    with pytest.raises(KernelError, match="a stencil is made of a Python function, not of"):
        gpusched.kernel.stencil(np.add)


@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_an_identity_is_asked_for(kind: str) -> None:
    made = getattr(gpusched.kernel, kind)
    for attempt in (lambda: made(unknown_name), made):
        with pytest.raises(KernelError, match=rf"write @gpusched\.kernel\.{kind}\(identity=0\)"):
            attempt()


WIDTH = [1]


def over_a_name(a):
    total = 0.0
    for i in range(-WIDTH[0], WIDTH[0] + 1):
        total += a[i]
    return total


def with_break(a):
    total = 0.0
    for i in range(3):
        if total > 1:
            break
        total += a[i]
    return total


def changing(a):
    total = 0.0
    for i in range(3):
        i = i + 1
        total += a[i]
    return total


def endless(a):
    total = 0.0
    for i in range(1_000_000_000_000_000_000_000):
        total += a[i]
    return total


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (over_a_name, "are not over constants"),
        (with_break, "have break, continue or else"),
        (changing, "assign to their own variable"),
        (endless, "become more than"),
    ],
)
def test_loops_that_cannot_be_written_out(function: Any, said: str) -> None:
    with pytest.raises(KernelError, match=said) as error:
        gpusched.kernel.stencil(function)
    first = function.__code__.co_firstlineno
    line = int(str(error.value).removeprefix(f"{__file__}:").partition(":")[0])
    assert first < line < first + 4


def test_loops_over_numbers_stay_loops() -> None:
    @gpusched.kernel.stencil
    def powers(a, n):
        total = 0.0
        for k in range(n):
            total += a[1] ** k
        return total

    values = np.arange(5.0)
    after = np.append(values[1:], values[-1])
    np.testing.assert_allclose(powers(values, 3), 1 + after + after**2)


def decayed(a, b):
    return a * 0.5 + b


def smallest_distance(a, b):
    return abs(a - b)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (decayed, r"decayed\(1\.0, 2\.0\) is 2\.5 and decayed\(2\.0, 1\.0\) is 2\.0"),
        (smallest_distance, r"smallest_distance\(smallest_distance\(.*\) is .* and "),
    ],
)
def test_reductions_whose_order_matters_are_warned_of(function: Any, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        gpusched.kernel.reduction(identity=0.0)(function)


def test_scans_that_are_not_associative_are_warned_of() -> None:
    said = (
        r"scan decayed depends on where .* chunks, or for the threads of a GPU: "
        r"decayed\(decayed\(1\.0, 2\.0\), 5\.0\) is 6\.25 and decayed\(1\.0, decayed\(.* is 6\.5"
    )
    with pytest.warns(UserWarning, match=said) as caught:
        gpusched.kernel.scan(identity=0.0)(decayed)
    assert caught[0].filename == __file__


def test_scans_need_not_be_commutative() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpusched.kernel.scan(identity=0.0)(lambda a, b: b)


@pytest.mark.parametrize(
    ("identity", "function"),
    [
        (0, lambda a, b: a + b),
        (0, lambda a, b: a ^ b),
        (1.0, lambda a, b: a * b),
        (-np.inf, lambda a, b: max(a, b)),
        (0.0, lambda a, b: (a * a + b * b) ** 0.5 if a >= 0 <= b else 0.0 * a + 1 / 0),
        (False, lambda a, b: a or b),
    ],
)
def test_nothing_is_said_of_other_reductions(identity: Any, function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpusched.kernel.reduction(identity=identity)(function)
