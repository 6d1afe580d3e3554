"""Ctrl-C, and interrupting a cell of a notebook, are for the process that has started workers."""

from __future__ import annotations

import os
import signal

import pytest
from distributed import Client

from gpusched import Cluster
from tests.waiting import PATIENCE


@pytest.mark.processes
def test_workers_outlive_an_interrupt() -> None:
    with Cluster(1, 1) as cluster, Client(cluster) as client:
        ((_, pid),) = client.run(os.getpid).items()
        os.kill(pid, signal.SIGINT)
        assert client.submit(signal.getsignal, signal.SIGINT).result(PATIENCE) == signal.SIG_IGN
        assert client.submit(os.getpid).result(PATIENCE) == pid
