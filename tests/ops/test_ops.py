"""Chunks give what whole arrays give, fused with what is around; what is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched import ops
from tests.tiers import exhaustive


@pytest.fixture(autouse=True)
def _small_chunks_too() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        yield


RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 6, 8, 8))
ROWS = RANDOM.standard_normal((6, 5, 3))

CASES: dict[str, Any] = {
    "softmax": lambda x: ops.softmax(x, 1),
    "log_softmax": lambda x: ops.log_softmax(x, -1),
    "layer_norm": lambda x: ops.layer_norm(x, (2, 3), np.full((8, 8), 2.0), np.ones((8, 8))),
    "batch_norm": ops.batch_norm,
    "trained batch_norm": lambda x: ops.batch_norm(x, np.ones(6), np.full(6, 2.0)),
    "conv2d": lambda x: ops.conv2d(x, np.ones((2, 6, 3, 3)), np.ones(2), padding=1, stride=2),
    "max_pool": lambda x: ops.max_pool(x, 3, 2, 1),
    "avg_pool": lambda x: ops.avg_pool(x, 2),
    "linear": lambda x: ops.linear(x, np.ones((3, 8)), np.ones(3), "silu"),
    "gelu": ops.gelu,
}


@pytest.mark.parametrize(
    "chunks", [(1, 4, 3, 5), *exhaustive((4, 6, 8, 8), (2, 6, 8, 8), (3, 1, 8, 2))]
)
@pytest.mark.parametrize("name", list(CASES))
def test_chunks_give_what_whole_arrays_give(name: str, chunks: tuple[int, ...]) -> None:
    found = CASES[name](da.from_array(X, chunks=chunks))
    expected = CASES[name](X)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    for fused in (gpusched.enable, gpusched.disable):
        with fused():
            computed = found.compute(scheduler="sync")
        assert computed.shape == expected.shape
        np.testing.assert_allclose(computed, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", list(CASES))
def test_empty_arrays_stay_empty(name: str) -> None:
    found = CASES[name](da.from_array(X[:0], chunks=(4, 6, 8, 8)))
    with np.errstate(invalid="ignore"):
        assert found.compute(scheduler="sync").shape == found.shape
    assert found.shape[0] == 0


def test_softmax_of_an_axis_in_one_chunk_is_one_task_a_chunk() -> None:
    x = da.from_array(X, chunks=(1, 6, 8, 8))
    with gpusched.enable():
        totals = gpusched.explain(ops.softmax(x * 2, 1) + 1).totals
    assert (totals.tasks_after, totals.fused_tasks) == (4, 4)


def test_activation_and_bias_are_one_kernel() -> None:
    x = da.from_array(ROWS.reshape(6, 15), chunks=(3, 15))
    y = ops.linear(x, np.ones((4, 15)), np.ones(4), "sigmoid")
    gpusched.reset_statistics()
    with gpusched.enable():
        y.compute(scheduler="sync")
    (launches,) = gpusched.statistics().kernels.values()
    assert launches == 2


def test_weights_are_in_the_graph_once() -> None:
    x = da.from_array(X, chunks=(1, 6, 4, 4))
    weight = np.ones((2, 6, 3, 3))
    held = [
        key
        for key, task in dict(ops.conv2d(x, weight).__dask_graph__()).items()
        if getattr(task, "value", None) is weight
    ]
    assert len(held) == 1


def test_in_a_cluster() -> None:
    x = da.from_array(X, chunks=(2, 6, 4, 4))
    weights = np.ones((8, 3)), np.ones((8, 2))
    rows = da.from_array(ROWS, chunks=(2, 2, 3))
    with gpusched.local():
        np.testing.assert_allclose(
            ops.conv2d(x, np.ones((2, 6, 3, 3))).compute(), ops.conv2d(X, np.ones((2, 6, 3, 3)))
        )
        y, (hidden, _) = ops.lstm(rows, *weights)
        np.testing.assert_allclose(y.compute(), ops.lstm(ROWS, *weights)[0])
        np.testing.assert_allclose(y[:, -1].compute(), hidden.compute())


def test_weights_may_be_lists() -> None:
    square, ones = np.ones((6, 6, 1, 1)), np.ones(6)
    states = np.ones((8, 3)), np.ones((8, 2)), np.ones(8), np.ones(8)
    for chunks in (X, da.from_array(X, chunks=4)):
        for found, expected in [
            (ops.conv2d(chunks, square.tolist(), ones.tolist()), ops.conv2d(X, square, ones)),
            (ops.linear(chunks, [[1.0] * 8], [2.0]), ops.linear(X, np.ones((1, 8)), np.full(1, 2))),
            (ops.layer_norm(chunks, -1, [2.0] * 8), ops.layer_norm(X, -1, np.full(8, 2.0))),
            (ops.batch_norm(chunks, [1] * 6, [4] * 6), ops.batch_norm(X, ones, 4 * ones)),
        ]:
            np.testing.assert_allclose(np.asarray(found), expected)
    found, _ = ops.lstm(ROWS, *[each.tolist() for each in states])
    np.testing.assert_array_equal(found, ops.lstm(ROWS, *states)[0])


def test_states_may_be_lazy() -> None:
    weights, state = (np.ones((6, 3)), np.ones((6, 2))), RANDOM.standard_normal((6, 2))
    lazy = da.from_array(state, chunks=(4, 1))
    found, _ = ops.gru(da.from_array(ROWS, chunks=(4, 3, 2)), *weights, state=lazy)
    np.testing.assert_allclose(found.compute(), ops.gru(ROWS, *weights, state=state)[0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.gelu(X, "fast"), ValueError, "'fast'"),
        (lambda: ops.softmax(X, 4), np.exceptions.AxisError, "axis 4"),
        (lambda: ops.layer_norm(X, -1, np.ones(3)), ValueError, r"weight has shape \(3,\)"),
        (lambda: ops.batch_norm(X, np.ones(6)), ValueError, "variance is missing"),
        (lambda: ops.batch_norm(X, np.ones(5), np.ones(5)), ValueError, r"needs \(6,\)"),
        (lambda: ops.linear(X, np.ones((3, 7))), ValueError, r"needs \(3, 8\)"),
        (lambda: ops.linear(X, np.ones(8)), ValueError, r"\(outputs, inputs\)"),
        (lambda: ops.linear(X, np.ones((3, 8)), None, "elu"), ValueError, "no activation"),
        (lambda: ops.conv1d(X, np.ones((2, 6, 3))), ValueError, "both have 3 axes"),
        (lambda: ops.conv2d(X, np.ones((2, 5, 3, 3))), ValueError, r"needs \(2, 6, 3, 3\)"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 9, 3))), ValueError, "no window"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 3, 3)), stride=0), ValueError, "stride"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 3, 3)), padding=(1, 2, 3)), ValueError, "padding"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 3, 3)), groups=4), ValueError, "4 groups"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 3, 3), "f4")), TypeError, "weight float32"),
        (lambda: ops.conv2d(X, np.ones((2, 6, 3, 3)), stride=1.5), ValueError, "stride .* not 1.5"),
        (lambda: ops.max_pool(X, np.inf), ValueError, "size is a whole number"),
        (lambda: ops.max_pool(X, None), ValueError, "size is a whole number"),
        (lambda: ops.max_pool(X, 2, padding=2), ValueError, "more than half"),
        (lambda: ops.max_pool(X[0, 0], 2), ValueError, "shape"),
        (lambda: ops.avg_pool(X.astype(int), 2), TypeError, "int64"),
        (lambda: ops.lstm(ROWS, np.ones((8, 3)), np.ones((6, 2))), ValueError, "weight_hh"),
        (lambda: ops.gru(X, np.ones((6, 3)), np.ones((6, 2))), ValueError, "rows, times, inputs"),
    ],
)  # fmt: skip
def test_what_does_not_match_is_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_maxima_of_whole_numbers() -> None:
    x = np.arange(-20, 12, dtype="int8").reshape(1, 2, 4, 4)
    found = ops.max_pool(da.from_array(x, chunks=2), 3, 1, 1)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.compute()[0, :, 0, 0], [-15, 1])


def tanh_gelu(x: Any) -> Any:
    return ops.gelu(x, "tanh")


def lstm(x: Any) -> Any:
    return ops.lstm(x[:, :, None], np.full((8, 1), 0.01), np.full((8, 2), 0.1))[0]


def gru(x: Any) -> Any:
    return ops.gru(x[:, :, None], np.full((6, 1), 0.01), np.full((6, 2), 0.1))[0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "bool"])
@pytest.mark.parametrize(
    "function",
    [ops.sigmoid, ops.silu, ops.gelu, tanh_gelu, ops.softmax, ops.log_softmax, ops.layer_norm,
     ops.batch_norm, lstm, gru],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_integers_give_what_their_values_give(function: Any, dtype: str) -> None:
    x = np.array([[0, 1, 200, 3], [1, 0, 7, 255]]).astype(dtype)
    expected = function(x.astype("float64"))
    for given in (x, da.from_array(x, chunks=(1, 2))):
        found = np.asarray(function(given))
        assert found.dtype == ("float64" if dtype == "int32" else "float32")
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_means_of_bytes_are_taken_away_without_wrapping() -> None:
    x, mean = np.array([[1, 9]], "uint8"), np.array([3, 3], "uint8")
    found = ops.batch_norm(x, mean, np.ones(2, "uint8"), eps=0)
    np.testing.assert_array_equal(found, [[-2, 6]])


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="complex128"):
        ops.sigmoid(np.ones(3, complex))
