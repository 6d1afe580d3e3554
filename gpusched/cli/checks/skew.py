"""Whether the processes of a cluster have the same versions as this one."""

from __future__ import annotations

from distributed import Client

from gpusched import config
from gpusched.cli.checks.finding import Finding
from gpusched.workers.versions import differences, own_versions


def versions(address: str) -> Finding:
    """Compare this process's versions with a scheduler's and with its workers'."""
    timeout = config.get("run.connect-timeout")
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        return Finding.failure(
            f"no scheduler answers at {address}: {error}", "check the address, and that it runs"
        )
    with client:
        told = {f"at the scheduler {address}": client.run_on_scheduler(own_versions)}
        for worker, found in client.run(own_versions, on_error="return").items():
            told[f"at the worker {worker}"] = found
    wrong = [f"{where}: {found}" for where, found in told.items() if isinstance(found, Exception)]
    mine = own_versions()
    for where, found in told.items():
        if not isinstance(found, Exception):
            wrong += differences(mine, found, where)
    if wrong:
        return Finding.failure("; ".join(wrong), "install the same versions everywhere")
    return Finding.ok(f"the scheduler's and {len(told) - 1} workers' are those of this machine")
