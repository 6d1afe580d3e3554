"""One worker's numbers as one small dictionary, fit for every heartbeat."""

from __future__ import annotations

import logging
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from gpusched.store.statistics import updating
from gpusched.workers.metrics.sampler import Sampler

logger = logging.getLogger(__name__)

Values = dict[str, Any]

_sampler = Sampler()
_failed: set[str] = set()
"""Sections that could not be read, each logged once."""


def collect(worker: Any) -> dict[str, Values]:
    """Return what is known of a worker's device, spilling, kernels and memory errors.

    Parameters
    ----------
    worker
        A `gpusched.workers.worker.DeviceWorker`. Another worker of distributed's has no sections
        but ``kernels``.

    Returns
    -------
    dict
        A dictionary of plain numbers and strings by section, below 1 KiB when packed; what each
        is, is said in `gpusched.workers.metrics.metric_table`. What is not known is left out.
    """
    found: dict[str, Values] = {}
    for section, read in _SECTIONS.items():
        try:
            values = read(worker)
        except Exception:
            # A number must not cost the heartbeat, whose absence would cost the worker.
            if section not in _failed:
                _failed.add(section)
                logger.exception("the metrics of %s cannot be read; logged once", section)
            continue
        if values:
            found[section] = {k: _plain(v) for k, v in values.items() if v is not None}
    return found


def _device(worker: Any) -> Values:
    device = getattr(worker, "device", None)
    if device is None:
        return {}
    values: Values = {key: getattr(device, key) for key in ("uuid", "name", "kind")}
    values["memory_used"] = device.used()
    values["memory_limit"] = device.memory_limit
    values["pool_held"] = device.held() if hasattr(device, "held") else None
    if device.kind == "cuda" and device.uuid:
        sample = _sampler.latest(device.uuid)
        for key in ("utilization", "temperature", "power"):
            values[key] = getattr(sample, key, None)
    return values


def _spill(worker: Any) -> Values:
    metrics = getattr(getattr(worker, "data", None), "metrics", None)
    return {} if metrics is None else dict(metrics())


def _memory(worker: Any) -> Values:
    admission = getattr(worker, "admission", None)
    return {} if admission is None else dict(admission.metrics())


def _kernels(worker: Any) -> Values:
    with updating() as total:
        values: Values = {key: getattr(total, name) for key, name in _KERNELS.items() if name}
        values["distinct"] = len(total.kernels)
        values["unshared"] = total.kernels_unshared.total()
    return values


_KERNELS = {"launches": "launches", "seconds": "kernel_seconds", "compilations": "compilations",
            "loaded": "kernels_loaded", "received": "kernels_received",
            "waited": "kernels_waited", "unshared": "",
            "compile_seconds": "compile_seconds", "fused_tasks": "fused_tasks",
            "tasks": "tasks", "device_tasks": "device_tasks", "host_tasks": "host_tasks",
            "device_copied_bytes": "bytes_to_device", "host_copied_bytes": "bytes_to_host",
            "between_devices_bytes": "bytes_between_devices",
            "through_host_bytes": "bytes_through_host",
            "unfused_tasks": "unfused_tasks",
            "unfused_seconds": "unfused_seconds", "distinct": "", "buffers_made": "buffers_made",
            "buffers_reused": "buffers_reused"}  # fmt: skip
"""The fields of `gpusched.store.statistics.Statistics` by their keys here."""


def _memory_errors(worker: Any) -> Values:
    recoveries = getattr(worker, "recoveries", None)
    if recoveries is None:
        return {}
    return {key: getattr(recoveries, key) for key in ("out_of_memory", "retried", "recovered")}


def _policies(worker: Any) -> Values:
    from gpusched.threadsafe.counts import totals

    return dict(totals())


def _plain(value: Any) -> Any:
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else str(value)


_SECTIONS: dict[str, Callable[[Any], Values]] = {
    "device": _device,
    "spill": _spill,
    "memory": _memory,
    "kernels": _kernels,
    "memory_errors": _memory_errors,
    "policies": _policies,
}
