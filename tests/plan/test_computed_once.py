"""What a kernel would compute again for each row is computed once, where that takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.emit.floatingpoint import DIVIDE, OVERFLOW, take
from gpusched.emit.policy import REPEATS, WORTHWHILE
from tests.record.recording import check, record
from tests.tiers import exhaustive

ROWS, COLUMNS = 512, 256
X = np.random.default_rng(0).random((ROWS, COLUMNS)) + 0.5
ROW, COLUMN, ONE = X[0], X[:, :1], np.asarray(X[0, 0])
assert X.size >= WORTHWHILE and ROWS >= REPEATS and COLUMNS >= REPEATS


def sizes(function: Callable[..., Any], *arrays: np.ndarray, ulp: int = 8) -> list[tuple[int, ...]]:
    """Return the shape that each kernel writes, after checking what it computes."""
    return [launch.outputs[0].result_shape for launch in check(function, *arrays, ulp=ulp).launches]


@pytest.mark.parametrize(
    ("function", "operand", "first"),
    [
        (lambda x, r: x / np.sqrt(r + 1), ROW, (COLUMNS,)),
        (lambda x, r: x * np.exp(r) * 2, ROW, (COLUMNS,)),
        (lambda x, r: (x - 1 / r) ** 2, ROW[None], (1, COLUMNS)),
        (lambda x, r: x * (np.log(r + 2) * 3 + 1), ROW, (COLUMNS,)),
    ],
)
def test_operands_that_take_long_are_computed_once(
    function: Callable[..., Any], operand: np.ndarray, first: tuple[int, ...]
) -> None:
    assert sizes(function, X, operand) == [first, (ROWS, COLUMNS)]


def test_axes_between_others_and_in_other_orders() -> None:
    """What is the same along the innermost loops is computed outside of these, once or not."""
    cube = X.reshape(64, 8, 256)
    row, plane = cube[:1, :, :1], cube[:, :1, :1]
    short = X.reshape(8192, 8, 2)
    assert sizes(lambda x, r: x * np.exp(r), short, row) == [(1, 8, 1), short.shape]
    assert sizes(lambda x, r: x * np.exp(r), cube, row) == [cube.shape]  # 512 times in all
    assert sizes(lambda x, r: x * np.exp(r), cube, plane) == [cube.shape]
    assert sizes(lambda x, r: x * np.exp(r), cube.transpose(2, 1, 0), row) == [(256, 8, 64)]
    assert sizes(lambda x, r: x * np.exp(r), X.T.copy().T, COLUMN) == [(ROWS, 1), (ROWS, COLUMNS)]
    assert sizes(lambda x, r: x * np.exp(r), X.T.copy().T, ROW) == [(ROWS, COLUMNS)]


@pytest.mark.parametrize("axis", [0, 1])
def test_deviations_of_windows_divide_once_a_window(axis: int) -> None:
    def deviation(x: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, 20, axis)
        mean = np.sum(windows, axis=-1, keepdims=True) / 20
        return np.sum((windows - mean) ** 2, axis=-1)

    found = check(deviation, X, ulp=64)
    assert [len(launch.kernel.kernel.statements) for launch in found.launches] == [0, 1, 2]


@pytest.mark.parametrize(
    ("function", "operand"),
    [
        (lambda x, r: x / (r + 1) * 2, ROW),
        (lambda x, r: x * (r * 2 - 1), ROW),
        (lambda x, r: x * np.exp(r), ONE),
        (lambda x, r: x * np.tanh(r), COLUMN),
        (lambda x, r: np.exp(x * r) / 2, ROW),
        (lambda x, r: (x - r) / np.sqrt(x * r), X[::-1]),
    ],
)
def test_all_else_is_one_kernel(function: Callable[..., Any], operand: np.ndarray) -> None:
    assert sizes(function, X, operand) == [(ROWS, COLUMNS)]


def test_few_elements_are_one_kernel() -> None:
    assert sizes(lambda x, r: x / np.sqrt(r), X[: REPEATS // 2], ROW) == [(8, COLUMNS)]
    few = X[: REPEATS - 1].repeat(WORTHWHILE // 1024, axis=1)
    assert len(sizes(lambda x, r: x / np.sqrt(r), few, few[0])) == 1


def test_shared_operands_are_computed_once_for_all() -> None:
    def function(x: Any, r: Any) -> tuple[Any, Any]:
        root = np.sqrt(r)
        return x / root, x * root + np.exp(root)

    assert sizes(function, X, ROW) == [(COLUMNS,), (ROWS, COLUMNS)]
    assert len(record(function, X, ROW).launches[0].outputs) == 2


@pytest.mark.parametrize(("axis", "statements"), [(0, [0, 1, 2]), (1, [0, 3])])
def test_deviations_of_columns_divide_once_a_column(axis: int, statements: list[int]) -> None:
    def deviation(x: Any) -> Any:
        mean = np.sum(x, axis=axis, keepdims=True) / x.shape[axis]
        return np.sum((x - mean) ** 2, axis=axis)

    found = check(deviation, X, ulp=64)
    assert [len(launch.kernel.kernel.statements) for launch in found.launches] == statements


@pytest.mark.parametrize("backend", ["cpu", *exhaustive("python")])
def test_reductions_of_what_is_computed_once(backend: str) -> None:
    def function(x: Any, r: Any) -> tuple[Any, Any]:
        scaled = x / np.sqrt(r)
        return scaled.max(axis=0), np.sqrt(r).max()

    check(function, X, ROW, backend=backend, ulp=2)


def test_errors_are_noted() -> None:
    take()
    record(lambda x, r: x * (1 / r), X, np.zeros(COLUMNS))
    assert take() & DIVIDE


def test_of_a_sum_in_two_steps_the_first_is_not_computed() -> None:
    """dask joins the parts of an axis, also where there is one."""

    def twice(a: Any) -> Any:
        return a.sum(axis=0, keepdims=True).sum(axis=0), np.sort(a.sum(axis=0, keepdims=True))

    # NumPy's own sums of columns are 7 units from the exact ones, a GPU's are one.
    assert sorted(sizes(twice, X, ulp=16)) == [(1, COLUMNS), (COLUMNS,)]
    (launch,) = record(lambda a: a.sum(axis=1, keepdims=True).sum(axis=1), X).launches
    assert [output.result_shape for output in launch.outputs] == [(ROWS,)]


def test_floating_point_errors_are_noted_whatever_waits() -> None:
    def product(a: Any) -> tuple[Any, Any]:
        a.sum(axis=1, keepdims=True)
        return (a * a).prod(axis=1, keepdims=True), a.prod(axis=1, keepdims=True)

    take()
    record(product, np.full((4, 8), 1e30, "float32"))
    assert take() & OVERFLOW
