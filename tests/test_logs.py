"""Loggers are named after this package's modules, and shown and kept as distributed's are."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed.utils import DequeHandler

from gpusched import logs

ROOT = Path(__file__).parents[1]


class _Server:
    """A server of distributed's, as far as its log goes."""

    def __init__(self) -> None:
        self._deque_handler = DequeHandler(n=10)


@pytest.fixture
def loggers() -> Iterator[tuple[logging.Logger, logging.Logger]]:
    """Return this package's logger and distributed's, as in a process without tests."""
    found = logging.getLogger("gpusched"), logging.getLogger("distributed")
    kept = [(each, each.level, each.propagate, each.handlers[:]) for each in found]
    ours, theirs = found
    ours.handlers, ours.level, ours.propagate = [], logging.NOTSET, True
    theirs.handlers, theirs.level, theirs.propagate = [DequeHandler(n=10)], logging.INFO, False
    yield found
    for each, level, propagate, handlers in kept:
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def test_loggers_are_named_after_modules() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("gpusched", "workers", "serialization")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in re.findall(r"^logger = logging\.getLogger\((.+)\)", path.read_text(), re.M)
        if name != "__name__"
    ]
    assert named == []


def test_messages_are_shown_and_kept_as_distributeds(
    loggers: tuple[logging.Logger, logging.Logger],
) -> None:
    shown, first, second = loggers[1].handlers[0], _Server(), _Server()
    logs.follow(first)  # type: ignore[arg-type]
    logs.follow(second)  # type: ignore[arg-type]
    logging.getLogger("gpusched.workers.worker").info("of a worker")
    for handler in (shown, first._deque_handler, second._deque_handler):
        assert [record.getMessage() for record in handler.deque] == ["of a worker"]  # type: ignore[attr-defined]


def test_a_logger_that_was_set_stays_so(loggers: tuple[logging.Logger, logging.Logger]) -> None:
    loggers[0].setLevel(logging.ERROR)
    server = _Server()
    logs.follow(server)  # type: ignore[arg-type]
    logging.getLogger("gpusched.workers.worker").warning("of a worker")
    assert not server._deque_handler.deque
    assert not loggers[1].handlers[0].deque  # type: ignore[attr-defined]
    assert loggers[0].propagate
