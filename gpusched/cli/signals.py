"""Turns requests to stop into exceptions, so that what was started is closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_REQUESTS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """Raise ``SystemExit`` in the main thread when this process is asked to stop."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    with _handling(_REQUESTS, stop):
        yield


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Leave this process at the next request to stop, Ctrl-C included.

    For use while things are being closed, when an exception would leave them half closed. Worker
    processes notice that their parent is gone and leave too.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(128 + number)

    with _handling((signal.SIGINT, *_REQUESTS), leave):
        yield


@contextmanager
def _handling(
    requests: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], NoReturn]
) -> Iterator[None]:
    # What is ignored from the start stays so: nohup and shells' background jobs count on it.
    heard = [request for request in requests if signal.getsignal(request) != signal.SIG_IGN]
    before = {request: signal.signal(request, handler) for request in heard}
    try:
        yield
    finally:
        for request, previous in before.items():
            signal.signal(request, previous)
