"""Turns requests to stop into exceptions, so that what was started is closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_REQUESTS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """Raise ``SystemExit`` in the main thread when this process is asked to stop."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {request: signal.signal(request, stop) for request in _REQUESTS}
    try:
        yield
    finally:
        for request, handler in before.items():
            signal.signal(request, handler)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Leave this process at the next request to stop, Ctrl-C included.

    For use while things are being closed, when an exception would leave them half closed. Worker
    processes notice that their parent is gone and leave too.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(128 + number)

    requests = (signal.SIGINT, *_REQUESTS)
    before = {request: signal.signal(request, leave) for request in requests}
    try:
        yield
    finally:
        for request, handler in before.items():
            signal.signal(request, handler)
