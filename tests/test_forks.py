"""What a forked process computes does not wait for threads that it has not got."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpusched import forks
from tests.kernelsettings import KERNELS
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

OWN_WAY = {
    "gpusched/backends/buffer_pool.py", "gpusched/forks.py", "gpusched/newest.py",
    "gpusched/store/background.py", "gpusched/store/service/client.py",
    "gpusched/store/unfused.py",
    "gpusched/threadsafe/dedicated.py", "gpusched/threadsafe/limits.py",
    "gpusched/threadsafe/locks.py", "gpusched/threadsafe/registry.py",
    "gpusched/threadsafe/waits.py",
}  # fmt: skip
"""Files whose objects start again in a forked process."""
NOT_FORKED = {"gpusched/cli/progress.py"}
"""Files of commands, whose processes fork nothing that computes."""

PROGRAM = """
import os, signal, threading
import dask, dask.array as da, numpy as np, gpusched
from gpusched import forks

def compute():
    x = da.from_array(np.arange(40_000.0).reshape(200, 200), chunks=(100, 200))
    return (x * x + 3).sum(axis=0).compute(scheduler="sync")

gpusched.enable()
expected = compute()
taken, over = threading.Event(), threading.Event()

def hold():
    for each in list(forks._all):
        each.acquire()
    taken.set()
    over.wait()

# As if threads were in the middle of everything; they do not keep this process from ending.
threading.Thread(target=hold, daemon=True).start()
taken.wait()
if not (pid := os.fork()):
    signal.alarm(PATIENCE)
    for mode in ("background", "off", "wait"):
        with dask.config.set({"gpusched.fusion.compile": mode}):
            assert np.allclose(compute(), expected)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0)
"""


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_process() -> None:
    held, free = forks.lock(), forks.lock()
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            taken.set()
            over.wait()

    other = threading.Thread(target=hold)
    other.start()
    taken.wait()
    try:
        if not (pid := os.fork()):
            signal.alarm(int(PATIENCE / 4))
            with held, free:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert held.locked(), "here all is as before"
    finally:
        over.set()
        other.join()


@pytest.mark.processes
def test_a_forked_process_computes_whatever_other_threads_did(kernel_cache: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c",
               PROGRAM.replace("PATIENCE", str(int(PATIENCE / 4)))]  # fmt: skip
    environment = os.environ | KERNELS | {"XDG_CACHE_HOME": str(kernel_cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_locks_are_of_objects_that_start_again() -> None:
    made = re.compile(r"\bthreading\.(?:Lock|RLock|Condition)\(")
    paths = [path for folder in ("gpusched", "serialization")
             for path in (ROOT / folder).rglob("*.py")]  # fmt: skip
    found = {str(path.relative_to(ROOT)) for path in paths if made.search(path.read_text())}
    assert found == OWN_WAY | NOT_FORKED
