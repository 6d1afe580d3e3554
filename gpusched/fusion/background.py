"""Compilation while tasks go on: a thread that compiles what is asked for, most wanted first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from gpusched.fusion.handles import Code

logger = logging.getLogger(__name__)


class Background:
    """A thread that compiles, and ends when there is nothing left to do.

    Notes
    -----
    Thread-safe. The thread does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[Code, float] = {}
        self._thread: threading.Thread | None = None

    def request(self, codes: Iterable[Code], gain: float) -> None:
        """Have something compiled.

        Parameters
        ----------
        codes
            What.
        gain
            Seconds that are expected to be saved by it: the larger, the sooner its turn.
        """
        with self._lock:
            for code in codes:
                code.requested = True
                self._wanted[code] = self._wanted.get(code, 0.0) + gain
            if self._wanted and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="gpusched-compile", daemon=True
                )
                self._thread.start()

    def _next(self) -> Code | None:
        with self._lock:
            if not self._wanted:
                self._thread = None
                return None
            most = max(self._wanted, key=self._wanted.__getitem__)
            del self._wanted[most]
            return most

    def _run(self) -> None:
        while (code := self._next()) is not None:
            try:
                code.wait()
            except Exception as error:
                # Whoever runs the plan says so: a failed kernel is a reason not to fuse.
                logger.info("kernel %s cannot be compiled", code.name, exc_info=True)
                code.error = error

    def join(self, timeout: float | None = None) -> None:
        """Wait until all is compiled that has been asked for."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)


_process = Background()


def request(codes: Iterable[Code], gain: float) -> None:
    """Have something compiled in this process's background; see `Background.request`."""
    _process.request(codes, gain)


def join(timeout: float | None = None) -> None:
    """Wait until all is compiled that this process has asked for."""
    _process.join(timeout)
