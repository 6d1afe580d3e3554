"""`gpusched.profile`: begins and ends a profile."""

from __future__ import annotations

import uuid
from time import perf_counter
from typing import Any

from gpusched import config, events, settings
from gpusched.profiling import local_schedulers
from gpusched.profiling.clocks import Offset
from gpusched.profiling.process_report import Gathered, Report, process
from gpusched.profiling.remote import Remote
from gpusched.profiling.report import Profile
from gpusched.quantities import count
from gpusched.roles import current_client

_DEFAULT: Any = object()


def profile(client: Any = _DEFAULT) -> Session:
    """Record everything that runs while a block runs, here and on a cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        The `distributed.Client` of the cluster that is recorded, too; None for none. Default:
        the process's own, if there is one when the block begins.

    Returns
    -------
    Session
        A context manager, also for ``async with``, which gives the `Profile`. It holds nothing
        until the block has ended.

    Raises
    ------
    TypeError
        If it is not a client.
    RuntimeError
        As the block begins, if the client is closed, or workers cannot record.
    gpusched.settings.SettingError
        If a setting of gpusched's has a value that it cannot have.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable(), gpusched.profile() as found:
    ...     x = da.ones((4000, 1000), chunks=(1000, 1000))
    ...     _ = ((x - 1) * 3 + 2).sum().compute(scheduler="threads")
    >>> [kernel.launches for kernel in found.kernels]
    [4]
    """
    settings.check_changes(stacklevel=2)
    return Session(client)


class Session:
    """One profile, from its beginning to its end.

    Notes
    -----
    Several may go on at once, in any threads; each records everything of this process.
    """

    def __init__(self, client: Any) -> None:
        self._token = uuid.uuid4().hex
        self._limit = config.get("profiling.maximum-events")
        self._looked = client is _DEFAULT
        self._client: Any = current_client() if self._looked else client
        client = self._client
        if client is not None and not hasattr(client, "register_plugin"):
            raise TypeError(
                f"gpusched.profile takes a distributed.Client, or None for this process alone, not "
                f"{client!r}"
            )
        self._remote = None if client is None else Remote(client, self._token, self._limit)
        self._profile = Profile()
        self._begun = False

    def __enter__(self) -> Profile:
        if self._client is not None and self._client.asynchronous:
            raise RuntimeError(
                "the client is asynchronous: use `async with gpusched.profile()`, or "
                "gpusched.profile(client=None) for this process alone"
            )
        self._begin()
        try:
            if self._remote is not None:
                self._client.sync(self._remote.begin)
        except BaseException:
            self._stop()
            raise
        self._began = perf_counter()
        return self._profile

    def __exit__(self, *exception: Any) -> None:
        ended = perf_counter()
        gathered = Gathered()
        try:
            if self._remote is not None:
                gathered = self._end_remote(self._remote)
        finally:
            self._finish(ended, gathered)

    async def __aenter__(self) -> Profile:
        self._begin()
        try:
            if self._remote is not None:
                await self._remote.begin()
        except BaseException:
            self._stop()
            raise
        self._began = perf_counter()
        return self._profile

    async def __aexit__(self, *exception: Any) -> None:
        ended = perf_counter()
        gathered = Gathered()
        try:
            if self._remote is not None:
                gathered = await self._remote.end()
        finally:
            self._finish(ended, gathered)

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("a profile begins once: call gpusched.profile() again")
        if self._client is not None and self._client.status != "running":
            raise RuntimeError(
                f"the client is {self._client.status}: make another one, or profile this process "
                "alone with gpusched.profile(client=None)"
            )
        self._begun = True
        self._recording = events.start(self._token, self._limit)
        local_schedulers.watch()

    def _stop(self) -> None:
        local_schedulers.unwatch()
        events.stop(self._token)

    def _end_remote(self, remote: Remote) -> Gathered:
        if self._client.status != "running":
            # Its event loop may have ended, too.
            return remote.lost()
        found: Gathered = self._client.sync(remote.end)
        return found

    def _finish(self, ended: float, gathered: Gathered) -> None:
        self._stop()
        here = Report(process(), ["client"], list(self._recording.events), self._recording.dropped)
        reports = [(here, Offset(0.0, 0.0))]
        for report, clock in gathered.reports:
            if report.process == here.process:
                # Workers of this process recorded what is here already.
                here.names += report.names
                here.events += [event for event in report.events if event[0] == "transfer"]
                here.totals = report.totals
            else:
                reports.append((report, clock))
        if self._looked and self._remote is None and current_client() is not None:
            gathered.notes.append(
                "a client was made during the profile, whose cluster was not recorded: make it "
                "before gpusched.profile() begins"
            )
        if self._recording.elsewhere:
            gathered.notes.append(
                f"the tasks of {count(self._recording.elsewhere, 'computation')}, which ran in "
                "processes of dask's own: use scheduler='threads', or a cluster's client"
            )
        self._profile._fill(reports, self._recording.origins, self._began, ended, gathered)
