"""The most memory that a process has had between two looks, and what is learned of tasks by it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from distributed import Client

from gpusched.workers.memory.high_water import HighWater, Resident
from gpusched.workers.worker import DeviceWorker
from tests.workers.memory.small import PART, admission_of

SIZE = 64 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_look_has_the_most_since_the_last() -> None:
    high_water = HighWater()
    before = high_water.look()
    if before is None:
        pytest.skip("this machine does not let a process begin its count again")
    np.ones(SIZE, np.uint8)
    after, later = high_water.look(), high_water.look()
    assert after is not None and later is not None
    assert after.most >= before.now + SIZE // 2 > after.now
    assert later.most < before.now + SIZE // 2
    high_water.close()
    assert high_water.look() is None


def test_what_functions_take_for_themselves_is_learned(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    admission = admission_of(worker)
    looks = iter([Resident(PART, 2 * PART), Resident(PART, 6 * PART)])
    monkeypatch.setattr(admission._memory, "look", lambda: next(looks, None))
    x = client.scatter(np.ones(PART, np.uint8))
    assert client.submit(np.sum, x, key="sum-1").result() == PART
    assert admission.estimates.known("sum", PART) == 5 * PART
    assert admission.most_resident == 6 * PART


def test_what_others_may_have_taken_meanwhile_is_not(
    running: tuple[Client, DeviceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = running
    admission = admission_of(worker)
    looks = iter([Resident(0, 0), Resident(0, 6 * PART)])
    monkeypatch.setattr(admission._memory, "look", lambda: next(looks, None))
    x = client.scatter(np.ones(PART, np.uint8))
    admission.ledger.receive(2 * PART)
    assert client.submit(np.sum, x, key="sum-1").result() == PART
    admission.ledger.in_flight -= 2 * PART
    assert admission.estimates.known("sum", PART) == 4 * PART
