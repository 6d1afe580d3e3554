"""Whether a program fits on a cluster, and how many of its tasks run at once there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpusched.graph.passes.fitting import OWN, for_tasks, own_bytes
from gpusched.inspection.model import Stage
from gpusched.inspection.units import bytes_
from gpusched.quantities import count

FOR_RESULTS = 0.6
"""Share of it that results take before they are spilled."""
FOR_TRANSFERS = 0.1
"""Share of it that results take while they are received (distributed.worker.memory.transfer)."""


@dataclass(frozen=True)
class Described:
    """The workers of a cluster.

    Examples
    --------
    >>> from gpusched.inspection.fit import Described
    >>> Described(workers=8, memory=16 << 30, threads=4).for_tasks // 10**6
    12675
    """

    memory: int
    """Memory limit of each worker in bytes; of the smallest where they differ."""
    workers: int = 1
    threads: int = 1
    """Of each worker; of the one with most where they differ."""
    own: int = OWN
    """Bytes that each worker's process takes for itself; of the one that takes most."""

    @property
    def for_tasks(self) -> int:
        """The bytes that a worker has for its tasks, their inputs included."""
        return for_tasks(self.memory, self.own)


@dataclass(frozen=True)
class Fit:
    """What a program needs of a cluster's workers."""

    cluster: Described
    peak: int
    """Bytes that the most demanding task needs, its inputs and its result included, until its
    kernels are compiled: what workers reserve for it, and what is refused where it is too much."""
    compiled: int
    """What the task that then takes most takes where kernels compute it."""
    exact: bool
    """Whether that is all that it needs, as far as is known."""
    stage: int
    """The number of that task's stage; 0 if there is none."""
    name: str
    """That stage's name."""
    at_once: int
    """How many such tasks a worker has room for, threads permitting."""
    kept: int
    """Bytes of results that are kept at once at most, on all workers together."""
    joined: int = 0
    """Bytes that the task needs which `compute` joins all chunks of a result by; 0 if none does."""

    @property
    def fits(self) -> bool:
        """Whether each task fits on a worker, alone at least, where the results stay in chunks."""
        return self.peak <= self.cluster.for_tasks

    @property
    def fits_joined(self) -> bool:
        """Whether it fits where `compute` joins the chunks, too."""
        return max(self.peak, self.joined) <= self.cluster.for_tasks

    @property
    def spills(self) -> int:
        """The bytes of results that are spilled, if they are kept in memory evenly."""
        return max(0, self.kept - int(FOR_RESULTS * self.cluster.memory) * self.cluster.workers)

    @property
    def worker_peak(self) -> int:
        """The bytes that a worker takes at most, itself included, where it has admission.

        Where no task's size is known, that is all that its tasks may have.
        """
        on = self.cluster
        if not self.peak and not self.exact:
            return on.own + on.for_tasks
        received = min(self.kept, int(FOR_TRANSFERS * on.memory)) if on.workers > 1 else 0
        wanted = self.kept // on.workers + received + max(1, self.at_once) * self.compiled
        return on.own + min(wanted, max(self.compiled, on.for_tasks))

    def __str__(self) -> str:
        on = self.cluster
        where = (
            f"On {count(on.workers, 'worker')} of {bytes_(on.memory)} and "
            f"{count(on.threads, 'thread')} each"
        )
        needs = f"{bytes_(self.peak)}{'' if self.exact else ' or more'}"
        who = f"the most demanding task (stage {self.stage}, {self.name}) needs {needs}"
        if not self.fits:
            return (
                f"{where} it does not fit: {who}, and a worker has {bytes_(on.for_tasks)} for "
                f"tasks. Use smaller chunks, or a larger memory limit."
            )
        spilled = f" Up to {bytes_(self.spills)} of results may be spilled." if self.spills else ""
        most = (
            f" With gpusched.memory.admission a worker takes up to {bytes_(self.worker_peak)} in "
            f"all, and {count(on.workers, 'worker')} up to {bytes_(on.workers * self.worker_peak)}."
        )
        return f"{where} it fits: {who}; {self._together()}.{most}{spilled}{self._whole()}"

    def _whole(self) -> str:
        if self.fits_joined:
            return ""
        return (
            f" But compute(), which joins the chunks of the result on a worker, needs "
            f"{bytes_(self.joined)} for that, and does not fit: keep them (persist), or store them."
        )

    def _together(self) -> str:
        room = f"of the {bytes_(self.cluster.for_tasks)} that it has for tasks"
        if self.at_once >= self.cluster.threads:
            return f"a worker runs {self.at_once} of them at once, {room}"
        return f"a worker can run {self.at_once} of them at once, {room}, and the others wait"


def fit(stages: Iterable[Stage], kept: int, on: Described, joined: int = 0) -> Fit:
    """Return what a program needs of a cluster.

    Parameters
    ----------
    stages
        The program's.
    kept
        Bytes of results that are kept at once at most.
    on
        The cluster.
    joined
        Bytes that joining the chunks of a result needs; 0 if that is one of the stages.
    """
    stages = list(stages)
    peak = max((stage.need for stage in stages), default=0)
    main = next((stage for stage in stages if stage.need == peak), None)
    room = on.for_tasks // peak if peak else on.threads
    return Fit(
        cluster=on,
        peak=peak,
        compiled=max((stage.peak_lent for stage in stages), default=0),
        exact=all(stage.peak_exact for stage in stages),
        stage=main.number if main else 0,
        name=(main.variable or main.name) if main else "",
        at_once=min(on.threads, room),
        kept=kept,
        joined=joined,
    )


def is_cluster(value: Any) -> bool:
    """Return whether a value is a cluster or a client; asks neither."""
    info = getattr(value, "scheduler_info", None)
    return isinstance(info, dict) or hasattr(type(value), "scheduler_info")


def described(cluster: Any) -> Described | None:
    """Return the workers of a cluster or of a client's; None if it is neither, or has no limits."""
    info = getattr(cluster, "scheduler_info", None)
    info = info() if callable(info) else info
    if not isinstance(info, dict):
        return None
    workers = list(info.get("workers", {}).values())
    limits = [int(each["memory_limit"]) for each in workers if each.get("memory_limit")]
    if not limits:
        return None
    threads = max(int(each["nthreads"]) for each in workers)
    own = max(own_bytes(each.get("nanny"), each.get("metrics") or {}) for each in workers)
    return Described(min(limits), len(workers), threads, own)
