"""The part of a profile that is recorded by a cluster's processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from time import perf_counter
from typing import Any

from dask.utils import natural_sort_key

from gpusched.profiling.clocks import Exchange, Offset, offset, read
from gpusched.profiling.memory_bandwidth import limit_of
from gpusched.profiling.process_report import Gathered, Limit, Report, plugin_name, process

_ROUNDS = 4
"""Times that clocks are read, at the beginning and at the end."""
_PATIENCE = 60.0
"""Seconds that a cluster, which may be busy, may take to begin and to answer at the end."""


class Remote:
    """Begins and ends recording on a cluster.

    Parameters
    ----------
    client
        Of the cluster.
    token, limit
        The profile's, and each process's number of events at most.

    Notes
    -----
    Runs on the client's event loop.
    """

    def __init__(self, client: Any, token: str, limit: int) -> None:
        self._client = client
        self._token = token
        self._limit = limit
        self._exchanges: defaultdict[str, list[Exchange]] = defaultdict(list)
        self._present: set[str] = set()
        self._notes: list[str] = []

    async def begin(self) -> None:
        """Begin.

        Raises `RuntimeError` if workers cannot record.
        """
        from gpusched.profiling.plugins import Watch, WatchScheduler

        async with asyncio.timeout(_PATIENCE):
            identity = await self._client.scheduler.identity(n_workers=-1)
            self._present = set(identity["workers"])
            await self._register(WatchScheduler(self._token, self._limit, self._client.id))
            try:
                await self._client.register_plugin(Watch(self._token, self._limit))
            except Exception as error:
                await self._end_recording()
                raise RuntimeError(
                    f"a worker cannot record for gpusched.profile ({type(error).__name__}: "
                    f"{error}). Install gpusched where the workers run, in the version of the "
                    "client, or profile without a client: gpusched.profile(client=None)"
                ) from error
            await self._read_clocks()

    async def _register(self, plugin: Any) -> None:
        try:
            await self._client.register_plugin(plugin)
        except Exception as error:  # noqa: BLE001
            # Such as one that may unpickle nothing, or has no gpusched.
            self._notes.append(f"the scheduler records nothing: {type(error).__name__}: {error}")

    async def end(self) -> Gathered:
        """End, and return what was recorded."""
        if self._client.status != "running":
            return self.lost()
        found = Gathered(notes=self._notes)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._read_clocks()
                await self._gather(found)
                await self._end_recording()
        except (OSError, TimeoutError) as error:
            found.notes.append(f"the cluster did not answer in {_PATIENCE:g} s, and what it has "
                               f"not sent is lost ({error or type(error).__name__})")  # fmt: skip
        return found

    def lost(self) -> Gathered:
        """Return what there is of a client that was closed during the profile."""
        told = "the client was closed before the profile ended: what its cluster recorded is lost"
        return Gathered(notes=[*self._notes, told])

    async def _gather(self, found: Gathered) -> None:
        from gpusched.profiling.plugins import worker_report

        answers = await self._client.run(worker_report, self._token, on_error="return")
        reports: dict[Any, tuple[Report, Offset]] = {}
        asked: dict[tuple[str, str], str] = {}
        for address, report in answers.items():
            if not isinstance(report, Report) or address not in self._exchanges:
                found.notes.append(f"worker {address} reported nothing: {report!r}")
            elif report.process in reports:
                _join(reports[report.process][0], report)
            else:
                reports[report.process] = report, offset(self._exchanges[address])
            for device in _devices(report) if isinstance(report, Report) else ():
                asked.setdefault((report.process[0], device), address)
        told = await self._scheduler(found)
        if told is not None:
            reports.setdefault(told[0].process, told)
        found.reports = sorted(
            reports.values(), key=lambda told: natural_sort_key(told[0].names[0])
        )
        await self._measure(asked, found)
        for gone in sorted(self._present - answers.keys()):
            found.notes.append(f"worker {gone} left before the profile ended: its events are lost")

    async def _measure(self, asked: dict[tuple[str, str], str], found: Gathered) -> None:
        """Have one worker of each machine report what its devices can do."""
        for (host, device), address in asked.items():
            if device == "cpu" and host == process()[0]:
                continue
            told = await self._client.run(limit_of, device, workers=[address], on_error="return")
            limit = told.get(address)
            if isinstance(limit, Limit):
                (found.limits if device == "cpu" else found.gpu_limits)[host] = limit
            else:
                found.notes.append(f"the bandwidth of {device} on {host} is not known: {limit!r}")

    async def _scheduler(self, found: Gathered) -> tuple[Report, Offset] | None:
        from gpusched.profiling.plugins import scheduler_report

        told = await self._client.run_on_scheduler(scheduler_report, self._token)
        if told is None:
            return None
        report, changes = told
        clock = offset(self._exchanges["scheduler"])
        found.changes = [(at - clock.seconds, f"worker {who} {what}") for at, what, who in changes]
        return report, clock

    async def _read_clocks(self) -> None:
        for _ in range(_ROUNDS):
            asked = perf_counter()
            readings = await self._client.run(read, on_error="ignore")
            answered = perf_counter()
            for address, reading in readings.items():
                self._exchanges[address].append(Exchange(reading, asked, answered))
            asked = perf_counter()
            reading = await self._client.run_on_scheduler(read)
            self._exchanges["scheduler"].append(Exchange(reading, asked, perf_counter()))

    async def _end_recording(self) -> None:
        await self._client.unregister_worker_plugin(plugin_name(self._token))


def _join(first: Report, second: Report) -> None:
    """Add to a process's report what another of its workers reports."""
    first.names += second.names
    first.events += [event for event in second.events if event[0] == "transfer"]
    for name, seconds in second.totals.items():
        first.totals[name] = first.totals.get(name, 0.0) + seconds


def _devices(report: Report) -> set[str]:
    """Return the devices that kernels ran on."""
    return {str(event[-1][0]) for event in report.events if event[0] == "kernel"}
