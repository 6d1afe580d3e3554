"""`gpusched.explain`: what a program will do, without doing it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpusched.adapters.tasks import Task
from gpusched.chunking import chosen
from gpusched.graph.early import collector_paused
from gpusched.graph.optimisation import regrouped
from gpusched.graph.passes.chains import without_links
from gpusched.graph.passes.fitting import needed
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.inspection.batches import Batches, batches
from gpusched.inspection.breaks import apart, breaks
from gpusched.inspection.fit import Described, Fit, described, fit, is_cluster
from gpusched.inspection.gather import Wanted, gather
from gpusched.inspection.kernel_listings import ExplainedKernel, explained
from gpusched.inspection.model import Apart, Break, Stage, Totals
from gpusched.inspection.stages import count_tasks, stages
from gpusched.inspection.variant import KernelUse
from gpusched.inspection.walk import Walk, Walked
from gpusched.machine import Machine, machine
from gpusched.quantities import read_bytes, read_count


@dataclass(frozen=True)
class Explanation:
    """What a program will do: printed as text, shown as HTML by Jupyter, or taken as data."""

    totals: Totals
    stages: tuple[Stage, ...]
    kernels: tuple[ExplainedKernel, ...]
    breaks: tuple[Break, ...]
    """Graph breaks, why, and what to change."""
    machine: Machine
    """What expected times are based on."""
    waits: tuple[PolicyWaits, ...] = ()
    """Thread policies that this process has waited for until now."""
    apart: tuple[Apart, ...] = ()
    """What tasks, kernels and copies are not put together, why, and what to change."""
    batches: Batches = field(default_factory=Batches)
    """How many tasks run once tiny neighbours are in batches, and why others are not."""
    chunks: str = ""
    """What ``chunks="auto"`` last meant in this process, and why; empty if nobody asked."""
    gpu: bool = False
    """Whether workers that own a GPU compute it, as far as this process knows: then stages say
    which of their calls run there."""
    fit: Fit | None = None
    """Whether it fits on the cluster that was asked about; None if none was."""
    joined: int = 0
    """Bytes that a task needs which joins all chunks of a result, as `compute` has one do."""

    def on(self, memory: int | str, workers: int = 1, threads: int = 1) -> Explanation:
        """Return the explanation with whether the program fits on a cluster.

        Parameters
        ----------
        memory : int or str
            Memory limit of each worker: bytes, or a string such as ``"16 GiB"``.
        workers, threads : int
            Workers, and threads of each.

        Raises
        ------
        ValueError
            If the memory is not a size, or there is no worker or no thread.
        """
        cluster = Described(
            read_bytes("memory", memory),
            read_count("workers", workers, least=1),
            read_count("threads", threads, least=1),
        )
        return self._on(cluster)

    def _on(self, cluster: Described) -> Explanation:
        return replace(self, fit=fit(self.stages, self.totals.kept, cluster, self.joined))

    def text(self, details: bool = False, width: int = 80) -> str:
        """Return the explanation as text.

        Parameters
        ----------
        details : bool
            Whether every stage, line, kernel's source and graph break is shown.
        width : int
            Columns.
        """
        from gpusched.inspection.text import text

        return text(self, details, width)

    def html(self) -> str:
        """Return the explanation as HTML."""
        from gpusched.inspection.html import html

        return html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON can hold it."""
        found = {
            "totals": asdict(self.totals),
            "stages": [asdict(stage) for stage in self.stages],
            "kernels": [_kernel(kernel) for kernel in self.kernels],
            "breaks": [asdict(each) for each in self.breaks],
            "machine": asdict(self.machine),
            "waits": [asdict(each) for each in self.waits],
            "apart": [asdict(each) for each in self.apart],
            "batches": asdict(self.batches),
            "chunks": self.chunks,
            "fit": None if self.fit is None else _fit(self.fit),
            "gpu": self.gpu,
        }
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    def to_json(self, indent: int | None = None) -> str:
        """Return the explanation as JSON.

        Parameters
        ----------
        indent : int, optional
            Spaces per level; None for one line.
        """
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()


def _fit(found: Fit) -> dict[str, Any]:
    return {
        **asdict(found),
        "fits": found.fits,
        "fits_joined": found.fits_joined,
        "spills": found.spills,
        "worker_peak": found.worker_peak,
        "text": str(found),
    }


def _kernel(kernel: ExplainedKernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "edited": kernel.edited,
        "tuned": list(kernel.tuned),
        "compiled": kernel.compiled,
        "launches": kernel.launches,
        "stages": list(kernel.stages),
        "inputs": [asdict(each) for each in kernel.inputs],
        "places": [asdict(place) for place in kernel.places],
        "operations": kernel.work.simple + kernel.work.heavy,
        "heavy": kernel.work.heavy,
        "elements": kernel.elements,
        "source": kernel.source,
    }


def explain(subject: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Return what a program will do when it runs with fusion on. No chunk is computed.

    Each kind of chunk task is gone through once, with arrays of zeros of the right dtypes and
    shapes, and with the labels that the graph has. NumPy's functions are recorded as they are when
    the program runs; your own functions are called with such stand-ins only where gpusched records
    them.

    Parameters
    ----------
    subject : dask collection or callable
        A dask array, several in a list, an xarray object, or a function.
    *args, **kwargs
        The function's: dask arrays, or NumPy arrays that stand for its chunks. With a cluster or
        a client among them, as in ``explain(x, cluster)``, the explanation says whether the
        program fits there.

    Returns
    -------
    Explanation
        Stages, kernels, bytes, expected times, and graph breaks.

    Raises
    ------
    TypeError
        If there is no dask array to explain.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.ones((4000, 1000), chunks=(1000, 1000)).persist()
    ...     found = gpusched.explain(((x - 1) * 3 + x).sum())
    >>> found.totals.launches, [kernel.launches for kernel in found.kernels]
    (4, [4])
    """
    clusters = [each for each in args if is_cluster(each)]
    given = [each for each in args if not is_cluster(each)]
    with collector_paused():
        found = explain_graph(gather(subject, *given, **kwargs))[0]
    on = next(filter(None, map(described, clusters)), None)
    return found if on is None else found._on(on)


def explain_graph(wanted: Wanted) -> tuple[Explanation, dict[Any, Any]]:
    """Return the explanation of a graph, and what stands in for each of its chunks, by key."""
    with collector_paused():
        found = _regrouped(wanted)
        wanted = replace(wanted, tasks=found.tasks, keys=(*found.wanted,), items=found.items)
        walk = Walk(wanted)
        walked = walk.run()
        here = machine()
        run = tuple(stages(wanted, walked, here, found.sizes))
        numbers = {stage.layer: stage.number for stage in run}
        kernels = _kernels(walked, numbers)
        before = sum(map(count_tasks, wanted.built.layers.values()))
        graph_breaks = tuple(breaks(walked, numbers))
        totals = _totals(before, walked, run, walk.most_kept())
        auto = str(chosen() or "")
        together = batches(found)
        explanation = Explanation(
            totals, run, kernels, graph_breaks, here, policy_waits(),
            apart(found.apart, walked, together), together, auto, walk.has_gpus,
            joined=_joined(found, wanted.joins),
        )  # fmt: skip
        return explanation, walk.chunks()


def _regrouped(wanted: Wanted) -> Table:
    """Return a graph as `compute` puts it together, without the tasks that it adds."""
    # What joins a single chunk becomes part of its task, which is shown without.
    joins = {each.key: each for each in wanted.joins if len(each.dependencies) > 1}
    read = set().union(*(each.dependencies for each in joins.values()))
    keys = [*joins, *(key for key in wanted.keys if key not in read)]
    table = Table(wanted.tasks | joins, keys, Sizes(wanted.built.layers))
    return regrouped(table, joins)


def _joined(table: Table, joins: Iterable[Task]) -> int:
    """Return the bytes that a task needs which joins chunks, put together as it is to run."""
    most = 0
    for built in joins:
        each = table.joins.get(built.key, built)
        read = each.dependencies
        # What only the join needs is part of the same task, if that is all that it joins.
        inside = {key: node for key, node in table.tasks.items() if key in read}
        if len(inside) == 1 and not any(read & n.dependencies for n in table.tasks.values()):
            own = replace(table, tasks={**inside, each.key: each}, wanted=[each.key])
            each = without_links(own).tasks[each.key]
        most = max(most, needed(table.tasks, each, table.sizes).total)
    return most


def _kernels(walked: Walked, numbers: dict[str, int]) -> tuple[ExplainedKernel, ...]:
    uses: defaultdict[str, list[tuple[int, int, KernelUse]]] = defaultdict(list)
    launches: defaultdict[str, int] = defaultdict(int)
    for variant in walked.variants:
        for use in variant.kernels:
            uses[use.kernel.name].append((numbers[variant.name], variant.tasks, use))
            launches[use.kernel.name] += variant.tasks
    return tuple(explained(name, found, launches[name]) for name, found in uses.items())


def _totals(before: int, walked: Walked, found: tuple[Stage, ...], kept: int) -> Totals:
    return Totals(
        tasks_before=before,
        tasks_after=walked.tasks,
        fused_tasks=sum(v.tasks for v in walked.variants if v.kernels),
        launches=sum(v.tasks * len(v.kernels) for v in walked.variants),
        bytes_moved=sum(stage.bytes_total for stage in found),
        bytes_least=walked.source_bytes + walked.result_bytes,
        seconds=sum(stage.seconds_total for stage in found),
        peak=max((stage.peak for stage in found), default=0),
        peak_exact=all(stage.peak_exact for stage in found),
        peak_unfused=max((stage.peak_unfused for stage in found), default=0),
        peak_unfused_exact=all(stage.peak_unfused_exact for stage in found),
        kept=kept,
    )


@dataclass(frozen=True)
class PolicyWaits:
    """What a policy of `gpusched.threadsafe` has cost in this process so far."""

    policy: str
    """Its name and kind, such as ``lock(hdf5)``."""
    calls: int
    waits: int
    """Calls that found it taken."""
    seconds: float
    """That they waited, summed over threads."""
    longest: float
    """Seconds of the longest wait."""


def policy_waits() -> tuple[PolicyWaits, ...]:
    """Return the policies that threads have waited for, the longest first."""
    from gpusched.threadsafe.counts import statistics

    found = [
        PolicyWaits(name, c.calls, c.waits, c.wait_seconds, c.longest_wait_seconds)
        for name, c in statistics().items()
        if c.waits
    ]
    return tuple(sorted(found, key=lambda each: -each.seconds))
