"""Pieces of chunks are cut before a task is recorded: a plan holds for all of one shape."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk

import gpusched
from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

VALUES = np.random.default_rng(0).normal(size=(60, 20))


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait",
                "gpusched.fusion.strict": True}  # fmt: skip
    with dask.config.set(settings), gpusched.enable():
        gpusched.reset_statistics()
        yield


def program(*calls: Any, inputs: int) -> Program:
    """Return a program of recorded calls; the result of the last is its result."""
    steps = tuple(ProgramStep(f, tuple(map(Register, args)), {}, True) for f, *args in calls)
    return Program(steps, inputs)


def recordings() -> int:
    return gpusched.statistics().recorded.total()


CUT_AND_ADD = [(operator.getitem, 0, 1), (np.multiply, 3, 2), (np.add, 4, 3)]
"""``piece * y + piece`` for registers of a chunk, an index and ``y``."""


@pytest.mark.parametrize("cut", [operator.getitem, chunk.getitem])
def test_one_plan_for_all_pieces_of_a_shape(cut: Any) -> None:
    made = program((cut, 0, 1), *CUT_AND_ADD[1:], inputs=3)
    for start in range(0, 50, 10):
        index = slice(start, start + 10), slice(None)
        found = made(VALUES, index, VALUES[:10])
        piece = VALUES[index]
        np.testing.assert_array_equal(found, piece * VALUES[:10] + piece)
    assert recordings() == 1
    assert gpusched.statistics().launches == 5
    assert not gpusched.statistics().breaks


def test_pieces_of_pieces_and_other_shapes() -> None:
    made = program(
        (operator.getitem, 0, 1), (operator.getitem, 4, 2), *[(f, a + 2, b + 1 if b == 2 else b + 2)
         for f, a, b in CUT_AND_ADD[1:]], inputs=4,
    )  # fmt: skip
    for start, stop in ((0, 10), (5, 15), (5, 16)):
        found = made(VALUES, slice(start, stop), np.s_[..., 3:], VALUES[: stop - start, 3:])
        piece = VALUES[start:stop, 3:]
        np.testing.assert_array_equal(found, piece * VALUES[: stop - start, 3:] + piece)
    assert recordings() == 2


@pytest.mark.parametrize("index", [3, (3, slice(None)), np.array([3, 1, 3]), [4, 2]])
def test_what_is_not_a_range_is_recorded_as_it_was(index: Any) -> None:
    found = program(*CUT_AND_ADD, inputs=3)(VALUES, index, VALUES[:1])
    np.testing.assert_array_equal(found, VALUES[index] * VALUES[:1] + VALUES[index])


def test_errors_are_numpys() -> None:
    made = program(*CUT_AND_ADD, inputs=3)
    with pytest.raises(IndexError, match="too many indices"):
        made(VALUES, np.s_[1:, 1:, 1:], VALUES)


def test_a_piece_that_is_the_result_is_no_piece_of_the_recording() -> None:
    """It is a copy where the chunk is much larger, as in plain dask."""
    made = program((np.add, 0, 0), (chunk.getitem, 0, 1), inputs=2)
    (segment,) = made.segments
    assert segment.cut is None
    found = made(VALUES, slice(2))
    assert found.base is None
    np.testing.assert_array_equal(found, VALUES[:2])


def test_a_piece_that_cannot_be_cut_is_an_error_in_dasks_words() -> None:
    made = program((chunk.getitem, 0, 1), *CUT_AND_ADD[1:], inputs=3)
    with pytest.raises(ValueError, match="chunk size or shape is unknown"):
        made(VALUES, np.s_[1:, 1:, 1:], VALUES)


def test_chunks_are_as_they_were_and_no_piece_is_kept() -> None:
    before = VALUES.copy()
    made = program((operator.getitem, 0, 1), (np.transpose, 3), (np.add, 4, 2), inputs=3)
    found = made(VALUES, slice(10), VALUES[:10].T)
    np.testing.assert_array_equal(found, 2 * before[:10].T)
    assert found.base is None or not np.may_share_memory(found, VALUES)
    np.testing.assert_array_equal(VALUES, before)


def raised(x: np.ndarray) -> np.ndarray:
    """Change what it is given: nothing that a function may do with a chunk of others'."""
    x += 1
    return x


@pytest.mark.parametrize("compiled", ["off", "wait"])
@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[::-1],  # dask's view of the chunk
        lambda x: x[:, 1:][:, :4],
        lambda x: x.imag,
        lambda x: x[:, :1],  # dask's copy of a small piece
        lambda x: x[:, :1].T,  # and views of it
        lambda x: da.flip(x[:, :1][:, None].T, 0),
        lambda x: x[:, :2].map_blocks(lambda b: b[::-1]),
        lambda x: x[:, :2].map_blocks(np.ravel, drop_axis=1, dtype=x.dtype),
        lambda x: da.ones((4, 6), chunks=(2, 6))[:, :1].T,
    ],
)
def test_a_piece_that_is_changed_is_the_piece_of_dask(cut: Any, compiled: str) -> None:
    """Changed in the chunk that others read where it is dask's view, and only there."""
    found = []
    for fused in (False, True):
        with (
            gpusched.enable() if fused else nullcontext(),
            dask.config.set({"gpusched.fusion.compile": compiled}),
        ):
            if not fused:
                gpusched.disable()
            x = da.from_array(np.zeros((4, 6), complex), chunks=(2, 6))
            changed = cut(x).map_blocks(raised, dtype=float)
            results = [changed.compute(scheduler="sync") for _ in range(2)]
            found.append((*results, x.compute(scheduler="sync")))
    for plain, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, plain)
