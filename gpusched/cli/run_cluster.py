"""The cluster and the client of one run, and what they counted."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dask.utils import parse_timedelta
from distributed import Client
from distributed.utils import silence_logging_cmgr

from gpusched import config
from gpusched.adapters.distributed import run_on_workers
from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.log_filters import log_nothing_more
from gpusched.cli.scheduler_connection import client_connection
from gpusched.cluster import Cluster
from gpusched.cluster.contact import NoSchedulerError, find_scheduler
from gpusched.cluster.spawn import workers_without_interrupts, workers_without_main
from gpusched.cluster.statistics import Process, difference, gather
from gpusched.store.statistics import Statistics
from gpusched.workers.visible_gpus import NoDeviceError


@dataclass
class Session:
    """A client that is the default one, and what was counted before the run began."""

    client: Client
    """The default client."""
    cluster: Cluster | None
    """The cluster started for the run, if one was."""
    fused: bool
    """Whether fusion is on."""
    address: str = ""
    """The scheduler's, if it is another process's."""
    started: float = field(default_factory=time.monotonic)
    """When the run began, in seconds of the monotonic clock."""
    before: dict[Process, Statistics] = field(default_factory=dict)
    """The counters when the run began."""
    last_event: float = 0.0
    """The time of the scheduler's newest event when the run began."""

    def begin(self) -> None:
        """Note the counters and the time."""
        if self.fused:
            self.before = gather(self.client)
        self.last_event = max((stamp for stamp, _ in self._events()), default=0.0)
        self.started = time.monotonic()

    def end(self, timeout: float = 10) -> tuple[Statistics, float, list[str]]:
        """Return what was counted since the beginning, the seconds, and what is missing.

        ``timeout`` is how many seconds the workers have to answer.
        """
        seconds = time.monotonic() - self.started
        if self.client.status in ("closing", "closed"):
            return Statistics(), seconds, [f"every count: {self._why_closed(min(timeout, 2))}"]
        try:
            with silence_logging_cmgr(level=logging.CRITICAL, root="distributed"):
                after = gather(self.client, timeout) if self.fused else {}
            lost = self._lost()
            silent = max(len(self.before.keys() - after.keys()) - len(lost), 0)
            missing = [f"worker {name} died: its counts are lost" for name in lost]
            missing += ["counts of a worker that does not answer"] * silent
        except (OSError, TimeoutError) as error:
            return Statistics(), seconds, [f"every count: the scheduler does not answer ({error})"]
        return difference(after, self.before), seconds, missing

    def _why_closed(self, timeout: float) -> str:
        """Return who has closed the client: distributed does where the scheduler has gone."""
        if self.address:
            try:
                asyncio.run(find_scheduler(self.address, None, client_connection(), timeout))
            except (NoSchedulerError, OSError, ValueError):
                return f"the scheduler at {self.address} has ended, or cannot be reached any more"
        return "the script has closed its client"

    def _lost(self) -> list[str]:
        return [
            event["worker"]
            for stamp, event in self._events()
            if stamp > self.last_event
            and event.get("action") == "remove-worker"
            and not event.get("expected")
        ]

    def _events(self) -> list[tuple[float, dict[str, str]]]:
        return list(self.client.get_events("all"))


@contextmanager
def started(processes: bool = True) -> Iterator[Session]:
    """Start a cluster on this machine, as the configuration says.

    Leaving the block with an exception kills tasks that still run.
    """
    try:
        with workers_without_main(), contextlib.ExitStack() as stack:
            with workers_without_interrupts():
                cluster = Cluster(
                    processes=processes, worker_options={"preload": ["gpusched.workers.brief_logs"]}
                )
                stack.callback(cluster.close)
                kill = _killing(cluster)
                stack.push(kill)
                client = stack.enter_context(Client(cluster))
            # Killing the tasks comes first, so that the client has nothing to wait for.
            stack.push(kill)
            yield Session(client, cluster, config.get("fusion.enabled"))
    except NoDeviceError as error:
        raise Failed(error.of_command()) from None


def _killing(cluster: Cluster) -> Callable[..., None]:
    def kill(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            log_nothing_more()
            cluster.close_now()

    return kill


@contextmanager
def connected(address: str) -> Iterator[Session]:
    """Use the scheduler that runs at an address.

    Raises `Unusable` if the address cannot be read; `Failed` if no scheduler answers, or its
    workers lack gpusched.
    """
    from gpusched.graph import disable, enable

    fused = config.get("fusion.enabled")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_connect(address))
        if fused:
            _check_workers(client)
        stack.enter_context(enable() if fused else disable())
        yield Session(client, None, fused, client.scheduler.address)


def _connect(address: str) -> Client:
    seconds = parse_timedelta(config.get("run.connect-timeout"))
    try:
        found = asyncio.run(find_scheduler(address, None, client_connection(), seconds))
        return Client(found, timeout=seconds)
    except ValueError as error:
        raise Unusable(str(error)) from None
    except (NoSchedulerError, OSError, TimeoutError) as error:
        raise Failed(
            f"{error}; or leave out --scheduler to start workers on this machine"
        ) from None


def _check_workers(client: Client) -> None:
    # A worker that cannot read a task dies of it, and the script would wait forever.
    answers = run_on_workers(
        client,
        importlib.import_module,
        "gpusched.graph",
        on_error="return",
        timeout=parse_timedelta(config.get("run.connect-timeout")),
    )
    for worker, answer in answers.items():
        if isinstance(answer, ImportError):
            raise Failed(
                f"the worker at {worker} cannot import gpusched ({answer}): install it where the "
                f"workers run, or use --no-fuse"
            )
