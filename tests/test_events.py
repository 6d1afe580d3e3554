"""Events of a process: kept while somebody profiles, within bounds, for several at once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from gpusched import events


@pytest.fixture
def token() -> Iterator[str]:
    """Give a token whose recording ends with the test."""
    found = uuid.uuid4().hex
    yield found
    while events.recording_of(found):
        events.stop(found)


def names(recording: events.Recording) -> list[str]:
    return [event.name for event in events.taken(recording)]


def test_nothing_is_active_without_a_profile() -> None:
    assert events.active == ()


def test_event_says_when_where_and_which_task(token: str) -> None:
    recording = events.start(token)
    events.thread.task = ("x", 0)
    try:
        events.record("kernel", "add", 1.0, 2.5, 800, about=("cpu", (3,)))
    finally:
        events.thread.task = None
    (event,) = events.taken(recording)
    here = threading.current_thread()
    assert event == ("kernel", "add", 1.0, 2.5, here.ident, here.name, ("x", 0), 800,
                     ("cpu", (3,)))  # fmt: skip


def test_what_has_no_room_is_counted(token: str) -> None:
    recording = events.start(token, limit=3)
    for k in range(5):
        events.record("task", str(k), 0.0, 1.0)
        events.origin(k, 0, ("layer",))
    assert names(recording) == ["0", "1", "2"]
    assert recording.dropped == 2
    assert list(recording.origins) == [0, 1, 2]


def test_several_recordings_get_what_happens_during_each(token: str) -> None:
    first = events.start(token)
    events.record("task", "alone", 0.0, 1.0)
    second = events.start(token + "second")
    events.record("task", "both", 0.0, 1.0)
    events.stop(token)
    events.record("task", "later", 0.0, 1.0)
    events.stop(token + "second")
    events.record("task", "nobody", 0.0, 1.0)
    assert names(first) == ["alone", "both"]
    assert names(second) == ["both", "later"]


def test_recording_ends_with_its_last_user(token: str) -> None:
    assert events.start(token) is events.start(token)
    events.stop(token)
    assert events.recording_of(token) in events.active
    events.stop(token)
    assert events.recording_of(token) is None
    events.stop(token)


def test_threads_record_without_losing_any(token: str) -> None:
    recording = events.start(token)
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(60)
        for _ in range(2000):
            events.record("task", "", 0.0, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(recording.events) == 8000
    assert {event.thread_name for event in events.taken(recording)} == {t.name for t in threads}
