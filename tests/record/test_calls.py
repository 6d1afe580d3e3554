"""What a function has called is followed, or it is seen that this does not show all it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.graph.functions import known  # noqa: F401  which imports all that records
from gpusched.plan.plan import Register
from gpusched.record.chunk import LazyChunk
from gpusched.record.record import Recorder
from gpusched.record.steps import Calls

A, B = Register(0), Register(1)


def followed(function: Callable[..., Any]) -> tuple[Calls, Any]:
    """Return the calls of a function of two chunks, and what it has returned."""
    recorder = Recorder()
    given = [LazyChunk(recorder, recorder.leaf(np.full((6, 4), k + 1.0))) for k in range(2)]
    recorder.followed = calls = Calls(dict(enumerate(given)), 2)
    found = function(*given)
    return calls, found


def functions(calls: Calls) -> list[Any]:
    return [step.function for _, step in calls.made]


def test_operators_functions_indices_and_methods_are_calls_of_numpys() -> None:
    calls, found = followed(lambda a, b: np.where(a[1:] > 2, a[1:].astype("f4"), -b[:-1]) ** 2)
    assert calls.is_complete and calls.register_of(found) == 9
    assert [(register, c.function, c.args) for register, c in calls.made][1:3] == [
        (3, np.greater, (Register(2), 2)),
        (4, functions(calls)[0], (A, slice(1, None))),
    ]
    assert functions(calls)[-1] is np.square
    assert functions(calls)[5:7] == [np.negative, np.where]


def test_calls_within_calls_are_none_of_the_functions() -> None:
    calls, _ = followed(lambda a, b: np.mean(a, axis=0) - np.hypot(a, b))
    assert functions(calls) == [np.mean, np.hypot, np.subtract]
    assert calls.is_complete


def test_what_returns_its_argument_is_no_call() -> None:
    calls, found = followed(lambda a, b: a.astype("f8", copy=False))
    assert calls.is_complete and not calls.made and calls.register_of(found) == 0


def _assigned(a: Any, b: Any) -> Any:
    found = a + b
    found[found > 2] = 0
    return found


def _updated(a: Any, b: Any) -> Any:
    found = a + b
    found *= 2
    return found


def _quiet(a: Any, b: Any) -> Any:
    with np.errstate(all="raise"):
        return a / b


def _sorted(a: Any, b: Any) -> Any:
    return np.sort(a) + b


def _by_a_mask(a: Any, b: Any) -> Any:
    return a.take([0, 1], axis=0) + np.divmod(a, b)[0][:2]


def _by_an_array(a: Any, b: Any) -> Any:
    axes = np.array([1, 0])
    found = np.transpose(a, axes) * 2
    axes[:] = [0, 1]
    return found


@pytest.mark.parametrize(
    "function", [_assigned, _updated, _quiet, _sorted, _by_a_mask, _by_an_array]
)
def test_what_cannot_be_repeated_call_by_call_is_seen(function: Callable[..., Any]) -> None:
    assert not followed(function)[0].is_complete


def test_no_chunk_lives_longer_for_being_followed() -> None:
    recorder = Recorder()
    given = LazyChunk(recorder, recorder.leaf(np.ones(4)))
    recorder.followed = Calls({0: given}, 1)
    found = np.exp(given + 1) - 2
    assert [each() for each in recorder.chunks if each() is not None] == [given, found]
