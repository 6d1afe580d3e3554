"""From what computes to how many bytes a chunk should have, and why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dask.utils import format_bytes

from gpusched.chunking.target import Target, target
from gpusched.dataclass import dataclass

OVERHEAD = 0.1
"""Part of the time that tasks may cost besides their kernels: larger chunks mean fewer tasks."""
MOVED = 3
"""Arrays that a kernel moves for each chunk: two that it reads, and one that it writes."""
ALIVE = 16
"""Chunks that have room in a thread's memory: the task's own, those that wait, and a reserve."""
A_THREAD = 4
"""Chunks that each thread gets at least, of an array whose size is known."""
LEAST = {"cpu": 1 << 20, "cuda": 32 << 20}
"""Bytes below which launching a kernel, and the threads of a GPU that stand idle, count."""


@dataclass(frozen=True)
class Choice:
    """A size for chunks."""

    nbytes: int
    """Bytes of a chunk at most."""
    why: str
    """In one sentence."""
    target: Target
    """What computes."""
    chunks: tuple[tuple[int, ...], ...] | None = None
    """The chunks of an array, along each axis, where its shape was given."""

    def __str__(self) -> str:
        return f"chunks of {format_bytes(self.nbytes)}: {self.why}"


def choose(
    shape: tuple[int, ...] | None = None, dtype: Any = None, *, on: Target | None = None
) -> Choice:
    """Return how large chunks should be on what dask computes with now.

    While fusion is on, this is what ``chunks="auto"`` means, unless ``array.chunk-size`` has been
    set in dask's configuration. Raises `TypeError` if there is a shape and no dtype, or objects,
    whose size is not known.

    Parameters
    ----------
    shape : tuple of int, optional
        Of an array, if its chunks are wanted too: then each thread gets at least four of them.
    dtype : dtype_like, optional
        Of that array.
    on : Target, optional
        What computes; by default the client's workers, or this process.

    Returns
    -------
    Choice
        Bytes, the reason for them, and the chunks of an array of that shape.

    Examples
    --------
    >>> from gpusched.chunking import choose
    >>> from gpusched.chunking.target import Target
    >>> gpu = Target("cuda", 1, 64 << 30, 2e12, 0.5e-3, "1 worker with a GPU")
    >>> choose(on=gpu).nbytes >> 30
    4
    >>> choose((40_000, 40_000), "float64", on=gpu).chunks[0]
    (20000, 20000)
    """
    where = target() if on is None else on
    nbytes, limited = _size(where)
    if shape is None:
        return Choice(nbytes, _why(where, nbytes, limited), where)
    if dtype is None or np.dtype(dtype).hasobject:
        raise TypeError(f"the size of elements of dtype {dtype} is not known: name a numeric dtype")
    most = math.prod(shape) * np.dtype(dtype).itemsize // (A_THREAD * where.threads)
    if most < nbytes:
        nbytes, limited = max(1 << 16, most), f"each thread gets {A_THREAD} of them"
    from dask.array.core import normalize_chunks

    chunks = normalize_chunks("auto", shape, limit=nbytes, dtype=np.dtype(dtype))
    return Choice(nbytes, _why(where, nbytes, limited), where, chunks)


def _size(where: Target) -> tuple[int, str]:
    """Return the bytes of a chunk, a power of two, and what else limits them, if so."""
    wanted = where.bandwidth * where.task_seconds / OVERHEAD / MOVED
    size = max(LEAST[where.kind], 1 << math.ceil(math.log2(max(1.0, wanted))))
    most = max(1 << 16, where.memory // ALIVE)
    if size <= most:
        return size, ""
    limited = f"{ALIVE} of them are as much as a thread has memory for"
    return 1 << int(math.log2(most)), limited


def _why(where: Target, nbytes: int, limited: str) -> str:
    busy = MOVED * nbytes / where.bandwidth
    told = (
        f"{where.name}, {where.bandwidth / 1e9:.3g} GB/s in all: {_seconds(busy)} of work for a "
        f"task that costs {_seconds(where.task_seconds)} besides"
    )
    return f"{told}; {limited}" if limited else told


def _seconds(number: float) -> str:
    return f"{number * 1e3:.3g} ms" if number < 1 else f"{number:.3g} s"
