"""That what each pass gains can be measured, on inputs too small to measure."""

from __future__ import annotations

from pkgutil import resolve_name

import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.benchmarks.passes import PASSES, gains, left_out, rows, watched
from tests.benchmarks.works.base import several


def test_passes_are_those_of_optimise() -> None:
    for target in [each for targets in PASSES.values() for each in targets]:
        assert callable(resolve_name(target)), target


def test_only_passes_that_change_a_graph_are_left_out() -> None:
    x = da.ones((64, 64), chunks=16)

    def run() -> np.ndarray:
        return ((x + 1)[::2] * (x - 2)[1::2]).compute(scheduler="sync")

    with gpusched.enable():
        found = dict(gains("both", run, several, repeat=1))
        with watched() as changed:
            run()
    assert found
    assert set(found) == {name for name in PASSES if changed[name]}
    assert all(min(*gain.tasks, *gain.seconds) > 0 for gain in found.values())
    assert len(list(rows({name: [found[name]] if name in found else [] for name in PASSES}))) == 11


def test_pass_that_is_left_out_changes_nothing() -> None:
    x = da.ones((64, 64), chunks=16)
    with gpusched.enable(), left_out("chains"), watched() as changed:
        ((x + 1)[::2] * (x - 2)[1::2]).compute(scheduler="sync")
    assert changed["chains"] == 0 < changed["tasks"]


@pytest.mark.parametrize("name", ["all", "odd"])
def test_nothing_else_is_left_out(name: str) -> None:
    before = [resolve_name(target) for targets in PASSES.values() for target in targets]
    with left_out(name):
        now = [resolve_name(target) for targets in PASSES.values() for target in targets]
    assert now == before
