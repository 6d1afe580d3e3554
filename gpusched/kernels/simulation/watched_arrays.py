"""Arrays that note who reads and writes what."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusched.backends.cuda.errors import GuardError, RaceError, UninitialisedError
from gpusched.backends.cuda.simulated_threads import Thread, Triple, current, place
from gpusched.kernels.array_arguments import uninitialised_value


@dataclass(frozen=True)
class Access:
    """One read or write of one element."""

    thread: str
    """Who, for people."""
    position: Triple
    """Of the thread in its block."""
    phase: int
    """Barriers that its block had passed."""
    line: str
    """``file:line``."""
    atomic: bool = False


@dataclass
class Cell:
    """What is known of one element: the last accesses, by block."""

    writes: dict[tuple[Triple, bool], Access] = field(default_factory=dict)
    """Plain and atomic ones: each races with other things."""
    reads: dict[Triple, list[Access]] = field(default_factory=dict)
    """At most two per block, by different threads in one phase: a third adds nothing."""


class Log:
    """Accesses to the memory of one array.

    Two of them are in order if one thread made both, or if a barrier was between and both were in
    one block. Two blocks are never in order.
    """

    def __init__(self, name: str, shared: bool) -> None:
        self.name = name
        self.shared = shared
        self._cells: dict[int, Cell] = {}

    def read(self, number: int, access: Access, thread: Thread) -> None:
        """Note a read of element `number`; `RaceError` if it races."""
        cell = self._cells.setdefault(number, Cell())
        if self.shared and not cell.writes:
            raise UninitialisedError(
                f"{access.line}: {thread} reads {self.name}, which no thread has written here"
            )
        self._check(cell.writes, access, thread, "reads", "written")
        mine = cell.reads.setdefault(thread.block.position, [])
        if mine and mine[0].phase != access.phase:
            mine.clear()
        if len(mine) < 2 and all(other.position != access.position for other in mine):
            mine.append(access)

    def write(self, number: int, access: Access, thread: Thread) -> None:
        """Note a write of element `number`; `RaceError` if it races."""
        cell = self._cells.setdefault(number, Cell())
        self._check(cell.writes, access, thread, "writes", "written")
        for block, others in cell.reads.items():
            for other in others:
                self._check({(block, False): other}, access, thread, "writes", "read")
        cell.writes[thread.block.position, access.atomic] = access

    def _check(self, others: dict[tuple[Triple, bool], Access], access: Access, thread: Thread,
               does: str, done: str) -> None:  # fmt: skip
        for (block, _), other in others.items():
            if access.atomic and other.atomic:
                continue
            if block == thread.block.position:
                if other.position == access.position or other.phase != access.phase:
                    continue
                advice = "with no barrier between"
            else:
                advice = "and nothing orders two blocks"
            raise RaceError(
                f"{access.line}: {thread} {does} an element of {self.name} that {other.thread} has "
                f"{done} in {other.line}, {advice}"
            )


class Tracked:
    """An array as a simulated kernel sees it: numba's arrays in CUDA, checked.

    Parameters
    ----------
    array
        What is read and written.
    log
        Where accesses go; None for a thread's own memory.
    cells
        Number of each element in `log`.
    """

    def __init__(self, array: np.ndarray, name: str, log: Log | None, cells: np.ndarray) -> None:
        self._array, self._name, self._log, self._cells = array, name, log, cells
        self.shape, self.size, self.ndim, self.dtype = (
            array.shape, array.size, array.ndim, array.dtype,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        line = place(sys._getframe(1))
        where = self._place(index, line)
        cells = self._cells[where]
        if isinstance(cells, np.ndarray):
            return Tracked(self._array[where], self._name, self._log, cells)
        self._note("read", cells, line)
        return self._array[where]

    def __setitem__(self, index: Any, value: Any) -> None:
        line = place(sys._getframe(1))
        where = self._place(index, line)
        cells = self._cells[where]
        for cell in np.ravel(cells):
            self._note("write", cell, line)
        self._array[where] = value

    def atomically(self, index: Any, change: Callable[[Any], Any], line: str) -> Any:
        """Change one element as a whole; return what it was."""
        where = self._place(index, line)
        self._note("write", self._cells[where], line, atomic=True)
        before = self._array[where]
        self._array[where] = change(before)
        return before

    def _note(self, what: str, cell: Any, line: str, atomic: bool = False) -> None:
        if self._log is not None:
            thread = current()
            access = Access(str(thread), thread.position, thread.block.phase, line, atomic)
            getattr(self._log, what)(int(cell), access, thread)

    def _place(self, index: Any, line: str) -> tuple[Any, ...]:
        """Return an index as a tuple, once it is known to be inside."""
        items = index if isinstance(index, tuple) else (index,)
        if len(items) > self.ndim:
            raise IndexError(
                f"{line}: {len(items)} indices for {self._name}, of shape {self.shape}"
            )
        for axis, item in enumerate(items):
            outside = not isinstance(item, slice) and not 0 <= item < self.shape[axis]
            if outside:
                shown = ", ".join(str(i) for i in items)
                raise GuardError(
                    f"{line}: {current()} uses {self._name}[{shown}], which is outside of its "
                    f"shape {self.shape}; a guard is missing"
                )
        return items


def tracked(array: np.ndarray, name: str, shared: bool = False) -> Tracked:
    """Return an array whose accesses are noted.

    Views of one array are taken for different memory: races between them are not seen.
    """
    cells = np.arange(array.size).reshape(array.shape)
    return Tracked(array, name, Log(name, shared), cells)


def uninitialised(shape: Any, dtype: np.dtype) -> np.ndarray:
    """Return an array of values that spoil a result."""
    found = np.empty(shape, dtype)
    found.fill(uninitialised_value(dtype))
    return found
