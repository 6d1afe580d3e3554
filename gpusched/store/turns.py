"""Turns at making a file: one process of a machine makes it while the others wait for it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpusched.dataclass import dataclass
from gpusched.store import codefiles

logger = logging.getLogger(__name__)

_PAUSES = (0.001, 0.02)
"""Seconds between two tries for a lock: at first, and at most."""


@dataclass
class Turn:
    """What came of asking for a turn."""

    waited: bool = False
    """Whether another process had the turn when it was asked for."""
    problem: str = ""
    """Why there was no turn, so that another process may make the same file now; empty if none."""


@contextmanager
def turn(path: Path, patience: float) -> Iterator[Turn]:
    """Wait for the turn at making a file, and hold it within the block.

    Parameters
    ----------
    path
        The file. The lock is a file beside it, which goes with the turn.
    patience
        Seconds to wait at most; the block runs without a turn then.

    Notes
    -----
    Between processes, and between threads of one. The kernel of the operating system ends the turn
    of a process that dies. A lock is held on an open file: whoever gets it on a file that is not at
    its path any more has one that nobody else can meet, and tries again.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from gpusched.store.turns import turn
    >>> with TemporaryDirectory() as folder, turn(Path(folder) / "file", patience=1) as mine:
    ...     mine
    Turn(waited=False, problem='')
    """
    taken = Turn()
    lock = path.with_name(f".{path.name}.lock")
    held = _take(lock, patience, taken)
    try:
        yield taken
    finally:
        if held is not None:
            _give_up(lock, held)


def _take(lock: Path, patience: float, taken: Turn) -> int | None:
    pause, most = _PAUSES
    until = time.monotonic() + patience
    while True:
        try:
            held = _try(lock)
        except (OSError, ImportError) as error:
            taken.problem = f"no locks: {getattr(error, 'strerror', None) or error}"
            return None
        if held is not None:
            return held
        if not taken.waited:
            logger.debug("waiting for another process at %s", lock)
        taken.waited = True
        if time.monotonic() >= until:
            taken.problem = "another process took too long"
            return None
        time.sleep(pause)
        pause = min(2 * pause, most)


def _try(lock: Path) -> int | None:
    """Return an open file that this call has locked; None if another has."""
    import fcntl  # Only where there is flock.

    codefiles.folder_for(lock)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(lock)):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _give_up(lock: Path, held: int) -> None:
    import fcntl

    try:
        # While the lock is held: nobody else's file is removed.
        lock.unlink(missing_ok=True)
    finally:
        # A child forked meanwhile has the file open, too; closing alone would leave it the lock.
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)
