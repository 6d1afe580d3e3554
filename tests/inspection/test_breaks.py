"""Every graph break is named, with the reason and what to change."""

from __future__ import annotations

import copy
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched import explain
from gpusched.breaks import GraphBreak

from .programs import PROGRAMS, numbers, ranked, sorted_rows

ROOT = Path(gpusched.__file__).parent


def test_the_users_own_function_is_named_with_its_line() -> None:
    found = explain(PROGRAMS["unsafe"]())
    (stop,) = found.breaks
    assert stop.operation == "sorted_rows"
    assert stop.reason.startswith(
        "your function calls apply_over_axes, which is not recorded (call, line "
    )
    assert stop.place is not None
    assert stop.place.line == sorted_rows.__code__.co_firstlineno
    assert stop.remedy.startswith("call NumPy functions that kernels have")
    assert stop.tasks == 2


def test_a_call_inside_a_function_is_named_with_its_line() -> None:
    (stop,) = explain(PROGRAMS["asked-for"]()).breaks
    assert (stop.operation, stop.reason) == ("sort", "no kernel for this function")
    assert stop.place is not None
    assert stop.place.text.startswith("return np.sort(")
    assert stop.place.function == ranked.__name__


def test_small_chunks_are_named() -> None:
    x = numbers((40, 40), 20)
    with dask.config.set({"gpusched.fusion.minimum-elements": 1000}):
        found = explain((x + 1) * 2)
    (stop,) = found.breaks
    assert (stop.reason, stop.tasks) == ("small chunks", 4)
    assert "minimum-elements" in stop.remedy
    assert found.totals.launches == 0
    # Two NumPy calls, of which the second reads what the first wrote.
    assert found.totals.bytes_moved == 4 * 40 * 40 * 8


def test_a_reduction_in_the_middle_is_named() -> None:
    def centred(block: Any) -> Any:
        return (block - block.mean()) * 2

    found = explain(numbers((40, 40), 20).map_blocks(centred))
    (stop,) = found.breaks
    assert stop.reason == "a reduction's result is needed before the rest can be computed"
    assert stop.place is not None
    assert stop.place.text == "return (block - block.mean()) * 2"


def test_a_dtype_without_kernels_is_named() -> None:
    found = explain(numbers((40, 30), 20).astype(np.longdouble) * 2 + 1)
    reason = f"dtype {np.dtype(np.longdouble)}"
    assert {stop.reason for stop in found.breaks} >= {reason}
    assert all("astype" in stop.remedy for stop in found.breaks if stop.reason == reason)


def test_more_operations_than_a_kernel_holds_are_named() -> None:
    x = numbers((40, 30), 20)
    y = x
    for k in range(20):
        y = y * (k + 2.5) + x
    with dask.config.set({"gpusched.fusion.maximum-operations": 16}):
        found = explain(y)
    assert len(found.kernels) > 1
    assert "more operations than one kernel may hold" in {s.reason for s in found.breaks}


def test_what_can_be_changed_comes_first() -> None:
    x = numbers((40, 30), (20, 30))
    single = (x + 1).map_blocks(sorted_rows, dtype=float)
    kinds = [GraphBreak[stop.code] for stop in explain([x * 2, single]).breaks]
    assert kinds[0] is GraphBreak.OWN_CALLS
    assert kinds[0].advises and not kinds[-1].advises


def test_what_scipy_does_is_not_the_users_to_change() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")

    def smoothed(block: np.ndarray) -> np.ndarray:
        return block + ndimage.gaussian_filter(block, 2)

    x = numbers((40, 30), (20, 30)) + 1
    alone = explain(x.map_blocks(ndimage.gaussian_filter, sigma=2, dtype=float))
    (stop,) = [each for each in alone.breaks if each.operation == "gaussian_filter"]
    assert (stop.code, stop.reason.partition(",")[0]) == ("LIBRARY", "a function of scipy")
    (stop,) = [each for each in explain(x.map_blocks(smoothed)).breaks if each.code == "OWN_CALLS"]
    line = smoothed.__code__.co_firstlineno + 1
    said = "calls gaussian_filter of scipy, which is not recorded"
    assert stop.reason.startswith(f"your function {said} (call") and f"line {line})" in stop.reason


def test_lanes_that_nothing_computes_at_once_have_no_reason_of_ours() -> None:
    x = numbers((40, 30), (20, 30)) + 1
    lanes = da.apply_along_axis(lambda lane: np.sort(lane)[::2], 1, x, dtype=float, shape=(15,))
    assert not [each for each in explain(lanes).breaks if "nanpolyfit" in each.reason]


def test_functions_of_lanes_are_named_with_their_own_line() -> None:
    def rounded(lane: Any) -> Any:
        lane.sort()
        return lane[0]

    x = numbers((40, 30), (20, 30)) + 1
    lanes = da.apply_along_axis(rounded, 1, x, dtype=float, shape=())
    (stop,) = [each for each in explain(lanes).breaks if each.code.startswith("OWN")]
    assert stop.place is not None
    assert stop.place.function.endswith("rounded")


def test_what_is_declared_may_be_something_else() -> None:
    def parts() -> Any:
        return {"heights": np.ones((30, 40))}

    x = da.from_delayed(dask.delayed(parts)(), (30, 40), float)
    made = x.map_blocks(lambda given: given["heights"] * 2 + 1, dtype=float, meta=np.ones((0, 0)))
    assert (made.compute(scheduler="sync") == 3).all()
    assert not [each for each in explain(made).breaks if "recording failed" in each.reason]


def test_every_graph_break_is_used_and_has_a_remedy() -> None:
    paths = [path for path in ROOT.rglob("*.py") if path.name != "breaks.py"]
    used = set(re.findall(r"GraphBreak\.([A-Z_]+)", "\n".join(p.read_text() for p in paths)))
    assert used == {each.name for each in GraphBreak}
    assert all(each.remedy for each in GraphBreak)


def test_reasons_keep_their_kind_on_their_way() -> None:
    reason = GraphBreak.DTYPE("dtype object")
    counted = pickle.loads(pickle.dumps(Counter([("add", reason), ("add", "dtype object")])))
    assert list(counted.items()) == [(("add", "dtype object"), 2)]
    (((_, found), _),) = counted.items()
    assert found.kind is reason.kind is copy.deepcopy(reason).kind
    assert "astype" in found.kind.remedy


def test_nothing_stops_a_plain_chain() -> None:
    x = numbers((40, 30), 20)
    assert explain(da.sqrt(x * 2 + 1)).breaks == ()


def test_a_function_that_dask_applies_has_its_own_name() -> None:
    x = da.from_array(np.ones((400, 400)), chunks=200)
    # A string may be a key, so that it is left to dask to apply this.
    found = explain(da.coarsen(np.mean, x, {0: 2, 1: 2}, dtype="f8") + 1)
    assert "coarsen" in {each.operation for each in found.breaks}
    assert "apply" not in {each.operation for each in found.breaks}


def test_counts_of_bins_are_advised_to_have_a_length() -> None:
    x = da.from_array(np.arange(80_000) % 7, chunks=20_000)
    (found,) = [each for each in explain(da.bincount(x * 2, minlength=20)).breaks
                if each.operation == "bincount"]  # fmt: skip
    assert found.code == "LENGTH"
    assert "np.histogram" in found.remedy
