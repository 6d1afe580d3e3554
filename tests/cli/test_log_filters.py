"""What a run's output has of distributed's reports."""

from __future__ import annotations

import subprocess
import sys

import pytest

DROPPED = """
import gc
from distributed.comm.inproc import InProc, Queue
from tornado.ioloop import IOLoop
from gpusched.cli.log_filters import log_warnings_only
import distributed, logging
{first}
async def drop():
    InProc("inproc://1", "inproc://2", Queue(), Queue(), IOLoop.current(), False)
    gc.collect()
IOLoop.current().run_sync(drop)
logging.getLogger("distributed.worker").warning("a warning")
"""


@pytest.mark.processes
@pytest.mark.parametrize("first", ["", "log_warnings_only()"])
def test_connections_within_the_process_that_stay_open_are_not_reported(first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED.format(first=first)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ("dangling" in done.stderr) == (not first)
    assert "a warning" in done.stderr
