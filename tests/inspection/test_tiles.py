"""What is told of kernels that run together is what runs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.plan import tiles

X = da.from_array(np.random.default_rng(0).random((240, 50)), chunks=(120, 50))


def softmax(x: Any) -> Any:
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return (shifted / shifted.sum(axis=1, keepdims=True),)


def statistics(x: Any) -> Any:
    return tuple(f(x, axis=axis) for axis in (0, 1) for f in (da.mean, da.std))


def chain(x: Any) -> Any:
    return (np.exp(x) * 2,)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tiles.TiledLaunches]]:
    """Give the tiles that are run; a cache is small enough for small chunks to have several."""
    found: list[tiles.TiledLaunches] = []

    call = tiles.TiledLaunches.__call__

    def noted(self: tiles.TiledLaunches, registers: Any) -> None:
        found.append(self)
        call(self, registers)

    monkeypatch.setattr(tiles.TiledLaunches, "__call__", noted)
    monkeypatch.setattr(tiles, "room", lambda: 16 << 10)
    settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.merge-bytes": 1}
    with dask.config.set(settings):
        yield found


@pytest.mark.parametrize("program", [softmax, statistics, chain])
def test_explained_as_they_run(
    program: Callable[[Any], tuple[Any, ...]], run: list[tiles.TiledLaunches]
) -> None:
    with gpusched.enable():
        explanation = gpusched.explain(*program(X))
        assert not run
        for _ in range(2):  # recorded by the first chunk, and repeated by the others
            da.compute(*program(X), scheduler="sync")
    told = {(s.kernels, s.rows, s.of_rows) for stage in explanation.stages for s in stage.tiles}
    names = [tuple(each.kernel.kernel.name for each in found.launches) for found in run]
    assert told == {(n, f.rows, f.all_rows) for n, f in zip(names, run, strict=True)}
    # One kernel does all of the statistics of a task.
    assert bool(told) == (program is softmax)
    text = " ".join(str(explanation).split())
    for kernels, rows, of_rows in told:
        words = f"{', '.join(kernels[:-1])} and {kernels[-1]}: all on {rows} rows of {of_rows}"
        assert words in text


def test_what_is_in_the_cache_takes_no_time_to_read(
    run: list[tiles.TiledLaunches], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained() -> gpusched.Explanation:
        with gpusched.enable():
            return gpusched.explain(*softmax(X))

    together = explained().stages[0]
    monkeypatch.setattr(tiles, "room", lambda: 0)
    apart = explained().stages[0]
    assert together.bytes_read == apart.bytes_read
    # Both later kernels read the chunk again, and a number a row from those before them.
    assert together.bytes_cached == 2 * X.nbytes // 2 + (1 + 2) * 120 * 8
    assert apart.bytes_cached == 0
    assert together.seconds_total <= apart.seconds_total
