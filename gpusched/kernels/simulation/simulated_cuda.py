"""What `numba.cuda` means inside a simulated kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from gpusched.backends.cuda.simulated_threads import Thread, barrier, current, place
from gpusched.kernels.host.cuda_names import ATOMICS, WARP, numpy_dtype
from gpusched.kernels.simulation.watched_arrays import Tracked, tracked, uninitialised


class _Position:
    """A triple of the running thread, with ``x``, ``y`` and ``z``."""

    def __init__(self, get: Callable[[Thread], tuple[int, int, int]]) -> None:
        self._get = get

    @property
    def x(self) -> int:
        return self._get(current())[0]

    @property
    def y(self) -> int:
        return self._get(current())[1]

    @property
    def z(self) -> int:
        return self._get(current())[2]


def grid(ndim: int) -> Any:
    """Return the running thread's position in the whole grid."""
    t = current()
    found = tuple(b * n + k for b, n, k in zip(t.block.position, t.extent, t.position, strict=True))
    return found[0] if ndim == 1 else found[:ndim]


def gridsize(ndim: int) -> Any:
    """Return the number of threads of the whole grid."""
    t = current()
    found = tuple(b * n for b, n in zip(t.grid, t.extent, strict=True))
    return found[0] if ndim == 1 else found[:ndim]


def shared_array(shape: Any, dtype: Any) -> Tracked:
    """Return the block's array of this declaration."""
    thread = current()
    key, thread.declared = thread.declared, thread.declared + 1
    if key not in thread.block.memory:
        line = sys._getframe(1).f_lineno
        array = uninitialised(shape, numpy_dtype(dtype))
        thread.block.memory[key] = tracked(array, f"the shared array of line {line}", shared=True)
    found: Tracked = thread.block.memory[key]
    return found


def local_array(shape: Any, dtype: Any) -> Tracked:
    """Return an array of the running thread's own."""
    array = uninitialised(shape, numpy_dtype(dtype))
    return Tracked(array, f"the local array of line {sys._getframe(1).f_lineno}", None, array)


def _atomic(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operation(array: Tracked, index: Any, value: Any) -> Any:
        line = place(sys._getframe(1))
        return array.atomically(index, lambda before: change(before, value), line)

    return operation


def _compare_and_swap(array: Tracked, index: Any, old: Any, value: Any) -> Any:
    line = place(sys._getframe(1))
    return array.atomically(index, lambda before: value if before == old else before, line)


def _fence() -> None:
    """Do nothing: a simulated thread's writes are seen at once."""


class _Names(SimpleNamespace):
    """The names there are; any other is an error that says so."""

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"the simulator has no cuda.{name}")


@lru_cache(maxsize=1)
def cuda() -> Any:
    """Return what stands for the module."""
    from numba import types

    atomics = {name: _atomic(change) for name, change in ATOMICS.items()}
    dtypes = {
        name: getattr(types, name)
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                     "float32", "float64", "boolean")
    }  # fmt: skip
    return _Names(
        threadIdx=_Position(lambda t: t.position),
        blockIdx=_Position(lambda t: t.block.position),
        blockDim=_Position(lambda t: t.extent),
        gridDim=_Position(lambda t: t.grid),
        grid=grid,
        gridsize=gridsize,
        warpsize=WARP,
        syncthreads=barrier,
        threadfence=_fence,
        threadfence_block=_fence,
        shared=_Names(array=shared_array),
        local=_Names(array=local_array),
        atomic=_Names(cas=_compare_and_swap, **atomics),
        **dtypes,
    )


@lru_cache(maxsize=1)
def replacements() -> dict[int, Any]:
    """Return what to read instead of the module, or of a name of it, by its identity."""
    import numba.cuda

    known = vars(cuda())
    found = {
        id(getattr(numba.cuda, name)): value
        for name, value in known.items()
        if name not in ("warpsize",) and hasattr(numba.cuda, name)
    }
    return found | {id(numba.cuda): cuda()}
