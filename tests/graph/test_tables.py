"""Arrays that a function makes of numbers, and indexes by what a chunk holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.tiers import exhaustive

VALUES = np.random.default_rng(7).integers(0, 8, (8, 6)) + 0.25


@pytest.fixture(autouse=True)
def fused(no_plans: None, no_compiler: None) -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        yield


def compared(function: Callable[[Any], Any]) -> None:
    """Compare what a function gives of two chunks with NumPy's, be it an error."""
    x = da.from_array(VALUES, chunks=(4, 6))
    made = x.map_blocks(function, dtype=float, meta=np.ones(()))
    gpusched.reset_statistics()
    for k in range(2):
        try:
            expected = function(VALUES[4 * k : 4 * k + 4].copy())
        except Exception as error:  # noqa: BLE001  whatever NumPy raises
            with pytest.raises(type(error)):
                made.blocks[k].compute(scheduler="sync")
            continue
        found = made.blocks[k].compute(scheduler="sync")
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)


def gamma(x: Any) -> Any:
    table = (np.arange(9) / 8) ** 2.2
    return table[x.astype(np.uint8)] + 1


def changed(x: Any) -> Any:
    table = np.sqrt(np.arange(9))
    table[0] = 7
    return table[x.astype(int)] * 2


def centres(x: Any) -> Any:
    edges = np.linspace(0, 9, 10)
    middle = (edges[1:] + edges[:-1]) / 2
    return middle[np.digitize(x, edges) - 1] * 2


def coloured(x: Any) -> Any:
    palette = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 2, 2]])
    return palette[x.astype(int) % 4].sum(axis=-1) + x


INDEXED: list[Callable[[Any], Any]] = [
    gamma, changed, centres, coloured,
    lambda x: np.linspace(0, 1, 9)[x.astype(int)] * 2,
    lambda x: np.array([0.5, 1, 2, 4, 8, 16, 32, 64.0])[x.astype(int) - 8] * x,
    lambda x: np.eye(8)[x.argmax(axis=1)] + x[:, :1],
    lambda x: np.arange(9.0)[::-1][x.astype("u1")] + 1,
    lambda x: np.eye(8)[x.astype(int), 1] + x,
]  # fmt: skip


@pytest.mark.parametrize("function", INDEXED)
def test_tables_of_its_own_are_part_of_kernels(function: Callable[[Any], Any]) -> None:
    compared(function)
    assert gpusched.statistics().fused_tasks == 2


def over_columns(x: Any) -> Any:
    total = np.zeros(x.shape[0])
    for k in np.arange(3):
        total = total + x[:, k] * np.linspace(0, 1, 3)[k]
    return x - total[:, None]


def on_one_side(x: Any) -> Any:
    places = np.linspace(-1, 1, x.shape[1])
    return (x + places[places > 0].sum()) * np.array([1, 2])[0] - 1


@pytest.mark.parametrize("function", [over_columns, on_one_side])
def test_what_numbers_index_stays_numbers(function: Callable[[Any], Any]) -> None:
    compared(function)
    counts = gpusched.statistics()
    assert counts.launches == counts.fused_tasks == 2
    program = da.from_array(VALUES, chunks=(4, 6)).map_blocks(function, dtype=float)
    assert gpusched.explain(program).totals.launches == 2


def test_places_beyond_a_table_raise_numpys_error() -> None:
    compared(lambda x: np.arange(5.0)[x.astype(int)] + 1)


TABLES = [
    "np.arange({n})",
    "np.linspace(0, 2, {n})",
    "np.array([1, 2.5, 0, 4, 3, 9, 8, 7, 6])",
    "np.eye({n})",
    "np.zeros({n})",
    "np.array([[1, 2], [3, 4], [5, 6]])",
    "x[0] * 1",
    "np.array([x[0, 0], 1.0, 2.0])",
    "np.identity({n})[1]",
    "np.array(9)",
]
CHANGES = [
    "t = t * 2 + 1",
    "t[0] = 5",
    "t[1:] += 1",
    "t = np.sqrt(t)",
    "t = t[::-1]",
    "t = t.copy()",
    "t = -t",
    "u = t; u += 1",
    "t = np.cumsum(t)",
    "t = t.astype('f4')",
    "t = t + x[0, 0]",
    "t = np.sort(t)",
    "t[t > 2] = 2",
    "t = t[1:]",
    "t = np.where(t > 1, t, 0)",
    "t = t.T",
    "t = np.stack([t, t])",
    "u = t[:2]; u[...] = 3",
    "s = [1, 2]; s.append(x[0, 0]); t = np.array(s)",
    "t = np.array(t.tolist())",
    "t = t if len(t) > 3 else t + 1",
]
USES = [
    "t[x.astype(int)]",
    "t[x.astype('u1') % 3]",
    "t[(x > 4).astype(int)]",
    "t[x.argmax(axis=1)]",
    "t[x[0].astype(int)]",
    "t[x.astype(int), 0]",
    "t[x.astype(int) - 8]",
    "t[int(2)]",
    "t[x > 3]",
    "t[t > 1]",
    "sum(t[k] for k in range(2))",
    "t[np.digitize(x, t) - 1]",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1, *exhaustive(*range(2, 30))])
def test_any_tables(seed: int) -> None:
    draw = Random(seed)
    for _ in range(25):
        lines = [f"t = {draw.choice(TABLES)}", *draw.choices(CHANGES, k=draw.choice([0, 1, 2, 3]))]
        lines.append(f"return {draw.choice(USES)} * 1.0 + {draw.choice(USES)}.sum() + t.sum()")
        text = "def f(x):\n" + "".join(f"    {line}\n" for line in lines)
        space: dict[str, Any] = {"np": np}
        exec(text.replace("{n}", draw.choice(["8", "9", "12"])), space)
        try:
            compared(space["f"])
        except AssertionError as error:
            raise AssertionError(text) from error
