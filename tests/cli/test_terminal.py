"""Progress on a real (pseudo) terminal, and in a file."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading

import dask
import pytest

import gpusched
from gpusched.cli.progress import progress
from tests.waiting import PATIENCE

from .conftest import Runner

# Ends once the test has seen progress, and so has written the file "seen".
UNTIL_SEEN = """
import pathlib, dask, threading
def task(number):
    while not pathlib.Path("seen").exists():
        threading.Event().wait(0.05)
    return number
print("sum", sum(dask.compute(*[dask.delayed(task)(n) for n in range(10)])))
"""


def test_progress_is_drawn_and_erased(gpusched_run: Runner) -> None:
    ours, theirs = pty.openpty()
    process = gpusched_run.start(
        "--local", gpusched_run.script(UNTIL_SEEN), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    guard = threading.Timer(PATIENCE, process.kill)
    guard.start()
    shown = b""
    try:
        while True:
            shown += os.read(ours, 4096)
            if b"of 10 tasks" in shown:
                (gpusched_run.folder / "seen").touch()
    except OSError:
        # Linux says so when the last writer has closed the terminal.
        pass
    finally:
        guard.cancel()
        os.close(ours)
    assert process.wait(timeout=PATIENCE) == 0
    text = shown.decode()
    assert re.search(r"\r\x1b\[K\[\.+\] 0 of 10 tasks, \d+\.\d s", text)
    # The script's line and the summary stand alone, with the progress line erased before them.
    assert re.search(r"\r\x1b\[Ksum 45\r\ngpusched: ", text), text


def test_quiet_draws_nothing(gpusched_run: Runner) -> None:
    (gpusched_run.folder / "seen").touch()
    ours, theirs = pty.openpty()
    process = gpusched_run.start(
        "--local", "--quiet", gpusched_run.script(UNTIL_SEEN), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    assert process.wait(timeout=PATIENCE) == 0
    assert os.read(ours, 4096) == b"sum 45\r\n"
    os.close(ours)


WRITTEN = threading.Event()


def until_written(number: int) -> bool:
    return WRITTEN.wait(PATIENCE)


class Watched(io.StringIO):
    """A file that says when it has two lines."""

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.getvalue().count("\n") >= 2:
            WRITTEN.set()
        return count


def test_a_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process: tasks wait until two lines are written."""
    file = Watched()
    monkeypatch.setattr(sys, "stderr", file)
    tasks = [dask.delayed(until_written)(number) for number in range(3)]
    with gpusched.local(threads=1) as client, progress(client, first=0.01):
        assert all(dask.compute(*tasks))
    lines = file.getvalue().splitlines()
    assert len(lines) >= 2
    assert all(re.fullmatch(r"gpusched: 0 of 3 tasks, \d+\.\d s", line) for line in lines)


def test_a_file_gets_no_line_of_what_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Watched()
    monkeypatch.setattr(sys, "stderr", file)
    with gpusched.local(threads=1) as client, progress(client, interval=0.001):
        assert dask.delayed(sum)([1, 2]).compute() == 3
    assert file.getvalue() == ""
