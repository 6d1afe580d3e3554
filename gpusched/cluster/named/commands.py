"""What can be done with named clusters, from any process of their user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gpusched.cluster.named import control, state
from gpusched.cluster.named.state import Record

_STEP = 0.05
"""Seconds between two looks at a cluster that is changing."""


class StartError(RuntimeError):
    """A cluster could not be started; the message is its manager's."""


@dataclass(frozen=True)
class Status:
    """How a cluster is."""

    name: str
    state: str
    """``running``, ``starting``, ``not answering``, ``dead`` or ``damaged``."""
    record: Record | None = None
    problem: str = ""
    """What is damaged, and the remedy."""
    workers: list[dict[str, Any]] = field(default_factory=list)
    requested: int = 0
    """Number of workers there should be."""


def start(name: str, arguments: dict[str, Any]) -> Record:
    """Start a cluster that outlives this process; return what its manager wrote down.

    Raises `ValueError` if the name cannot be one, or an argument is wrong; `StartError` if there is
    one of that name, or it does not start.

    Parameters
    ----------
    name
        Of the cluster.
    arguments
        Those of `gpusched.Cluster`, as JSON can hold them, and ``tls``, a folder of certificates.
    """
    folder = state.folder_of(name)
    state.log_of_failure(folder).unlink(missing_ok=True)
    command = [sys.executable, "-m", "gpusched.cluster.named.manager", str(folder)]
    with subprocess.Popen(
        [*command, json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as manager:
        assert manager.stdout is not None
        try:
            line = manager.stdout.readline()
        except BaseException:
            manager.terminate()
            raise
        told: dict[str, Any] = json.loads(line) if line else {"error": _last_words(folder)}
        if told.keys() & {"error", "unusable"}:
            manager.wait()
            log = _put_away(folder)
            if "unusable" in told:
                raise ValueError(told["unusable"])
            raise StartError(told["error"] + log)
        # The manager goes on; only Python's wait for it at the end of the block is left out.
        manager.returncode = 0
    return Record(**told)


def status(name: str) -> Status:
    """Return how a cluster is.

    Raises `state.UnknownClusterError` if there is no trace of one.
    """
    folder = _existing(name)
    try:
        record = state.read(folder)
    except state.DamagedError as error:
        record, problem = None, f"{error}. `gpusched cluster stop {name}` removes it"
    else:
        problem = ""
    if not state.is_alive(folder):
        return Status(name, "damaged" if problem else "dead", record, problem)
    try:
        told = control.ask(folder, {"op": "status"})
    except control.ControlError:
        waiting = "not answering" if record or problem else "starting"
        return Status(name, waiting, record, problem)
    # The manager knows its own record, whatever has become of the file.
    own = Record(**told["record"])
    return Status(name, "running", own, "", told["workers"], told["requested"])


def scale(name: str, workers: int, timeout: float = 60) -> int:
    """Change the number of workers, and wait until they are there; return how many are.

    Raises
    ------
    control.ControlError
        If the cluster does not answer, or has not that many GPUs.
    """
    folder = _existing(name)
    control.ask(folder, {"op": "scale", "workers": workers})
    deadline = time.monotonic() + timeout
    while True:
        present = len(control.ask(folder, {"op": "status"})["workers"])
        if present == workers or time.monotonic() > deadline:
            return present
        time.sleep(_STEP)


def stop(name: str, timeout: float = 30) -> str:
    """Stop a cluster and return in words what that took.

    Raises `state.UnknownClusterError` if there is no trace of one.
    """
    folder = _existing(name)
    if not state.is_alive(folder):
        state.forget(folder)
        return "was dead; its traces are removed"
    processes = _descendants(state.manager_of(folder))
    try:
        control.ask(folder, {"op": "stop"})
        if _gone(folder, timeout):
            # Its manager ends a moment after it has given the folder back.
            psutil.wait_procs(processes, timeout=timeout)
            return "stopped"
    except control.ControlError:
        # It is ended from outside then.
        timeout = min(timeout, 5)
    descendants = _descendants(state.manager_of(folder))
    if not descendants:
        return "is still starting: try again"
    for process in descendants[:1]:
        process.terminate()
    if not _gone(folder, timeout):
        for process in descendants:
            _kill(process)
        _gone(folder, timeout)
        state.forget(folder)
        return "did not stop and was killed"
    state.forget(folder)
    return "did not answer and was terminated"


def log_of(name: str) -> Path:
    """Return the path of a cluster's log, or of that of its last start, which failed.

    Raises `state.UnknownClusterError` if there is no trace of one.
    """
    folder = state.folder_of(name)
    kept = state.log_of_failure(folder)
    return kept if kept.exists() and not folder.exists() else _existing(name) / "log"


def _existing(name: str) -> Path:
    folder = state.folder_of(name)
    if not os.path.lexists(folder):
        known = ", ".join(state.names()) or "none"
        raise state.UnknownClusterError(f"there is no cluster {name!r}; there are: {known}")
    return folder


def _gone(folder: Path, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while state.is_alive(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True


def _descendants(pid: int | None) -> list[psutil.Process]:
    if pid is None:
        return []
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _put_away(folder: Path) -> str:
    """Remove the folder of a cluster that did not start; return in words where its log is."""
    if state.is_alive(folder) or not folder.is_dir():
        # Another cluster has the name, or something else is in the way, which is not ours.
        return ""
    log = state.keep_log(folder)
    state.forget(folder)
    return "" if log is None else f" (its log: {log})"


def _last_words(folder: Path) -> str:
    try:
        lines = (folder / "log").read_text().splitlines()
    except OSError:
        lines = []
    return "its manager died: " + (lines[-1] if lines else "it left no word")
