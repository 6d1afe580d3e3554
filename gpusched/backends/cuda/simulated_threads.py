"""The threads of a GPU as greenlets: those of a block run one after another, up to a barrier."""

from __future__ import annotations

import contextvars
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from gpusched.backends.cuda.errors import DivergenceError

try:
    from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError(
        "simulating a kernel needs the package greenlet: pip install greenlet"
    ) from error

Triple = tuple[int, int, int]


@dataclass
class Block:
    """What the threads of one block share."""

    position: Triple
    phase: int = 0
    """Barriers passed."""
    memory: dict[Any, Any] = field(default_factory=dict)
    """Shared arrays, by where they are declared."""


class Thread(greenlet):
    """One thread of a GPU."""

    position: Triple
    block: Block
    extent: Triple
    """Threads of a block."""
    grid: Triple
    """Blocks of the grid."""
    declared: int = 0
    """Shared arrays declared so far."""

    def __str__(self) -> str:
        return f"thread {_short(self.position)} of block {_short(self.block.position)}"


def _short(position: Triple) -> str:
    """Return a position without its trailing zeros."""
    kept = max((k for k, n in enumerate(position) if n), default=0)
    return str(position[0]) if kept == 0 else str(position[: kept + 1])


def current() -> Thread:
    """Return the thread that runs; `RuntimeError` outside of a simulation."""
    found = getcurrent()
    if not isinstance(found, Thread):
        raise RuntimeError("called outside of a kernel")
    return found


def place(frame: FrameType) -> str:
    """Return where a frame is, as ``file:line``."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def barrier() -> None:
    """Wait for the other threads of the block."""
    current().parent.switch(place(sys._getframe(1)))


def run(kernel: Callable[..., None], grid: Triple, extent: Triple, arguments: tuple[Any, ...],
        backwards: bool = False) -> None:  # fmt: skip
    """Run every thread of a launch.

    Parameters
    ----------
    grid, extent
        Blocks of the grid, and threads of a block, along x, y and z.
    backwards
        Whether the last thread of a block comes first.

    Raises
    ------
    DivergenceError
        If threads of a block wait at different barriers, or some have returned.
    """
    for block in map(Block, _positions(grid)):
        threads = [
            _thread(kernel, block, position, extent, grid) for position in _positions(extent)
        ]
        _run_block(threads[::-1] if backwards else threads, block, arguments)


def _positions(extent: Triple) -> Iterator[Triple]:
    x, y, z = map(range, extent)
    return itertools.product(x, y, z)


def _thread(kernel: Callable[..., None], block: Block, position: Triple, extent: Triple,
            grid: Triple) -> Thread:  # fmt: skip
    thread = Thread(kernel)
    thread.position, thread.block, thread.extent, thread.grid = position, block, extent, grid
    thread.gr_context = contextvars.copy_context()  # Holds `numpy.errstate`.
    return thread


def _run_block(threads: list[Thread], block: Block, arguments: tuple[Any, ...]) -> None:
    stops = {thread: thread.switch(*arguments) for thread in threads}
    while set(stops.values()) != {None}:
        if len(set(stops.values())) > 1:
            raise DivergenceError(_divergence(stops))
        block.phase += 1
        stops = {thread: thread.switch() for thread in threads}


def _divergence(stops: dict[Thread, str | None]) -> str:
    """Return who waits where, at the first barrier and elsewhere."""
    examples: dict[str | None, Thread] = {}
    for thread, stop in stops.items():
        examples.setdefault(stop, thread)
    said = [
        f"{thread} waits at the barrier in {stop}" if stop else f"{thread} has returned"
        for stop, thread in sorted(examples.items(), key=lambda item: item[0] is None)
    ]
    first = next(stop for stop in examples if stop)
    return f"{first}: threads of one block do not meet at one barrier: {'; '.join(said)}"
