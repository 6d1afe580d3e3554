"""The processes that a launcher starts: asked to stop, and waited for, in one thread."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from gpusched.orphans import end_with_parent

OUT_OF_TIME = 124
"""Exit code of what was ended because its time was over, as that of timeout(1)."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code of what SIGTERM ended."""

_REQUESTS = {
    signal.SIGUSR1: OUT_OF_TIME,
    signal.SIGUSR2: OUT_OF_TIME,
    signal.SIGTERM: TERMINATED,
    signal.SIGINT: 128 + signal.SIGINT,
    signal.SIGHUP: 128 + signal.SIGHUP,
}
"""What queueing systems send, and the exit code it asks for."""


class Stopped(Exception):
    """Raised in a process that was asked to stop."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Children:
    """Child processes; on leaving the block, those that still live are killed.

    Parameters
    ----------
    limit
        Seconds after which this process is asked to stop as if by SIGUSR1; None for no limit.

    Notes
    -----
    For the main thread of a process without others. Signals are blocked from the beginning and
    taken one by one in `wait`, so that none is lost and no code is interrupted by one. Children
    are leaders of process groups, so that a signal for the whole group of this process, as Ctrl-C
    is, reaches them by this process alone, in order. If this process is killed, they get SIGTERM.
    """

    def __init__(self, limit: float | None = None) -> None:
        self._ends = None if limit is None else time.monotonic() + limit
        self._started: list[subprocess.Popen[bytes]] = []
        self._mask: set[signal.Signals] = set()
        self._watched = {signal.SIGCHLD}

    def __enter__(self) -> Children:
        # What is ignored from the start stays so: nohup counts on it.
        heard = {n for n in _REQUESTS if signal.getsignal(n) is not signal.SIG_IGN}
        self._watched |= heard
        self._mask = {*map(signal.Signals, signal.pthread_sigmask(signal.SIG_BLOCK, self._watched))}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in self._started:
            if child.poll() is None:
                child.kill()
                child.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process; ``environment`` is added to this one's."""
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            process_group=0,
            preexec_fn=_begin(self._mask, os.getpid()),
        )
        self._started.append(child)
        return child

    def wait(self, seconds: float | None = None) -> None:
        """Return when a child has ended, or after so many seconds.

        Raises `Stopped` if this process has been asked to stop.
        """
        left = [each for each in (seconds, self._left()) if each is not None]
        number = self._next(min(left, default=None))
        if number is not None and number != signal.SIGCHLD:
            raise Stopped(_REQUESTS[number])
        if self._left() == 0:
            self._ends = None
            raise Stopped(OUT_OF_TIME)

    def ended(self, child: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait for a child that long; return whether it has ended. Requests stay unheard."""
        deadline = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < deadline:
            self._next(deadline - time.monotonic())
        return child.poll() is not None

    def end(self, child: subprocess.Popen[bytes], seconds: float) -> None:
        """Ask a child to end, and kill it if it takes longer. Requests stay unheard."""
        if child.poll() is None:
            child.terminate()
        if not self.ended(child, seconds):
            child.kill()
            child.wait()

    def _left(self) -> float | None:
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def _next(self, seconds: float | None) -> signal.Signals | None:
        if seconds is None:
            return signal.Signals(signal.sigwait(self._watched))
        found = signal.sigtimedwait(self._watched, max(0.0, seconds))
        return None if found is None else signal.Signals(found.si_signo)


def _begin(mask: set[signal.Signals], parent: int) -> Callable[[], None]:
    def begin() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            # It died before the kernel was told.
            os._exit(TERMINATED)

    return begin
