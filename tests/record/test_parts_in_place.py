"""Arrays of a function's own that change in place, and views of them: all show what NumPy's do."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak

VALUES = np.random.default_rng(5).normal(size=(12, 7)).round(1)

RECORDED = [
    "y = b * 2; y[0] += 1",
    "y = b * 2; y[1:] += b[:-1]",
    "y = b.copy(); y[1:-1] *= 2",
    "y = b * 2; y[y > 1] -= 1",
    "y = b.copy(); v = y[1:]; v += 1; y *= v.sum()",
    "y = b * 2; v = y[1:]; w = y[:2]; v += 1; y *= w.sum()",
    "y = b * 2; v = y[1:]; u = v[1:]; u += 1; y += v.sum()",
    "y = b * 2; v = y[1:]; u = v[1:]; del v; u += 1",
    "y = b * 2; v = y[1:]; y += 1; y += v.sum()",
    "y = b * 2; d = np.diff(y, axis=0); y += 1; y += d.sum()",
    "y = np.zeros_like(b); y[1:-1] += b[2:] + b[:-2] - 2 * b[1:-1]; y[0] -= 3; y[:, 0] *= 2",
    "y = b.copy()\nfor _ in range(3): y[1:-1] += 0.1 * (y[2:] - 2 * y[1:-1] + y[:-2])",
    "y = b.copy()\nfor k in range(1, len(b)): y[k] = 0.5 * y[k] + 0.5 * y[k - 1]",
    "y = b * 2\nfor row in y: row *= 2",
    "y = b * 2; v = y[1:]; np.add(v, 1, out=v)",
    "y = b * 2; v = y[1:]; np.copyto(v, 7.0, where=v > 1); v.sort(axis=0); y += v.mean()",
    "s = b.sum(); s += 1; y = b * s",
    "y = b[0] * 2; y[0] += 1; y[1] = y[0]; y = b * y",
    "y = b.copy(); y[y > 0] -= 1; y[0][y[0] < 0] = 5",
    "y = b * 2; v = y[1:]; v[0] = 3; v[1:][0] += 2",
    "y = b * 2; v = y[...]; v += 1; y += 2",
    "y = b * 2; v = y[1:]; y[1:] = v; y[1:] = v + 1; y[:-1] = v",
    "y = b * 2; y[1:] = y[:-1]; y[:, 1:] = y[:, :-1]",
    "y = b * 2; np.add(y[1:], y[:-1], out=y[1:])",
    "y = b * 2; a, c = y[:5], y[5:]; a += 1; c -= a.sum()",
    "y = b * 2; c = np.concatenate([y, y]); y += 1; y += c[:6]",
    "y = b * 2; m = y.max(axis=0); y -= m; y += np.where(y < 0, y, m)",
    "y = b * 2; s = np.sort(y, axis=0); s[0] = 0; y += 1; y += s",
    "y = b.copy(); y[np.isnan(y)] = np.nanmean(y)",
    "m, s = b.mean(0), b.std(0); s[s == 0] = 1; y = (b - m) / s",
    "y = b - b.min(); y /= y.max(); y[y < 0.2] = 0; y[y > 0.8] -= 0.1",
    "y = np.empty_like(b); y[:] = b; y[:] *= 2; v = y[2]; y[0] = v; v += 1",
]
"""What a function does with its chunk `b`; it returns `y`."""

STOPPED = [
    "y = b * 2; v = y.T; y += 1; y += v.T",
    "y = b * 2; v = np.squeeze(y); y += 1; y += v.sum()",
    "y = b * 2; v = np.atleast_2d(y); y += 1; y = v * 1",
    "y = b * 2; v = y.reshape(-1); y += 1; y += v.sum()",
    "y = b * 2; v = y[1:]; t = v.T; v += 1; y += t.sum()",
    "y = b * 2; v = np.broadcast_to(y, (2, *y.shape)); y += 1; y += v.sum(0)",
    "y = b * 2; v = y[::2]; v += 1",
    "y = b * 2; v = np.diagonal(y[:, :6]); y += 1; y += v.sum()",
    "y = b * 2; z = [y]; z[0] += 1",
    "y = b * 2; z = y; z = z[1:]; z = z.T; y[0] = 3; y += z.sum()",
    "y = b; y[0] = 1; y = y + 1",
    "y = b[1:]; y += 1; y = b * 1",
]
"""What runs on arrays: others than slices may show the array, or it is not the function's own."""


def function(body: str) -> Callable[[Any], Any]:
    """Return a function of the body's lines, whose source can be found."""
    text = "def made(b):\n    " + body.replace("\n", "\n    ") + "\n    return y\n"
    name = f"<{body}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names: dict[str, Any] = {"np": np}
    exec(compile(text, name, "exec"), names)
    made: Callable[[Any], Any] = names["made"]
    return made


def computed(made: Callable[[Any], Any], values: np.ndarray) -> gpusched.Statistics:
    """Return the counts of a function whose chunks have the values, and results, of plain dask."""
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    given = values.copy(order="K")
    x = da.from_array(values, chunks=(6, *values.shape[1:]))
    program = (x + 0).map_blocks(made, dtype=values.dtype, meta=np.empty((0, 0))) * 2
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set(settings):
        explained = gpusched.explain(program).totals.launches
        gpusched.reset_statistics()
        for _ in range(2):
            found = program.compute(scheduler="sync")
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(values, given)
    counts = gpusched.statistics()
    assert counts.launches == 2 * explained
    return counts


@pytest.mark.parametrize("body", RECORDED)
def test_arrays_and_their_views_change_together(body: str) -> None:
    counts = computed(function(body), VALUES)
    assert not [told for _, told in counts.breaks if "your function" in told]
    assert counts.fused_tasks == 2 * 2


@pytest.mark.parametrize("body", STOPPED)
def test_what_else_shows_an_array_ends_the_recording(body: str) -> None:
    counts = computed(function(body), VALUES)
    assert [told for _, told in counts.breaks if "your function" in told]


@pytest.mark.parametrize("body", RECORDED[::3])
def test_in_columns(body: str) -> None:
    computed(function(body), np.asfortranarray(VALUES))


def test_lists_instead_of_chunks_keep_their_arrays() -> None:
    """Of a list, ``* 2`` has the same arrays twice, and they are not the function's own."""
    given = [np.arange(8.0), np.arange(8.0) + 1]

    def twice(x: Any) -> Any:
        y = x * 2
        y[0] += 1
        return y[0]

    first = dask.delayed(lambda: given)()
    x = da.from_delayed(first, (8,), dtype=float)
    program = x.map_blocks(twice, dtype=float)
    with gpusched.enable():
        found = program.compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(8.0) + 1)


def running(b: Any) -> Any:
    y = b.copy()
    for k in range(1, 12):
        y[k] = 0.5 * y[k] + 0.5 * y[k - 1]
    return y


def relaxed(b: Any) -> Any:
    y = b.copy()
    for _ in range(4):
        inside = y[1:-1, 1:-1]
        inside += 0.1 * (y[2:, 1:-1] + y[:-2, 1:-1] + y[1:-1, 2:] + y[1:-1, :-2] - 4 * inside)
    return y


@pytest.mark.parametrize(("made", "side", "fused"), [(running, 200, False), (relaxed, 80, False),
                                                     (relaxed, 1000, True)])  # fmt: skip
def test_many_small_parts_are_left_to_numpy(made: Any, side: int, fused: bool) -> None:
    x = da.from_array(np.random.default_rng(0).normal(size=(side, side)), chunks=side)
    program = x.map_blocks(made, dtype=float)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "wait"}):
        explained = gpusched.explain(program)
        gpusched.reset_statistics()
        np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-12)
    counts = gpusched.statistics()
    assert counts.launches == explained.totals.launches
    assert bool(counts.launches) is fused
    kinds = {told.kind for _, told in counts.breaks}
    assert kinds == (set() if fused else {GraphBreak.NO_GAIN})
    assert [each.code for each in explained.breaks] == ([] if fused else ["NO_GAIN"])
