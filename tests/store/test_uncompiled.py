"""What can wait until no task runs without its kernels."""

from __future__ import annotations

import threading
from time import monotonic

from gpusched.store.unfused import MOMENT, Running
from tests.waiting import PATIENCE


def test_waits_for_the_last_task_and_a_moment() -> None:
    running = Running()
    over: list[float] = []
    running.begin()
    running.begin()
    thread = threading.Thread(
        target=lambda: (running.wait_for_end(lambda: False), over.append(monotonic()))
    )
    thread.start()
    running.end()
    assert not over
    ended = monotonic()
    running.end()
    thread.join(PATIENCE)
    assert over[0] - ended >= 0.9 * MOMENT


def test_what_has_become_urgent_waits_no_more() -> None:
    running = Running()
    running.begin()
    urgent = threading.Event()
    thread = threading.Thread(target=running.wait_for_end, args=(urgent.is_set,))
    thread.start()
    assert thread.is_alive()
    urgent.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
