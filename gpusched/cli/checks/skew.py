"""Whether the processes of a cluster have the same versions as this one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from gpusched.cli.checks.finding import Finding
from gpusched.cli.scheduler_connection import ask, describe
from gpusched.cluster.contact import NoSchedulerError
from gpusched.installing import DISTRIBUTION
from gpusched.quantities import count
from gpusched.workers.version_check import (
    HANDSHAKE_KEY,
    PACKAGES,
    differences,
    of_handshake,
    own_versions,
)

Versions = dict[str, str]


def versions(address: str, certificates: Mapping[str, str | None] | None = None) -> Finding:
    """Compare this process's versions with a scheduler's and with its workers'."""
    try:
        scheduler, workers, silent = ask(address, _collect, certificates)
    except (ValueError, NoSchedulerError) as error:
        remedy = "check the address, that the scheduler runs, and its certificates (--tls)"
        return Finding.failure(str(error), remedy)
    wrong = differences(own_versions(), scheduler, f"at the scheduler {address}")
    for found, where in _alike(workers):
        wrong += differences(own_versions(), found, where)
        if DISTRIBUTION not in found:
            wrong.append(f"gpusched is not installed {where}")
    if wrong:
        return Finding.failure("; ".join(wrong), "install the same versions everywhere")
    if silent:
        return Finding.warning(silent, "look at its log; stop it if it hangs")
    of_workers = count(len(workers), "worker")
    return Finding.ok(f"those of the scheduler and of {of_workers} are this machine's")


async def _collect(scheduler: Any, seconds: float) -> tuple[Versions, dict[str, Versions], str]:
    """Return the scheduler's versions, its workers' by address, and which did not report them."""
    async with asyncio.timeout(seconds):
        own = of_handshake(await scheduler.versions(packages=PACKAGES), {})
    known = (await describe(scheduler, seconds))["workers"]
    # gpusched's workers have told the scheduler when they joined. Only others are asked, since
    # one that hangs would keep all answers back.
    told = {at: of_handshake({}, each) for at, each in known.items() if HANDSHAKE_KEY in each}
    others = {at: each for at, each in known.items() if at not in told}
    question = {"op": "versions", "packages": list(PACKAGES)}
    try:
        async with asyncio.timeout(seconds):
            answers = await scheduler.broadcast(
                msg=question, workers=list(others), on_error="ignore"
            )
    except TimeoutError:
        last = min(others, key=lambda at: float(others[at]["last_seen"]))
        return own, told, (
            f"of {len(others)} workers that are not gpusched's, not all sent their versions within "
            f"{seconds:g} s; that at {last} was heard of longest ago"
        )  # fmt: skip
    told |= {at: of_handshake(answer, {}) for at, answer in answers.items()}
    missing = sorted(set(others) - set(answers))
    return own, told, f"no versions were reported by {', '.join(missing)}" if missing else ""


def _alike(workers: Mapping[str, Versions]) -> list[tuple[Versions, str]]:
    """Return each set of versions once, with the workers that have it in words."""
    groups: defaultdict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for address, found in workers.items():
        groups[tuple(sorted(found.items()))].append(address)
    return [(dict(found), _where(addresses)) for found, addresses in groups.items()]


def _where(addresses: list[str]) -> str:
    if len(addresses) == 1:
        return f"at the worker {addresses[0]}"
    return f"at {len(addresses)} workers, as at {addresses[0]}"
