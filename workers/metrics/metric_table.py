"""Every number that a worker reports, with its name for Prometheus and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number of a worker's.

    Examples
    --------
    >>> from gpusched.workers.metrics import METRICS
    >>> METRICS[0].name, METRICS[0].kind
    ('device_memory_used_bytes', 'gauge')
    """

    section: str
    """Of the heartbeat's dictionary."""
    key: str
    """In that section."""
    name: str
    """For Prometheus, without its prefix; ends with the unit, and with ``_total`` for a counter."""
    kind: Literal["gauge", "counter"]
    """A counter only grows while the worker's process lives."""
    meaning: str
    """One sentence, with the unit."""
    scale: float = 1
    """What the heartbeat's number is multiplied by for Prometheus, which has base units."""


METRICS = (
    Metric("device", "memory_used", "device_memory_used_bytes", "gauge",
           "Device memory that the worker's arrays take, those of running tasks included."),
    Metric("device", "memory_limit", "device_memory_limit_bytes", "gauge",
           "Device memory that task results may take before they are spilled; 0 for no limit."),
    Metric("device", "pool_held", "device_pool_held_bytes", "gauge",
           "Memory that the worker's pool has taken, free blocks included; on a CPU worker the "
           "free chunk buffers."),
    Metric("device", "utilization", "device_utilization_ratio", "gauge",
           "Part of the last sample period in which a kernel of any process ran on the GPU "
           "(NVML). The heartbeat has it in percent.", 0.01),
    Metric("device", "temperature", "device_temperature_celsius", "gauge",
           "Temperature of the GPU in degrees Celsius (NVML)."),
    Metric("device", "power", "device_power_watts", "gauge",
           "Power that the GPU draws, in watts (NVML)."),
    Metric("spill", "device_bytes", "spilled_host_bytes", "gauge",
           "Host memory that results spilled from the device take now."),
    Metric("spill", "disk_bytes", "spilled_disk_bytes", "gauge",
           "Disk space that spilled results take now."),
    Metric("spill", "written_bytes", "spill_written_bytes_total", "counter",
           "Bytes of spilled results written to disk."),
    Metric("spill", "read_bytes", "spill_read_bytes_total", "counter",
           "Bytes of spilled results read back from disk."),
    Metric("spill", "lost", "spill_lost_total", "counter",
           "Spilled results found damaged or gone, and computed again."),
    Metric("memory", "limit_bytes", "memory_admission_limit_bytes", "gauge",
           "Memory within which the worker's tasks are started (gpusched.memory.admission)."),
    Metric("memory", "held_bytes", "memory_held_bytes", "gauge",
           "Of it, what results take."),
    Metric("memory", "in_flight_bytes", "memory_in_flight_bytes", "gauge",
           "Of it, what results take that are being received."),
    Metric("memory", "reserved_bytes", "memory_reserved_bytes", "gauge",
           "Of it, what running tasks may still take."),
    Metric("memory", "unmanaged_bytes", "memory_unmanaged_bytes", "gauge",
           "Of it, what the process takes for anything else."),
    Metric("memory", "own_bytes", "memory_own_bytes", "gauge",
           "What that was when no task ran last: what the process takes for itself."),
    Metric("memory", "waiting", "memory_waiting_tasks", "gauge",
           "Tasks that wait for memory; the heartbeat's key reason says for what."),
    Metric("memory", "waited", "memory_waited_tasks_total", "counter",
           "Tasks that had to wait for memory, or for others to be spilled."),
    Metric("memory", "wait_seconds", "memory_wait_seconds_total", "counter",
           "Seconds that they waited, summed over tasks."),
    Metric("memory", "in_pieces", "memory_tasks_in_pieces_total", "counter",
           "Tasks started on parts of their chunks, since they did not fit as a whole."),
    Metric("memory", "refused", "memory_refused_tasks_total", "counter",
           "Tasks refused, since they cannot fit."),
    Metric("kernels", "launches", "kernel_launches_total", "counter",
           "Launches of fused kernels."),
    Metric("kernels", "seconds", "kernel_seconds_total", "counter",
           "Seconds spent inside fused kernels, summed over threads."),
    Metric("kernels", "compilations", "kernel_compilations_total", "counter",
           "Kernels compiled in the worker's process, because nobody else had."),
    Metric("kernels", "loaded", "kernels_loaded_total", "counter",
           "Kernels whose machine code was on disk."),
    Metric("kernels", "received", "kernels_received_total", "counter",
           "Kernels whose machine code came from another worker."),
    Metric("kernels", "waited", "kernels_waited_total", "counter",
           "Kernels that another process of the machine was compiling when they were wanted."),
    Metric("kernels", "unshared", "kernels_unshared_total", "counter",
           "Times a kernel may have been compiled once more than need be, because waiting took too "
           "long, code was damaged, or there was no place for it."),
    Metric("kernels", "compile_seconds", "kernel_compile_seconds_total", "counter",
           "Seconds spent compiling kernels, and waiting for and loading compiled ones."),
    Metric("kernels", "tasks", "chunk_tasks_total", "counter",
           "Chunk tasks that held at least one function gpusched knows."),
    Metric("kernels", "fused_tasks", "fused_tasks_total", "counter",
           "Chunk tasks that launched at least one fused kernel."),
    Metric("kernels", "device_tasks", "device_tasks_total", "counter",
           "Chunk tasks of NumPy programs that ran on the worker's GPU, in whole or in part."),
    Metric("kernels", "host_tasks", "host_tasks_total", "counter",
           "Those of them that ran on the host of a worker with a GPU."),
    Metric("kernels", "device_copied_bytes", "device_copied_bytes_total", "counter",
           "Bytes of such chunks that were copied to the GPU."),
    Metric("kernels", "host_copied_bytes", "host_copied_bytes_total", "counter",
           "Bytes of such chunks that were copied back to the host."),
    Metric("kernels", "between_devices_bytes", "between_devices_bytes_total", "counter",
           "Bytes of GPU memory that other workers' GPUs copied from the worker's."),
    Metric("kernels", "through_host_bytes", "through_host_bytes_total", "counter",
           "Bytes of GPU memory that the worker sent to others through host memory."),
    Metric("kernels", "unfused_tasks", "unfused_tasks_total", "counter",
           "Chunk tasks that ran as the calls they were recorded from, as kernels were not "
           "compiled."),
    Metric("kernels", "unfused_seconds", "unfused_seconds_total", "counter",
           "Seconds spent in those, summed over threads."),
    Metric("kernels", "distinct", "distinct_kernels", "gauge",
           "Different fused kernels launched so far."),
    Metric("kernels", "buffers_made", "chunk_buffers_made_total", "counter",
           "Buffers for results of kernels on the host that were taken from the system."),
    Metric("kernels", "buffers_reused", "chunk_buffers_reused_total", "counter",
           "Results of kernels on the host that were written to a buffer that another had had."),
    Metric("memory_errors", "out_of_memory", "out_of_memory_total", "counter",
           "Attempts at a task that ended for want of memory."),
    Metric("memory_errors", "retried", "out_of_memory_retried_total", "counter",
           "Tasks run again after everything else had been spilled."),
    Metric("memory_errors", "recovered", "out_of_memory_recovered_total", "counter",
           "Tasks that succeeded when they were run again."),
    Metric("policies", "calls", "policy_calls_total", "counter",
           "Calls made under a thread policy (gpusched.threadsafe)."),
    Metric("policies", "waits", "policy_waits_total", "counter",
           "Of them, those that found the policy taken."),
    Metric("policies", "wait_seconds", "policy_wait_seconds_total", "counter",
           "Seconds that they waited, summed over threads."),
    Metric("policies", "longest_wait_seconds", "policy_longest_wait_seconds", "gauge",
           "Seconds of the longest of these waits so far."),
    Metric("policies", "deadlocks", "policy_deadlocks_total", "counter",
           "Waits for a policy refused, since they would never have ended."),
    Metric("policies", "abandoned", "policy_abandoned_total", "counter",
           "Times a policy was taken from a thread that had ended, or from a task that had not "
           "given it up."),
)  # fmt: skip
"""In the order of the heartbeat's dictionary."""

INFORMATION = "device_info"
"""Always 1; its labels say what the device is."""

INFORMATION_MEANING = "The worker's device: its kind (cuda or cpu) and its product name."

LABELS = ("uuid", "worker")
"""Of every number: the GPU's UUID, empty for the host, and the worker's name."""
