"""Progress on a real (pseudo) terminal."""

from __future__ import annotations

import os
import pty
import re
import threading

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
