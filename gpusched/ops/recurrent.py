"""Recurrent layers over time: chunks of rows side by side, chunks of time one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.delayed import delayed

from gpusched.ops.activations import sigmoid
from gpusched.ops.chunks import as_weight, check_shape, floating, like, parameter, whole

State = tuple[Any, ...]
Cell = Callable[[Any, Any, State, int], State]


def lstm(
    x: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    state: tuple[Any, Any] | None = None,
) -> tuple[Any, tuple[Any, Any]]:
    """Run a long short-term memory over time.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        Of shape (rows, times, inputs), float32 or float64; integers become one of them. Chunks of
        rows run side by side, chunks of times one after the other; inputs are brought into one
        chunk.
    weight_ih, weight_hh : array_like
        Of shapes (4 * units, inputs) and (4 * units, units), for the input, forget, cell and
        output gates in this order, as torch has them.
    bias_ih, bias_hh : array_like, optional
        Of shape (4 * units,).
    state : tuple of array_like, optional
        The hidden and the cell state at first, of shape (rows, units) each; zeros if not given.

    Returns
    -------
    y : array
        The hidden states at all times, of shape (rows, times, units).
    state : tuple of arrays
        The hidden and the cell state at last, of shape (rows, units) each.

    Raises
    ------
    ValueError
        If shapes do not match.
    TypeError
        If `x` is of no real dtype.

    References
    ----------
    Hochreiter, Schmidhuber: Long short-term memory. Neural Computation 9 (1997) 1735-1780.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from gpusched import ops
    >>> x = da.ones((6, 10, 3), chunks=(2, 5, 3))
    >>> y, (hidden, cell) = ops.lstm(x, np.ones((8, 3)), np.ones((8, 2)))
    >>> y.shape, hidden.shape, bool((y[:, -1] == hidden).all().compute())
    ((6, 10, 2), (6, 2), True)
    """
    first = (None, None) if state is None else state
    y, (hidden, cell) = _recur(_lstm_step, 4, x, weight_ih, weight_hh, bias_ih, bias_hh, first)
    return y, (hidden, cell)


def gru(
    x: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    state: Any = None,
) -> tuple[Any, Any]:
    """Run gated recurrent units over time.

    Parameters
    ----------
    x : numpy.ndarray, cupy.ndarray or dask.array.Array
        As of :func:`lstm`.
    weight_ih, weight_hh : array_like
        Of shapes (3 * units, inputs) and (3 * units, units), for the reset, update and new gates
        in this order, as torch has them.
    bias_ih, bias_hh : array_like, optional
        Of shape (3 * units,).
    state : array_like, optional
        At first, of shape (rows, units); zeros if not given.

    Returns
    -------
    y : array
        The states at all times, of shape (rows, times, units).
    state : array
        The one at last, of shape (rows, units).

    Raises
    ------
    ValueError
        If shapes do not match.
    TypeError
        If `x` is of no real dtype.

    References
    ----------
    Cho et al.: Learning phrase representations using RNN encoder-decoder. arXiv:1406.1078; with
    the reset gate after the product, as cuDNN and torch have it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched import ops
    >>> y, state = ops.gru(np.ones((6, 10, 3)), np.ones((6, 3)), np.ones((6, 2)))
    >>> y.shape, state.shape
    ((6, 10, 2), (6, 2))
    """
    y, (hidden,) = _recur(_gru_step, 3, x, weight_ih, weight_hh, bias_ih, bias_hh, (state,))
    return y, hidden


def _recur(
    step: Cell, gates: int, x: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any,
    state: State,
) -> tuple[Any, State]:  # fmt: skip
    """Run steps over an array's chunks, or over the whole of one that has none."""
    x = floating(x)
    weights = tuple(map(as_weight, (weight_ih, weight_hh, bias_ih, bias_hh)))
    state = tuple(map(as_weight, state))
    units = _check(gates, x, weights, state)
    if not isinstance(x, da.Array):
        return _over_time(step, x, weights, state)
    x = whole(x, 2)
    kept = [None if weight is None else parameter(weight) for weight in weights]
    rows = [
        _rows(x, place, kept, _part(state, x, place), step, units)
        for place in range(len(x.chunks[0]))
    ]
    ys, lasts = zip(*rows, strict=True)
    return da.concatenate(ys), tuple(map(da.concatenate, zip(*lasts, strict=True)))


def _rows(
    x: da.Array, place: int, weights: list[Any], state: State, step: Cell, units: int
) -> tuple[da.Array, tuple[da.Array, ...]]:
    """Run one chunk of rows through all chunks of times."""
    rows, dtype, meta = x.chunks[0][place], x.dtype, meta_from_array(x)
    run, kept = delayed(_over_time, nout=2, pure=True), len(state)
    known: Any = state
    ys = []
    for time, block in enumerate(x.blocks[place].to_delayed().ravel()):
        y, known = run(step, block, weights, known)
        shape = (rows, x.chunks[1][time], units)
        ys.append(da.from_delayed(y, shape, dtype, meta=meta))
    last = [
        da.from_delayed(known[i], (rows, units), dtype, meta=meta.reshape(0, 0))
        for i in range(kept)
    ]
    return da.concatenate(ys, axis=1), tuple(last)


def _part(state: State, x: da.Array, place: int) -> State:
    """Return the rows of a state that belong to one chunk of rows."""
    ends = np.cumsum(x.chunks[0])
    rows = slice(int(ends[place] - x.chunks[0][place]), int(ends[place]))
    return tuple(None if part is None else parameter(part[rows]) for part in state)


def _over_time(step: Cell, x: Any, weights: Any, state: State) -> tuple[Any, State]:
    """Run steps one after the other; the products of all inputs are one."""
    weight_ih, weight_hh = (like(weight, x) for weight in weights[:2])
    bias_ih, bias_hh = (0 if bias is None else like(bias, x) for bias in weights[2:])
    units = weight_hh.shape[1]
    y = np.empty_like(x, shape=(*x.shape[:2], units))
    zeros = np.zeros_like(x, shape=(x.shape[0], units))
    state = tuple(zeros if part is None else like(part, x) for part in state)
    given = x @ weight_ih.T + bias_ih
    for time in range(x.shape[1]):
        recurrent = state[0] @ weight_hh.T + bias_hh
        state = step(given[:, time], recurrent, state, units)
        y[:, time] = state[0]
    return y, state


def _lstm_step(given: Any, recurrent: Any, state: State, units: int) -> State:
    gates = given + recurrent
    opened = sigmoid(gates)
    entry, forget, leave = (opened[:, i * units : (i + 1) * units] for i in (0, 1, 3))
    cell = forget * state[1] + entry * np.tanh(gates[:, 2 * units : 3 * units])
    return leave * np.tanh(cell), cell


def _gru_step(given: Any, recurrent: Any, state: State, units: int) -> State:
    opened = sigmoid(given[:, : 2 * units] + recurrent[:, : 2 * units])
    reset, update = opened[:, :units], opened[:, units:]
    new = np.tanh(given[:, 2 * units :] + reset * recurrent[:, 2 * units :])
    return ((1 - update) * new + update * state[0],)


def _check(gates: int, x: Any, weights: tuple[Any, ...], state: State) -> int:
    """Refuse what does not match, and return the number of units."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    if x.ndim != 3:
        raise ValueError(f"x has shape {x.shape}, but is (rows, times, inputs)")
    units = weight_hh.shape[-1]
    why = f"x of shape {x.shape} and {units} units"
    check_shape("weight_ih", weight_ih, (gates * units, x.shape[2]), why)
    check_shape("weight_hh", weight_hh, (gates * units, units), why)
    for name, bias in (("bias_ih", bias_ih), ("bias_hh", bias_hh)):
        if bias is not None:
            check_shape(name, bias, (gates * units,), why)
    for part in state:
        if part is not None:
            check_shape("state", part, (x.shape[0], units), why)
    return int(units)
