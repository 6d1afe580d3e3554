"""The same results as torch's, on chunks of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched import ops

torch = pytest.importorskip("torch", reason="torch comes with the extra models-test")
functional = torch.nn.functional

TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-5}, "float64": {"rtol": 1e-11, "atol": 1e-12}}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e4, -1e4, 1e-30])


def data(seed: int, *shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def chunked(x: np.ndarray, draw: Callable[..., Any]) -> da.Array:
    return da.from_array(x, chunks=tuple(draw(st.integers(1, max(1, n))) for n in x.shape))


def check(found: Any, expected: Any, dtype: str) -> None:
    assert found.dtype == dtype
    assert found.shape == tuple(expected.shape)
    with gpusched.enable():
        computed = found.compute() if isinstance(found, da.Array) else found
    np.testing.assert_allclose(computed, expected.numpy(), **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (ops.relu, functional.relu),
        (ops.sigmoid, torch.sigmoid),
        (ops.silu, functional.silu),
        (ops.gelu, functional.gelu),
        (
            lambda x: ops.gelu(x, "tanh"),
            lambda x: functional.gelu(x, approximate="tanh"),
        ),
    ],
    ids=["relu", "sigmoid", "silu", "gelu", "gelu-tanh"],
)
def test_activations(mine: Any, theirs: Any, dtype: str) -> None:
    x = np.concatenate([SPECIAL, data(0, 1000) * 10]).astype(dtype)
    if mine is ops.gelu:
        # torch's has NaN there, or not, by the length of the array.
        x = x[~np.isinf(x)]
    expected = theirs(torch.tensor(x))
    with np.errstate(invalid="ignore"):
        check(mine(x), expected, dtype)
        check(mine(da.from_array(x, chunks=300)), expected, dtype)


@given(st.data(), st.sampled_from(list(TOLERANCE)), st.integers(0, 2))
def test_softmax(draw: Any, dtype: str, axis: int) -> None:
    values = data(axis, 4, 7, 5, dtype=dtype) * 100
    x, theirs = chunked(values, draw.draw), torch.tensor(values)
    check(ops.softmax(x, axis), theirs.softmax(axis), dtype)
    check(ops.log_softmax(x, axis), theirs.log_softmax(axis), dtype)


@given(st.data(), st.sampled_from(list(TOLERANCE)), st.integers(1, 2))
def test_layer_norm(draw: Any, dtype: str, ndim: int) -> None:
    values = data(ndim, 3, 6, 5, dtype=dtype) + 3
    shape = values.shape[-ndim:]
    weight, bias = data(7, *shape, dtype=dtype), data(8, *shape, dtype=dtype)
    found = ops.layer_norm(chunked(values, draw.draw), tuple(range(-ndim, 0)), weight, bias)
    theirs = functional.layer_norm(
        torch.tensor(values), shape, torch.tensor(weight), torch.tensor(bias)
    )
    check(found, theirs, dtype)


@given(st.data(), st.sampled_from(list(TOLERANCE)), st.booleans())
def test_batch_norm(draw: Any, dtype: str, training: bool) -> None:
    values = data(1, 8, 3, 5, dtype=dtype) * 2 + 1
    mean, bias, weight = (data(k, 3, dtype=dtype) for k in range(3))
    variance = mean**2 + 1
    told = (None, None) if training else (mean, variance)
    found = ops.batch_norm(chunked(values, draw.draw), *told, weight, bias)
    theirs = functional.batch_norm(
        torch.tensor(values), *(torch.tensor(v) for v in (mean, variance, weight, bias)), training
    )
    check(found, theirs, dtype)


@given(st.data(), st.integers(1, 3), st.sampled_from(list(TOLERANCE)))
def test_convolutions(draw: Any, ndim: int, dtype: str) -> None:
    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw.draw(st.integers(low, high)) for _ in range(ndim))

    size, stride, padding, dilation = numbers(1, 3), numbers(1, 3), numbers(0, 3), numbers(1, 2)
    groups = draw.draw(st.sampled_from([1, 2]))
    values = data(3, 2, 4, *numbers(6, 11), dtype=dtype)
    weight, bias = data(4, 6, 4 // groups, *size, dtype=dtype), data(5, 6, dtype=dtype)
    told = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    expected = getattr(functional, f"conv{ndim}d")(
        *(torch.tensor(v) for v in (values, weight, bias)), **told
    )
    convolve = getattr(ops, f"conv{ndim}d")
    check(convolve(chunked(values, draw.draw), weight, bias, **told), expected, dtype)
    check(convolve(values, weight, bias, **told), expected, dtype)
    lazy = da.from_array(weight, chunks=2)
    check(convolve(chunked(values, draw.draw), lazy, bias, **told), expected, dtype)


@given(st.data(), st.integers(1, 3), st.sampled_from(list(TOLERANCE)))
def test_pooling(draw: Any, ndim: int, dtype: str) -> None:
    size = draw.draw(st.integers(1, 3))
    stride, padding = draw.draw(st.integers(1, 3)), draw.draw(st.integers(0, size // 2))
    values = data(9, 2, 3, *(draw.draw(st.integers(4, 9)) for _ in range(ndim)), dtype=dtype)
    x, theirs = chunked(values, draw.draw), torch.tensor(values)
    for name in ("max", "avg"):
        expected = getattr(functional, f"{name}_pool{ndim}d")(theirs, size, stride, padding)
        pool = getattr(ops, f"{name}_pool")
        check(pool(x, size, stride, padding), expected, dtype)
        check(pool(values, size, stride, padding), expected, dtype)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "silu", "gelu", None])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_linear(activation: str | None, dtype: str) -> None:
    values, weight, bias = (data(k, *shape, dtype=dtype) for k, shape in enumerate(
        [(3, 10, 8), (5, 8), (5,)]))  # fmt: skip
    y = functional.linear(*(torch.tensor(v) for v in (values, weight, bias)))
    if activation is not None:
        y = {"sigmoid": torch.sigmoid}.get(activation, getattr(functional, activation))(y)
    check(ops.linear(da.from_array(values, chunks=(2, 4, 3)), weight, bias, activation), y, dtype)
    check(ops.linear(values, weight, bias, activation), y, dtype)


@given(st.data(), st.sampled_from(["lstm", "gru"]), st.booleans(), st.booleans())
def test_recurrent(draw: Any, kind: str, biased: bool, first: bool) -> None:
    rows, times, inputs, units = 5, 7, 3, 4
    layer = getattr(torch.nn, kind.upper())(inputs, units, bias=biased, batch_first=True).double()
    weights = [w.detach().numpy() for w in layer.parameters()]
    values, states = data(2, rows, times, inputs), data(3, 2, rows, units)
    tensors = [torch.tensor(state[None]) for state in states]
    known: Any = (tensors[0], tensors[1]) if kind == "lstm" else tensors[0]
    with torch.no_grad():
        expected, last = layer(torch.tensor(values), known if first else None)
    told: Any = (states[0], states[1]) if kind == "lstm" else states[0]
    found, ended = getattr(ops, kind)(
        chunked(values, draw.draw), *weights, state=told if first else None
    )
    check(found, expected, "float64")
    for mine, theirs in zip(
        ended if kind == "lstm" else [ended], last if kind == "lstm" else [last], strict=True
    ):
        check(mine, theirs[0], "float64")
