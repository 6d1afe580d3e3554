"""Prometheus: the families of a table of numbers, and the collector of a process's workers."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusched.workers.metrics.metric_table import (
    INFORMATION,
    INFORMATION_MEANING,
    LABELS,
    METRICS,
    Metric,
)
from gpusched.workers.metrics.snapshot import collect

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    Family = CounterMetricFamily | GaugeMetricFamily

WORKER_PREFIX = "gpusched_worker"
"""Of the names on a worker's page; those on the scheduler's differ, or sums would count twice."""

Workers = Iterable[tuple[str, dict[str, dict[str, Any]]]]
"""Names of workers, each with what `collect` returned for it."""


def families(prefix: str, workers: Workers) -> Iterator[Family]:
    """Yield one family of samples for each number, with a sample for each worker that has it.

    Examples
    --------
    >>> from gpusched.workers.metrics.exposition import families
    >>> told = {"device": {"uuid": "GPU-1", "temperature": 70}}
    >>> found = [family.samples for family in families("gpusched_worker", [("first", told)])]
    >>> next(samples[0].name for samples in found if samples)
    'gpusched_worker_device_temperature_celsius'
    """
    told = dict(workers)
    for metric in METRICS:
        family = _empty_family(prefix, metric)
        for name, values in told.items():
            value = values.get(metric.section, {}).get(metric.key)
            if isinstance(value, int | float):
                family.add_metric([_uuid(values), name], value * metric.scale)
        yield family
    yield _information(prefix, told)


def _empty_family(prefix: str, metric: Metric) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    return make(f"{prefix}_{metric.name}", metric.meaning, labels=LABELS)


def _information(prefix: str, workers: dict[str, dict[str, dict[str, Any]]]) -> Family:
    from prometheus_client.core import GaugeMetricFamily

    labels = (*LABELS, "kind", "device")
    family = GaugeMetricFamily(f"{prefix}_{INFORMATION}", INFORMATION_MEANING, labels=labels)
    for name, values in workers.items():
        device = values.get("device")
        if device is not None:
            what = [str(device.get(key, "")) for key in ("kind", "name")]
            family.add_metric([_uuid(values), name, *what], 1)
    return family


def _uuid(values: dict[str, dict[str, Any]]) -> str:
    return str(values.get("device", {}).get("uuid", ""))


class WorkerCollector:
    """Shows the workers of this process, of which there are several in an in-process cluster.

    Notes
    -----
    Holds no worker alive. prometheus_client calls it on the event loop, once a scrape.
    """

    def __init__(self) -> None:
        self._workers: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, worker: Any) -> None:
        """Show a worker for as long as it is not closed."""
        self._workers.add(worker)

    def describe(self) -> Iterator[Family]:
        """Yield the families without samples."""
        return families(WORKER_PREFIX, ())

    def collect(self) -> Iterator[Family]:
        """Yield the families with the present numbers."""
        workers = [worker for worker in self._workers if not _is_closed(worker)]
        return families(WORKER_PREFIX, ((str(worker.name), collect(worker)) for worker in workers))


def _is_closed(worker: Any) -> bool:
    return getattr(worker.status, "name", "") in ("closed", "failed")


@lru_cache(maxsize=1)
def _collector() -> WorkerCollector:
    import prometheus_client

    collector = WorkerCollector()
    prometheus_client.REGISTRY.register(collector)
    return collector


def export(worker: Any) -> None:
    """Show a worker among this process's Prometheus metrics, if prometheus_client is installed."""
    try:
        collector = _collector()
    except ImportError:
        return
    collector.add(worker)
