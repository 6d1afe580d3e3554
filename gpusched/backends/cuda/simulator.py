"""A generated kernel's source in plain Python, thread by thread: no GPU is needed.

Shared memory starts as NaN, so that a cell nobody wrote shows.  The threads of a block run one
after another up to a barrier, in an order the caller chooses: a missing barrier makes results
depend on it.  A barrier that only some threads reach, or that they reach in different lines, is
an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpusched.backends import python
from gpusched.backends.cuda import simulated_threads
from gpusched.backends.cuda.geometry import Geometry
from gpusched.backends.cuda.simulated_threads import barrier, current
from gpusched.backends.python import uninitialised
from gpusched.emit import generate, skeleton
from gpusched.emit.kernel import Kernel
from gpusched.emit.parsing import register
from gpusched.emit.skeleton.source_lines import POSITIONS, WIDTHS


def shared_array(size: int, dtype: Any) -> np.ndarray:
    """Return the block's array of this declaration."""
    thread = current()
    number, thread.declared = thread.declared, thread.declared + 1
    if number not in thread.block.memory:
        thread.block.memory[number] = uninitialised(size, np.dtype(dtype))
    found: np.ndarray = thread.block.memory[number]
    return found


def position(word: str, axis: int) -> int:
    """Return one of `POSITIONS` along one axis, of the thread that runs."""
    thread = current()
    found = {"thread": thread.position, "block": thread.block.position,
             "threads": thread.extent, "blocks": thread.grid}  # fmt: skip
    return found[word][axis]


def namespace() -> dict[str, Any]:
    """Return the names that a kernel's source for CUDA uses."""
    found = python.namespace() | {"boolean": np.bool_, "barrier": barrier}
    found["cuda"] = SimpleNamespace(shared=SimpleNamespace(array=shared_array))
    for word, (axis, letter) in itertools.product(POSITIONS, enumerate("xyz")):
        found[f"{word}_{letter}"] = partial(position, word, axis)
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
    simulated_threads.run(kernel, geometry.grid, geometry.block, arguments, backwards)


class Simulator:
    """A place for `gpusched.backends.cuda.kernel_launch.CudaKernel` to run NumPy arrays in.

    Parameters
    ----------
    filename
        What tracebacks call the source.
    backwards
        Whether the last thread of a block comes first.
    """

    def __init__(self, filename: str = "", backwards: bool = False) -> None:
        self.filename = filename
        self.backwards = backwards

    def compile(self, kernel: Kernel) -> Callable[..., None]:
        """Return the kernel as Python has it."""
        text, filename = skeleton.source(kernel), self.filename or f"<simulated {kernel.name}>"
        register(filename, text)
        found = namespace()
        for name, function in generate.defined_functions(kernel).items():
            found[name] = function.for_python
        exec(compile(text, filename, "exec"), found)
        code: Callable[..., None] = found["kernel"]
        return code

    def addresses(self, arrays: Iterable[np.ndarray]) -> list[int]:
        """Return where arrays' first elements are."""
        return [array.ctypes.data for array in arrays]

    def empty(self, size: int, dtype: str) -> np.ndarray:
        """Return an array of values that show where nobody has written."""
        return uninitialised(size, np.dtype(dtype))

    def launch(self, code: Callable[..., None], geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        """Run every thread."""
        windows = [python.Window(array) for array in arrays]
        with np.errstate(all="ignore"):
            run(code, geometry, (*windows, *numbers), self.backwards)
