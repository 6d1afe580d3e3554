"""Test support: a kernel's source in plain Python, a block's threads as greenlets.

Shared memory starts as NaN, so that a cell nobody wrote shows.  The threads of a block run one
after another up to a barrier, in an order the caller chooses: a missing barrier makes results
depend on it.  A barrier that only some threads reach, or that they reach in different lines, is
an error.
"""

from __future__ import annotations

import contextvars
import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import greenlet
import numpy as np

from gpusched.fusion.backends import python
from gpusched.fusion.backends.cuda.geometry import Geometry
from gpusched.fusion.backends.cuda.skeleton.text import POSITIONS, WIDTHS
from tests.fusion.cuda.memory import poisoned


class DivergenceError(AssertionError):
    """Threads of one block did not meet at the same barrier."""


class Thread(greenlet.greenlet):
    """One GPU thread."""

    positions: dict[str, int]
    """Position and extents by name, such as ``thread_x``."""
    block: dict[int, np.ndarray]
    """Shared arrays of its block, by order of declaration."""
    declared = 0
    """How many of them this thread has declared."""


def current() -> Thread:
    found = greenlet.getcurrent()
    assert isinstance(found, Thread)
    return found


def barrier() -> None:
    """Wait for the other threads of the block."""
    current().parent.switch(sys._getframe(1).f_lineno)


def shared_array(size: int, dtype: Any) -> np.ndarray:
    """Return the block's array of this declaration."""
    thread = current()
    number, thread.declared = thread.declared, thread.declared + 1
    if number not in thread.block:
        thread.block[number] = poisoned(size, np.dtype(dtype))
    return thread.block[number]


def namespace() -> dict[str, Any]:
    """Return the names that a kernel's source for CUDA uses."""
    found = python.namespace() | {"boolean": np.bool_, "barrier": barrier}
    found["cuda"] = SimpleNamespace(shared=SimpleNamespace(array=shared_array))
    for name in (f"{word}_{d}" for word in POSITIONS for d in "xyz"):
        found[name] = lambda name=name: current().positions[name]
    for width in WIDTHS:
        found[f"load{width}"] = lambda a, i, n=width: _load(a, i, n)
        found[f"store{width}"] = _store
    return found


def _check_alignment(window: python.Window, index: int, count: int) -> None:
    size = window._array.itemsize
    address = window._address + (window._first + index) * size
    assert address % min(16, count * size) == 0, f"{count} elements at {address:#x}"


def _load(window: python.Window, index: int, count: int) -> tuple[Any, ...]:
    _check_alignment(window, index, count)
    return tuple(window[index + k] for k in range(count))


def _store(window: python.Window, index: int, values: tuple[Any, ...]) -> None:
    _check_alignment(window, index, len(values))
    for k, value in enumerate(values):
        window[index + k] = value


def run(kernel: Callable[..., None], geometry: Geometry, arguments: tuple[Any, ...],
        backwards: bool = False) -> None:  # fmt: skip
    """Run every thread of a launch."""
    extents = {f"threads_{d}": n for d, n in zip("xyz", geometry.block, strict=True)}
    extents |= {f"blocks_{d}": n for d, n in zip("xyz", geometry.grid, strict=True)}
    for block in itertools.product(*map(range, geometry.grid)):
        place = extents | {f"block_{d}": n for d, n in zip("xyz", block, strict=True)}
        _run_block(kernel, geometry, place, arguments, backwards)


def _run_block(kernel: Callable[..., None], geometry: Geometry, place: dict[str, int],
               arguments: tuple[Any, ...], backwards: bool) -> None:  # fmt: skip
    memory: dict[int, np.ndarray] = {}
    threads = []
    for position in itertools.product(*map(range, geometry.block)):
        thread = Thread(kernel)
        thread.positions = place | {f"thread_{d}": n for d, n in zip("xyz", position, strict=True)}
        thread.block = memory
        thread.gr_context = contextvars.copy_context()  # holds `numpy.errstate`
        threads.append(thread)
    waiting = threads[::-1] if backwards else threads
    lines = {thread.switch(*arguments) for thread in waiting}
    while lines != {None}:
        if len(lines) > 1:
            raise DivergenceError(f"threads stopped at lines {lines} (None: they returned)")
        lines = {thread.switch() for thread in waiting}
