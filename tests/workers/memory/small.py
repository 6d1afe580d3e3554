"""What tests of admission have in common: a worker of little memory, in this process."""

from __future__ import annotations

from gpusched.workers.memory.admit import Admission
from gpusched.workers.worker import DeviceWorker

PART = 1_000_000
OWN = {
    "gpusched.memory.admission": True,
    # What this whole process takes says nothing of a worker in it.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}


def admission_of(worker: DeviceWorker) -> Admission:
    assert worker.admission is not None
    return worker.admission
