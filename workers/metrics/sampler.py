"""What NVML says of a GPU, asked at most once a second and never on the event loop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two samples."""

LIFETIME = 10.0
"""Seconds after which a sample says nothing any more, since NVML does not answer."""


def _ask(uuid: str) -> Any:
    from gpusched.workers.nvml import sample

    return sample(uuid)


def _in_thread(work: Callable[[], None]) -> None:
    # A daemon, since the driver may hold a call for as long as a GPU that fell off its bus is
    # being looked for, and a process must be able to end meanwhile.
    threading.Thread(target=work, name="gpusched-nvml", daemon=True).start()


class Sampler:
    """Keeps the last sample of each GPU.

    Notes
    -----
    Thread-safe.

    Examples
    --------
    >>> from gpusched.workers.metrics.sampler import Sampler
    >>> sampler = Sampler(ask=lambda uuid: "70 degrees", start=lambda work: work())
    >>> sampler.latest("GPU-1"), sampler.latest("GPU-1")
    (None, '70 degrees')
    """

    def __init__(
        self,
        ask: Callable[[str], Any] = _ask,
        start: Callable[[Callable[[], None]], None] = _in_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._start = start
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: dict[str, tuple[float, Any]] = {}
        self._asked: dict[str, float] = {}
        self._asking: set[str] = set()
        self._failed: set[str] = set()

    def latest(self, uuid: str) -> Any:
        """Return the last sample, or None where there is none; start the next if it is time."""
        now = self._clock()
        with self._lock:
            taken, sample = self._samples.get(uuid, (-LIFETIME, None))
            due = now - self._asked.get(uuid, -INTERVAL) >= INTERVAL and uuid not in self._asking
            if due:
                self._asked[uuid] = now
                self._asking.add(uuid)
        if due:
            self._start(lambda: self._take(uuid))
        return sample if now - taken < LIFETIME else None

    def _take(self, uuid: str) -> None:
        try:
            sample = self._ask(uuid)
        except Exception:
            # The driver's errors are of many kinds, and a thread's end would go unnoticed.
            sample = None
            if uuid not in self._failed:
                self._failed.add(uuid)
                logger.exception("NVML reports nothing of %s; logged once", uuid)
        with self._lock:
            self._samples[uuid] = (self._clock(), sample)
            self._asking.discard(uuid)
