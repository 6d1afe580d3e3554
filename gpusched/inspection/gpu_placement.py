"""Which calls of a graph's tasks run on a GPU, as a worker that owns one decides when they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gpusched.breaks import Reason
from gpusched.config import word
from gpusched.graph.functions.partials import name_of
from gpusched.graph.placement.devicechoice import can_stay, cut, why_left, why_on_host
from gpusched.graph.running.inputs import flat
from gpusched.graph.running.segment import Segment
from gpusched.graph.running.traced import Trace
from gpusched.inspection.task_contents import layer_of
from gpusched.inspection.variant import DeviceUse
from gpusched.placed import Placed, extent, holds_placed
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.overrides import REQUIRE, bounds
from gpusched.record.record import Recorder
from gpusched.roles import current_client

_NAMED = 3
"""How many of a group's functions are named."""


def has_gpu_workers() -> bool:
    """Return whether NumPy programs may be computed on a GPU, as far as this process knows."""
    if word("device") == REQUIRE:
        return True
    client = current_client()
    if client is None:
        return False
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return any(worker.get("resources", {}).get("GPU") for worker in workers)


class Devices:
    """Goes through tasks beside what stands in for their chunks, and knows which are on a GPU.

    Parameters
    ----------
    active
        Whether there are GPUs; nothing is looked at otherwise.

    Notes
    -----
    Belongs to one thread. It knows that of the chunks of a layer, not of each chunk.
    """

    def __init__(self, active: bool) -> None:
        self.active = active
        self._layers: dict[str, bool] = {}
        self._registers: list[Any] = []
        self._labels: dict[int, str] = {}
        self._copied: set[int] = set()
        self._least = bounds().elements

    def alias(self, layer: str, target: str) -> None:
        """Note that chunks of a layer are those of another one."""
        self._layers[layer] = self._layers.get(target, False)

    def begin(self, registers: list[Any], labels: Mapping[int, str]) -> None:
        """Begin with a program's task, given its inputs, and their layers by register."""
        self._labels = dict(labels)
        self._copied = set()
        self._registers = [
            self._placed(value) if self._layers.get(labels.get(k, "")) else value
            for k, value in enumerate(registers)
        ]

    def decided(
        self, segment: Segment, registers: list[Any], recorder: Recorder
    ) -> DeviceUse | None:
        """Return where some calls run; None if they take no chunks."""
        values = flat(tuple([self._registers[k] for k in segment.inputs]))
        if not self.active or not any(isinstance(v, np.ndarray | Placed) for v in values):
            return None
        with cut(segment, self._registers) as rest:
            values = flat(tuple([self._registers[k] for k in rest.inputs]))
            refusal = why_on_host(rest, self._registers)
            if refusal is None and segment.recorded:
                refusal = _stopped(segment, registers, recorder)
            if refusal is not None:
                return DeviceUse(refusal[0], False, refusal[1], 0, _held(values))
            name = _named(step.function for _, step in segment.steps)
            return DeviceUse(name, True, "", self._upload(rest), 0)

    def _upload(self, segment: Segment) -> int:
        """Return the bytes that are copied to the GPU, where each input's copy is kept."""
        total = 0
        for k in segment.inputs:
            for value in flat((self._registers[k],)):
                if isinstance(value, np.ndarray) and id(value) not in self._copied:
                    self._copied.add(id(value))
                    total += extent(value)
                    self._layers[self._labels.get(k, "")] = True
        return total

    def ran(self, segment: Segment, registers: list[Any], use: DeviceUse | None) -> None:
        """Take the results of calls over from the task's registers."""
        for k in segment.outputs:
            there = use is not None and use.on_device
            self._registers[k] = self._placed(registers[k]) if there else registers[k]

    def end(self, layer: str) -> None:
        """Note where the result of the task is."""
        self._layers[layer] = holds_placed(self._registers[-1])

    def plain(self, node: Any, values: Mapping[Any, Any], layer: str) -> DeviceUse | None:
        """Return where a task that is no program runs; None if none of its chunks is on a GPU."""
        if not self.active:
            return None
        given = {
            key: self._placed(value) if self._layers.get(layer_of(key)) else value
            for key, value in values.items()
        }
        held = _held(flat(tuple(given.values())))
        if not held:
            self._layers[layer] = False
            return None
        stays = self._layers[layer] = can_stay(node, given)
        name, reason = why_left(node)
        return DeviceUse(name, stays, "" if stays else reason, 0, 0 if stays else held)

    def _placed(self, value: Any) -> Any:
        """Return what stands in for chunks with those that are kept in device memory marked."""
        if type(value) in (tuple, list):
            return type(value)(map(self._placed, value))
        is_chunk = type(value) is np.ndarray and value.ndim and value.size >= self._least
        return Placed(value) if is_chunk else value


def _stopped(segment: Segment, registers: list[Any],
             recorder: Recorder) -> tuple[str, Reason] | None:  # fmt: skip
    """Return why calls that are recorded cannot be kernels alone, or None if they can."""
    recorder.moved = True
    try:
        Trace(segment, recorder, segment.values(registers), registers)
    except UnrecordableError as stopped:
        return segment.operation(-1), stopped.reason
    except Exception:  # noqa: BLE001  whatever a function makes of zeros
        return None
    return None


def _held(values: Iterable[Any]) -> int:
    """Return the bytes of chunks that are in device memory."""
    return sum(value.nbytes for value in values if isinstance(value, Placed))


def _named(functions: Iterable[Any]) -> str:
    names = list(dict.fromkeys(map(name_of, functions)))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
