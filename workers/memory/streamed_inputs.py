"""Tasks that join chunks: they get each from where it is, at the time at which they copy it.

Such a task needs room for its result and one chunk, rather than for its result and all chunks.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.typing import Key

from gpusched.graph.subgraph import copied

if TYPE_CHECKING:
    from distributed.worker_state_machine import TaskState

    from gpusched.workers.memory.store import Store

streamed: ContextVar[Collection[Key]] = ContextVar("streamed", default=())
"""The keys that the store returns as `StoredArray`, in the context of the task that reads them."""


class StoredArray:
    """An array of a worker's store that is read whenever its elements are asked for.

    Notes
    -----
    Thread-safe. Nothing is kept of what was read, so that the store may spill it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from gpusched.workers.device.host import HostDevice
    >>> from gpusched.workers.memory.streamed_inputs import StoredArray
    >>> from gpusched.workers.memory.spillfiles import SpillFiles
    >>> from gpusched.workers.memory.store import Store
    >>> store = Store(HostDevice(), SpillFiles(tempfile.mkdtemp()))
    >>> store["x"] = np.arange(3)
    >>> array = StoredArray(store, "x", (3,), np.dtype(int))
    >>> array.ndim, np.asarray(array)
    (1, array([0, 1, 2]))
    >>> store.close()
    """

    def __init__(self, store: Store, key: Key, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._store = store
        self._key = key
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the array, as NumPy does where it is copied into another."""
        return np.array(self._store.read(self._key), dtype, copy=copy)

    def __getitem__(self, index: Any) -> Any:
        """Return a part of the array; dask asks so for axes that are missing."""
        return np.asarray(self)[index]


def lendable(task: TaskState, store: Store) -> list[TaskState]:
    """Return those inputs of a task that it only copies into its result; none if it does more."""
    whole = copied(task.run_spec)
    forms = [store.array_of(key) for key in whole]
    if not all(form and form[0] for form in forms):
        return []
    return [each for each in task.dependencies if each.key in whole]
