"""Results of users' functions with views have NumPy's strides, whatever they are views of."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.tiers import exhaustive

CALLS = [
    "x[1:-1]", "x[:, 1:-1]", "x[::2]", "x[::-1]", "x.T", "x[:, None, :]", "x[:1]", "x + 1",
    "x * x", "np.sqrt(abs(x))", "x.sum(axis=0, keepdims=True)", "np.swapaxes(x, 0, -1)",
    "np.broadcast_to(x[:1], x.shape)", "x.reshape(-1)", "np.cumsum(x, axis=0)", "x.mean(axis=-1)",
    "np.where(x > 0.5, x, 0)", "x.ravel()", "np.moveaxis(x, 0, -1)",
]  # fmt: skip
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "backwards": lambda x: x[::-1],
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
}


def function(choose: random.Random) -> tuple[Callable[[Any], Any], str]:
    """Return a function of an array, of some of these calls, and its source."""
    lines, values = ["def some(v0):"], [np.ones((12, 9))]
    for _ in range(choose.randint(2, 6)):
        number, call = choose.randrange(len(values)), choose.choice(CALLS)
        try:
            value = eval(call, {"x": values[number], "np": np})
        except (ValueError, IndexError):  # An array of other axes.
            continue
        if value.ndim and value.size:
            lines.append(f"    v{len(values)} = " + re.sub(r"\bx\b", f"v{number}", call))
            values.append(value)
    last = len(values) - 1
    other = choose.choice([k for k, v in enumerate(values) if v.shape == values[last].shape])
    ends = f"v{last} * 2 + v{other}", f"v{last} + 0", f"v{last}"
    source = "\n".join([*lines, "    return " + choose.choice(ends)])
    names: dict[str, Any] = {"np": np}
    exec(source, names)
    return names["some"], source


def computed(some: Callable[[Any], Any], array: np.ndarray, before: bool) -> np.ndarray:
    """Return the one chunk of a dask array that a function makes of an array."""
    chunks = tuple((n,) for n in array.shape)
    x = da.Array({("data", 0, 0): array}, "data", chunks, array.dtype)
    given, expected = (x * 1.5 if before else x), some(array)
    axes = {} if expected.ndim == 2 else {
        "drop_axis": [0, 1], "new_axis": list(range(expected.ndim))
    }  # fmt: skip
    chunks = tuple((n,) for n in expected.shape)
    found = given.map_blocks(some, dtype=expected.dtype, chunks=chunks, **axes)
    (kept,) = dask.persist(found, scheduler="sync")
    (chunk,) = dict(kept.dask).values()
    return getattr(chunk, "value", chunk)


@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("seed", [1248, 100275, 100282, *exhaustive(*range(200))])
def test_strides_are_numpy_s(seed: int) -> None:
    choose = random.Random(seed)
    some, source = function(choose)
    make = LAYOUTS[choose.choice([*LAYOUTS])]
    array, before = make(np.random.default_rng(seed).random((12, 9))), choose.random() < 0.5
    found = computed(some, array, before)
    with gpusched.disable():
        expected = computed(some, array, before)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (found.strides, found.dtype, found.flags.writeable) == (
        expected.strides, expected.dtype, expected.flags.writeable,
    ), source  # fmt: skip


def test_a_view_of_what_was_computed_is_a_view() -> None:
    def every_other(x: Any) -> Any:
        return (x + 1)[::2]

    def turned(x: Any) -> Any:
        return np.cumsum(x[:1], axis=0).T

    for some in every_other, turned:
        array = np.random.default_rng(0).random((12, 9))
        settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.minimum-operations": 0}
        with dask.config.set(settings), gpusched.enable():
            found = computed(some, array, before=False)
        assert found.strides == some(array).strides
