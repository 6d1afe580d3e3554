"""Locks and limits: re-entry, deadlocks, threads and tasks that end, long waits, event loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import dask.config
import pytest

from gpusched import threadsafe
from gpusched.threadsafe import registry, threads, waits
from gpusched.threadsafe.counts import Counts
from gpusched.threadsafe.task_cleanup import running as task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have waiting threads look often."""
    monkeypatch.setattr(waits, "INTERVAL", 0.01)
    with dask.config.set({"gpusched.threadsafe.slow-wait": "20ms"}):
        yield


def counts(name: str) -> Any:
    return threadsafe.statistics()[name]


def held(policy: Any, started: threading.Event, go_on: threading.Event) -> threading.Thread:
    """Start a thread that has a policy until it is told to go on."""

    def run() -> None:
        with policy:
            started.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=run, name="holder")
    thread.start()
    assert started.wait(60)
    return thread


@pytest.mark.parametrize("policy", [threadsafe.lock("again"), threadsafe.limit(1, "again")])
def test_thread_may_enter_again(policy: Any) -> None:
    inner = threadsafe.wrap(lambda: 1, policy)
    outer = threadsafe.wrap(lambda: inner() + 1, policy)
    assert outer() == 2
    with policy, policy:
        assert inner() == 1
    with pytest.raises(RuntimeError, match="does not hold"):
        policy.release()


@pytest.mark.parametrize("policy", [threadsafe.lock("error"), threadsafe.limit(1, "error")])
def test_released_by_an_error(policy: Any, together: Any) -> None:
    def fail() -> None:
        raise KeyError("told")

    with pytest.raises(KeyError):
        threadsafe.wrap(fail, policy)()
    assert together(threadsafe.wrap(lambda: 1, policy)) == [1]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_limit_lets_in_as_many_as_it_says(n: int) -> None:
    barrier = threading.Barrier(n)
    policy = threadsafe.limit(n, f"exactly {n}")
    inside, most, exact = 0, 0, threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        with exact:
            inside += 1
            most = max(most, inside)
        barrier.wait(60)
        with exact:
            inside -= 1

    wrapped = threadsafe.wrap(enter, policy)
    workers = [threading.Thread(target=wrapped) for _ in range(2 * n)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert most == n


def test_deadlock_is_refused_with_names_and_stacks(together: Any) -> None:
    first, second = threadsafe.lock("first"), threadsafe.lock("second")
    both = threading.Barrier(2)

    def take(one: Any, other: Any) -> str:
        with one:
            both.wait(60)
            try:
                with other:
                    return "entered"
            except threadsafe.DeadlockError as error:
                return str(error)

    told = together(lambda: take(first, second), lambda: take(second, first))
    assert sorted(text == "entered" for text in told) == [False, True]
    refused = next(text for text in told if text != "entered")
    assert "lock(first) and lock(second) are taken in different orders" in refused
    assert refused.count("in take") == 2
    assert counts("lock(first)").deadlocks + counts("lock(second)").deadlocks == 1


@pytest.mark.parametrize("given", [False, True])
def test_thread_that_has_yet_to_wake_closes_no_cycle(given: bool) -> None:
    class Resource:
        counts = Counts()

        def holders(self) -> tuple[threads.Thread, ...]:
            return (threads.current(),)

    refused = contextlib.nullcontext() if given else pytest.raises(threadsafe.DeadlockError)
    with refused, waits.waiting(Resource(), lambda: given):
        assert given


@pytest.mark.parametrize(
    ("policy", "states"),
    [
        (threadsafe.lock("given"), [False, True, False]),
        (threadsafe.limit(1, "given"), [False, True, False]),
        (threadsafe.one_thread("given"), [False, False, True]),
    ],
    ids=str,
)
def test_wait_is_over_once_given(
    policy: Any, states: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is given, while it is had, and after the call."""
    original, found, started, go_on = waits.waiting, [], threading.Event(), threading.Event()

    @contextlib.contextmanager
    def watched(resource: Any, is_over: Any, count: bool = True) -> Iterator[Any]:
        if threading.current_thread() is me:
            asked.append(is_over)
            found.append(is_over())
            go_on.set()
        with original(resource, is_over, count) as look:
            yield look

    me, asked = threading.current_thread(), list[Any]()
    monkeypatch.setattr(waits, "waiting", watched)
    wrapped = threadsafe.wrap(lambda act: act(), policy)
    holder = threading.Thread(target=wrapped, args=(lambda: (started.set(), go_on.wait(60)),))
    holder.start()
    assert started.wait(60)
    wrapped(lambda: found.append(asked[0]()))
    holder.join(60)
    assert [*found, asked[0]()] == states


def test_limit_with_room_is_held_by_nobody() -> None:
    policy = threadsafe.limit(2, "room")
    guard = registry.guard_for(policy)
    with policy:
        assert guard.holders() == ()
        started, go_on = threading.Event(), threading.Event()
        other = held(policy, started, go_on)
        assert len(guard.holders()) == 2
        go_on.set()
        other.join(60)
        assert guard.holders() == ()


def test_deadlock_with_a_dedicated_thread_is_refused() -> None:
    policy = threadsafe.lock("held by the caller")
    inner = threadsafe.wrap(lambda: 1, policy)
    outer = threadsafe.wrap(lambda: inner(), threadsafe.one_thread("calls back"))
    with policy, pytest.raises(threadsafe.DeadlockError, match=r"one_thread\(calls back\)"):
        outer()
    assert outer() == 1


def test_waiting_for_one_of_several_is_no_deadlock(together: Any) -> None:
    """Thread 1 waits for a place that 2 or 3 has; 2 waits for 1, but 3 does not."""
    places, lock = threadsafe.limit(2, "two places"), threadsafe.lock("of thread 1")
    ready, waits_for_lock = threading.Barrier(3), threading.Event()

    def one() -> str:
        with lock:
            ready.wait(60)
            with places:
                return "one"

    def two() -> str:
        with places:
            ready.wait(60)
            with lock:
                return "two"

    def three() -> str:
        with places:
            ready.wait(60)
            assert not waits_for_lock.wait(0.1)
        return "three"

    assert together(one, two, three) == ["one", "two", "three"]


@pytest.mark.parametrize("policy", [threadsafe.lock("dead"), threadsafe.limit(1, "dead")], ids=str)
def test_taken_from_a_thread_that_has_ended(policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(target=policy.acquire, name="gone")
    thread.start()
    thread.join()
    with caplog.at_level(logging.WARNING), policy:
        pass
    assert f"{policy} was still held by thread 'gone', which has ended" in caplog.text
    assert counts(str(policy)).abandoned == 1
    assert threads.current().waiting is None


@pytest.mark.parametrize("policy", [threadsafe.lock("left"), threadsafe.limit(1, "left")], ids=str)
def test_released_when_the_task_ends(policy: Any, together: Any) -> None:
    with pytest.raises(KeyError), task("forgets"):  # noqa: PT012
        policy.acquire()
        raise KeyError
    assert together(threadsafe.wrap(lambda: 1, policy)) == [1]
    assert counts(str(policy)).abandoned == 1


@pytest.mark.parametrize(
    "policy", [threadsafe.lock("wanted"), threadsafe.limit(1, "wanted")], ids=str
)
def test_cancelled_task_does_not_wait(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    thread = held(policy, started, go_on)
    monkeypatch.setattr(waits, "is_cancelled", lambda name: name == "unwanted")
    with task("unwanted"), pytest.raises(threadsafe.TaskCancelledError, match="unwanted"):
        policy.acquire()
    go_on.set()
    thread.join(60)


def test_cancelled_task_does_not_wait_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on, entered = threading.Event(), threading.Event(), []
    busy = threadsafe.wrap(lambda: (started.set(), go_on.wait(60)), threadsafe.one_thread("busy"))
    later = threadsafe.wrap(lambda: entered.append(1), threadsafe.one_thread("busy"))
    thread = threading.Thread(target=busy)
    thread.start()
    assert started.wait(60)
    monkeypatch.setattr(waits, "is_cancelled", lambda name: True)
    with task("unwanted"), pytest.raises(threadsafe.TaskCancelledError):
        later()
    go_on.set()
    thread.join(60)
    assert threadsafe.wrap(lambda: entered, threadsafe.one_thread("busy"))() == []


def test_long_wait_is_logged_with_the_holder(caplog: pytest.LogCaptureFixture) -> None:
    policy = threadsafe.lock("slow")
    started, go_on = threading.Event(), threading.Event()
    thread = held(policy, started, go_on)

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            go_on.set()

    logger, handler = logging.getLogger("gpusched.threadsafe"), Told()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.WARNING), policy:
            pass
    finally:
        logger.removeHandler(handler)
    thread.join(60)
    assert "for lock(slow), taken by thread 'holder'" in caplog.text
    assert "go_on.wait" in caplog.text
    assert counts("lock(slow)").waits == 1
    assert counts("lock(slow)").longest_wait_seconds >= 0.02


def test_event_loop_does_not_wait() -> None:
    policy = threadsafe.lock("of a thread")
    started, go_on = threading.Event(), threading.Event()
    thread = held(policy, started, go_on)
    wrapped = threadsafe.wrap(lambda: 1, policy)

    async def answer() -> int:
        threads.answer_loop()
        try:
            with pytest.raises(threadsafe.BlockedLoopError, match=r"asyncio\.to_thread"):
                wrapped()
            with pytest.raises(threadsafe.BlockedLoopError):
                threadsafe.wrap(lambda: 1, "one_thread")()
            waiting = asyncio.create_task(asyncio.to_thread(wrapped))
            go_on.set()
            return await waiting
        finally:
            threads.answer_loop(False)

    assert asyncio.run(answer()) == 1
    thread.join(60)


def test_free_lock_is_taken_on_an_event_loop() -> None:
    async def answer() -> int:
        threads.answer_loop()
        try:
            return int(threadsafe.wrap(lambda: 1, "lock(free)")())
        finally:
            threads.answer_loop(False)

    assert asyncio.run(answer()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.processes
def test_forked_process_starts_anew() -> None:
    policies = [threadsafe.lock("forked"), threadsafe.limit(1, "forked")]
    started, go_on = threading.Event(), threading.Event()
    holders = [held(policy, started, go_on) for policy in policies]
    for _ in policies:
        threadsafe.wrap(lambda: 1, threadsafe.one_thread("forked"))()
    child = os.fork()
    if not child:
        os._exit(_enter(policies))
    _, status = os.waitpid(child, 0)
    go_on.set()
    for holder in holders:
        holder.join(60)
    assert os.waitstatus_to_exitcode(status) == 5


def _enter(policies: list[Any]) -> int:
    for policy in policies:
        with policy:
            pass
    return int(threadsafe.wrap(lambda: 5, threadsafe.one_thread("forked"))())
