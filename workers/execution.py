"""Runs one task on the worker's device: on its own stream, and once more when memory ran out."""

from __future__ import annotations

import gc
import math
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
from dask.typing import Key
from dask.utils import format_bytes

from gpusched.plan.shortage import HostResult, in_pieces
from gpusched.workers.device.base import Device, OutOfDeviceMemoryError
from gpusched.workers.memory.store import Store
from gpusched.workers.task_inputs import TaskInputs

_PIECES = (16, 256)
"""Numbers of parts tried, one after the other, for what does not fit as a whole."""


@dataclass
class Recoveries:
    """How often memory ran out in this process, and what came of it."""

    out_of_memory: int = 0
    """Attempts that ended for want of memory."""
    retried: int = 0
    """Tasks that were run again after everything else had been spilled."""
    recovered: int = 0
    """Tasks that then succeeded."""
    in_pieces: int = 0
    """Those of them that only succeeded on parts of their chunks."""


class Execution:
    """Runs tasks on a device.

    Parameters
    ----------
    device
        Where tasks run.
    store
        What can be spilled to make room.
    leave
        Called with the reason when the device cannot compute any more. It ends the process, and
        so does not return.
    inputs
        What gives tasks their inputs, if chunks of NumPy programs are on the device.
    keep_frames
        Whether the traceback of a failed task keeps its variables, for a debugger in this process,
        and with them its arrays.

    Notes
    -----
    Thread-safe; one task at a time makes room and runs again, so that it has the room it made.
    """

    def __init__(self, device: Device, store: Store, leave: Callable[[str], None],
                 keep_frames: bool = False, inputs: TaskInputs | None = None) -> None:  # fmt: skip
        self.device = device
        self.recoveries = Recoveries()
        self._store = store
        self._leave = leave
        self._keep_frames = keep_frames
        self.inputs = inputs
        self._lock = threading.Lock()

    def run(
        self,
        task: Callable[[Any], Any],
        key: Key,
        values: dict[Key, Any],
        in_parts: bool = False,
    ) -> Any:
        """Return a task's result, which is complete when this returns.

        Raises `OutOfDeviceMemoryError` if it did not fit, also after everything else had been
        spilled.

        Parameters
        ----------
        task, key, values
            What is run, and its inputs.
        in_parts
            Whether it is run on parts of its chunks from the first attempt on.
        """
        with self.device.stream():
            try:
                with in_pieces(_PIECES[0] if in_parts else 1):
                    return self._settle(self._once(task, values))
            except Exception as error:
                shortage = self._examine(error)
                if shortage is None:
                    raise
            # The failed attempt's error is gone by now, and with it the arrays that it held.
            return self._again(task, key, values, shortage)

    def _once(self, task: Callable[[Any], Any], values: dict[Key, Any]) -> Any:
        result = task(values) if self.inputs is None else self.inputs(task, values)
        self.device.synchronize()
        return result

    def _again(
        self, task: Callable[[Any], Any], key: Key, values: dict[Key, Any], shortage: str
    ) -> Any:
        with self._lock:
            self.recoveries.out_of_memory += 1
            self.recoveries.retried += 1
            self._make_room(values)
            for count in (1, *_PIECES):
                try:
                    with in_pieces(count):
                        result = self._settle(self._once(task, values))
                except Exception as error:
                    again = self._examine(error)
                    if again is None:
                        raise
                    shortage = again
                    self.recoveries.out_of_memory += 1
                else:
                    self.recoveries.recovered += 1
                    self.recoveries.in_pieces += count > 1
                    return result
                gc.collect()
                self.device.free_unused()
        raise OutOfDeviceMemoryError(self._report(key, values, shortage))

    def _settle(self, result: Any) -> Any:
        """Return a result that had no room on the device as the store keeps spilled ones."""
        return self.device.adopt(result.array) if isinstance(result, HostResult) else result

    def _make_room(self, values: dict[Key, Any]) -> None:
        # Results that the task itself reads would only be copied: it holds them all the same.
        if self.device.kind == "cpu":
            self._store.make_room(host_bytes=math.inf, keep=values.keys()).result()
        else:
            self._store.make_room(device_bytes=math.inf, keep=values.keys()).result()
        gc.collect()
        self.device.free_unused()

    def _examine(self, error: BaseException) -> str | None:
        """Return what an error says about memory, or None if it is about something else."""
        fault = self.device.fault(error)
        if fault is not None:
            self._leave(fault)
        short = self.device.is_out_of_memory(error)
        if short or not self._keep_frames:
            forget_variables(error)
        return (str(error) or type(error).__name__) if short else None

    def _report(self, key: Key, values: dict[Key, Any], shortage: str) -> str:
        store, device = self._store, self.device
        on_host = device.kind == "cpu"
        results = store.held_on_host() if on_host else store.held_on_device()
        limit = store.host_limit if on_host else store.device_limit
        told = {
            "results still held": format_bytes(results),
            "of them inputs of this task": f"{len(values)} values",
            "taken by this process": format_bytes(_resident() if on_host else device.held()),
            "limit for results": "none" if limit == math.inf else format_bytes(int(limit)),
        }
        sizes = ", ".join(f"{name}: {size}" for name, size in told.items())
        return (
            f"task {key!r} ran out of memory on {device.name} {device.uuid}".rstrip()
            + f" ({shortage}), also after every other result had been spilled and free memory "
            f"given back. {sizes}. Use smaller chunks, fewer threads per worker, or "
            f"{'a larger --memory-limit' if on_host else 'a GPU with more memory'}"
        )


def _resident() -> int:
    """Return the bytes of host memory that this process has."""
    resident: int = psutil.Process().memory_info().rss
    return resident


def forget_variables(error: BaseException | None) -> None:
    """Clear the variables in an error's traceback, and in those of what caused it.

    A worker keeps a failed task's error for as long as somebody wants the task, and the arrays in
    those variables would stay as long.

    Examples
    --------
    >>> from gpusched.workers.execution import forget_variables
    >>> try:
    ...     raise ValueError("told")
    ... except ValueError as error:
    ...     forget_variables(error)
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
