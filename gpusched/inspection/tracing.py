"""A recorder that remembers the user's line behind each operation, and who stopped it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched.backends.devices import Device
from gpusched.breaks import Reason
from gpusched.graph.functions.partials import name_of
from gpusched.inspection.standins import extent, result_of
from gpusched.plan.expression import Leaf, Node
from gpusched.plan.kernelbuilder import KernelBuilder, Part
from gpusched.plan.plan import Empty, Launch, Step, used_registers
from gpusched.record.callers import Site, frame_outside, outside
from gpusched.record.chunk import LazyChunk
from gpusched.record.record import Recorder


@dataclass(frozen=True)
class RecordedAt:
    """Where a node comes from."""

    step: int
    """The program's call, by the register of its result."""
    site: Site | None
    """Where in the user's own function; None where NumPy's functions are called by dask."""


@dataclass(frozen=True)
class Broken:
    """A call that no kernel could do."""

    operation: str
    reason: Reason
    origin: RecordedAt


class TracingRecorder(Recorder):
    """Records as ever, and keeps what an explanation needs.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, device: Device, most: int | None = None) -> None:
        super().__init__(device, most)
        self.origins: dict[int, RecordedAt] = {}
        """By the identity of the node, which the recorder keeps alive."""
        self.variables: dict[int, str] = {}
        """Names that the user's own function has for nodes."""
        self.launches: list[tuple[KernelBuilder, Launch]] = []
        self.broken: list[Broken] = []
        self.calls: list[tuple[str, int, Step | None, int, int]] = []
        """(function, call of the program, step of the plan, bytes read, bytes written) of calls
        that copy or compute; no step where a plan would not repeat it."""
        self.flushes = 0
        """Times that the limit of operations ended a kernel."""

    def interned(self, key: Any, make: Any, like: Node | None = None) -> Node:
        """Note where a node that is new comes from, and what it is called there."""
        pending = self.pending
        found = super().interned(key, make, like)
        self.flushes += self.pending < pending
        if id(found) not in self.origins:
            self.origins[id(found)] = self._origin() if like is None else self.origins[id(like)]
            self._names()
        return found

    def _origin(self) -> RecordedAt:
        return RecordedAt(self.step, outside(2))

    def _names(self) -> None:
        """Note the names of lazy chunks in the user's function that is running."""
        frame = frame_outside(2)
        for name, value in frame.f_locals.items() if frame is not None else ():
            if isinstance(value, LazyChunk) and name.isidentifier():
                self.variables.setdefault(id(value.held), name)

    def compute_early(self) -> None:
        """Compute early what the recorder would where nobody traces."""
        # Python's dictionary of a frame's variables holds chunks that are gone until it is asked.
        self._names()
        super().compute_early()

    def launch(self, builder: KernelBuilder, targets: list[int],
               part: Part | None = None) -> Launch | Empty:  # fmt: skip
        """Record a launch, and keep it with its builder."""
        step = super().launch(builder, targets, part)
        if isinstance(step, Launch):
            self.launches.append((builder, step))
        return step

    def call(self, function: Any, args: Any, kwargs: Any, copies: bool = False) -> Any:
        """Record a call, and keep the bytes that it reads and makes."""
        before = len(self.steps)
        found = super().call(function, args, kwargs, copies)
        read = [self.contents[k] for k in used_registers(args) | used_registers(kwargs)]
        values = found if isinstance(found, list | tuple) else [found]
        arrays = [self.contents[v.register] if isinstance(v, Leaf) else v for v in values]
        made = [
            a
            for a in arrays
            if isinstance(a, np.ndarray) and not any(np.may_share_memory(a, r) for r in read)
        ]
        if made:
            name = name_of(function)
            lengths = sum(map(extent, read)), sum(map(extent, made))
            step = self.steps[-1] if len(self.steps) > before else None
            self.calls.append((name, self.step, step, *lengths))
        return found

    def result_of(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return what a function gives of stand-ins."""
        return result_of(function, args, kwargs)

    def broke(self, operation: str, reason: Reason) -> None:
        """Count a graph break, and keep where it happened."""
        super().broke(operation, reason)
        self.broken.append(Broken(operation, reason, self._origin()))

    def registers(self) -> list[Any]:
        """Return what the registers hold, in the order of their numbers."""
        self.demand()
        return self.contents
