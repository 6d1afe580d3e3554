"""When a kernel is worth its compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.backends.cache import reference
from gpusched.store import unfused, worthwhile
from gpusched.store.background import Background
from gpusched.store.handles import Handle
from gpusched.store.worthwhile import expected, gain
from tests.record.recording import record


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worthwhile, "cores", lambda: 2)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> unfused.Times:
    """Give all that is said of earlier runs, which is nothing yet."""
    found = unfused.Times(None)
    monkeypatch.setattr(unfused, "here", lambda: found)
    return found


def handle_of(function: Callable[..., Any]) -> Handle:
    """Return the only kernel of a function, as if it were not compiled."""
    (launch,) = record(function, np.ones((40, 30)), backend="python").launches
    compiled = reference(launch.kernel.kernel)
    return Handle(launch.kernel.kernel, lambda: None, lambda: compiled)


def add(x: Any) -> Any:
    return x + 1 + x


def exponential(x: Any) -> Any:
    return np.exp(x) + 1


def test_larger_kernels_are_expected_to_take_longer() -> None:
    found = [
        expected(handle_of(each).kernel)
        for each in (add, lambda x: add(x) * x, lambda x: np.exp(x) + 1,
                     lambda x: np.exp(x) * np.sin(x) + np.cos(x))
    ]  # fmt: skip
    assert found == sorted(found) and found[0] < found[-1] / 3


def test_work_pays_that_is_long_beside_the_compilation() -> None:
    code = handle_of(add)
    cost = expected(code.kernel)
    assert gain([code], cost, 0) < 0
    assert gain([code], cost, 1) < 0
    assert gain([code], cost, 100) > 0


def test_a_device_does_less_than_all_cores_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worthwhile, "cores", lambda: 16)
    code = handle_of(add)
    cost = expected(code.kernel)
    assert gain([code], cost, 20) < 0 < gain([code], cost, 20, at_once=1)


def test_what_has_been_repeated_will_be() -> None:
    code = handle_of(add)
    code.spent = 100 * expected(code.kernel)
    assert gain([code], 0.0, 0) > 0


def test_a_graph_that_comes_again_pays_as_soon_as_its_kernels_would_have(
    times: unfused.Times,
) -> None:
    code, other = handle_of(add), handle_of(add)
    cost = expected(code.kernel)
    times.add(code.name, 2.1 * cost / 2)  # By another process.
    for graph, gains in (("one", False), ("", False), ("one", False), ("two", True)):
        code.count(2.1 * cost / 8, graph)
        times.add(code.name, 2.1 * cost / 8)
        assert (gain([code], 0.0, 0) > 0) == gains
    assert gain([code], 0.0, 0, starting=cost) < 0, "its start counts"
    assert gain([code, other], 0.0, 0) < 0, "the other one has come for no graph"


def test_many_kernels_need_more_work() -> None:
    code = handle_of(add)
    seconds = 10 * expected(code.kernel)
    assert gain([code], seconds, 1) > 0 > gain([code] * 5, seconds, 1)


def test_more_cores_do_more_without(monkeypatch: pytest.MonkeyPatch) -> None:
    code = handle_of(add)
    seconds = 10 * expected(code.kernel)
    monkeypatch.setattr(worthwhile, "cores", lambda: 64)
    assert gain([code], seconds, 1) < 0


def considered(waiting: Background, *handles: Handle, starting: float = 0.0) -> list[Handle]:
    return waiting.considered(handles, starting)


def test_what_has_taken_as_long_as_its_compilation_is_compiled_in_idle_time(
    times: unfused.Times,
) -> None:
    code = handle_of(add)
    times.add(code.name, 0.9 * expected(code.kernel))
    assert considered(Background(), code) == []
    times.add(code.name, 0.2 * expected(code.kernel))
    assert considered(Background(), code) == [code] and gain([code], expected(code.kernel), 0) < 0


def test_the_start_of_a_compiler_counts_too() -> None:
    code = handle_of(add)
    cost = expected(code.kernel)
    assert gain([code], cost, 20) > 0 > gain([code], cost, 20, starting=10 * cost)
    assert gain([code], cost, 200, starting=10 * cost) > 0


def test_the_start_of_a_compiler_is_a_cost_of_all_kernels_together(
    times: unfused.Times,
) -> None:
    waiting, one, other = Background(), handle_of(add), handle_of(exponential)
    start = 4 * expected(one.kernel)
    times.add(one.name, 4 * expected(one.kernel))
    times.add(other.name, expected(other.kernel) + 2 * expected(one.kernel))
    assert considered(waiting, one, starting=start) == []
    assert considered(waiting, one, starting=start) == [], "counted once"
    assert considered(waiting, other, starting=start) == [one, other]


def test_what_other_processes_have_run_since_counts_for_all_kernels(
    times: unfused.Times,
) -> None:
    waiting, one, other = Background(), handle_of(add), handle_of(exponential)
    start = 4 * expected(one.kernel)
    times.add(one.name, 2 * expected(one.kernel))
    times.add(other.name, expected(other.kernel) + 2 * expected(one.kernel))
    assert considered(waiting, one, starting=start) == []
    assert considered(waiting, other, starting=start) == []
    times.add(one.name, 2 * expected(one.kernel))
    assert considered(waiting, other, starting=start) == [one, other]


def test_what_has_been_compiled_meanwhile_pays_for_no_start(times: unfused.Times) -> None:
    waiting, one, other = Background(), handle_of(add), handle_of(exponential)
    times.add(one.name, 4 * expected(one.kernel))
    times.add(other.name, 2 * expected(other.kernel))
    assert considered(waiting, one, starting=100.0) == []
    one.ready = True
    assert considered(waiting, other, starting=expected(other.kernel)) == []
    assert considered(waiting, other) == [other]


def test_a_plan_needs_all_of_its_kernels(times: unfused.Times) -> None:
    one, other = handle_of(add), handle_of(exponential)
    times.add(one.name, expected(one.kernel) + 0.5 * expected(other.kernel))
    assert considered(Background(), one, other) == []
    times.add(one.name, expected(other.kernel))
    assert considered(Background(), one, other) == [one, other]
