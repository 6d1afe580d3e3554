"""A failed task is one line in a worker's log."""

from __future__ import annotations

import logging

import pytest
from distributed import Client
from distributed.core import Status

from gpusched import Cluster


def broken() -> None:
    raise RuntimeError("told:\nby the task")


def test_failed_task_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    options = {"preload": ["gpusched.workers.brief_logs"]}
    with (
        caplog.at_level(logging.ERROR, logger="distributed.worker"),
        Cluster(1, 1, processes=False, worker_options=options) as cluster,
        Client(cluster) as client,
    ):
        future = client.submit(broken, key="its-key")
        with pytest.raises(RuntimeError, match="told"):
            future.result()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "distributed.worker"]
    assert line.startswith("task its-key failed: ")
    assert "told" in line
    assert "\n" not in line


def test_farewells_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """What workers and their nannies' threads say of a scheduler that closes with them."""
    lost = "Failed to communicate with scheduler during heartbeat."
    logger = logging.getLogger("distributed.worker")
    with caplog.at_level(logging.ERROR, logger="distributed.worker"):
        with Cluster(1, 1, processes=False) as cluster:
            (worker,) = cluster.workers.values()
            logger.error(lost)
            worker.status = Status.paused
            logger.error(lost)
            worker.status = Status.running
        logger.error(lost)
        logger.error("something else")
    told = [r.getMessage() for r in caplog.records if r.name == "distributed.worker"]
    assert told == [lost, lost, "something else"]
