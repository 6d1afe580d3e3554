"""What tests of admission have in common: a worker of little memory, in this process."""

from __future__ import annotations

from typing import Any

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


def watch(worker: DeviceWorker) -> list[str]:
    """Note from now on when a worker holds, receives and has reserved more than its limit.

    Looked at whenever something starts, and after whatever becomes of tasks and transfers. Tasks
    that need next to nothing are left out.
    """
    admission = admission_of(worker)
    ledger, found = admission.ledger, list[str]()

    def looking(after: Any) -> Any:
        def call(*args: Any) -> Any:
            result = after(*args)
            # In this order, nothing is counted twice that arrives meanwhile.
            held = admission._memory.held()
            admission._observe()
            reserved = [each.total for each in ledger.needs.values()]
            large = sum(each for each in reserved if each > ledger.slight)
            if held + ledger.in_flight + large > ledger.limit:
                found.append(f"{held} held, {ledger.in_flight} in flight, {reserved} reserved")
            return result

        return call

    for owner, name in ((ledger, "start"), (ledger, "receive"), (worker, "handle_stimulus")):
        setattr(owner, name, looking(getattr(owner, name)))
    return found
