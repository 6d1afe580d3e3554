"""A task as the worker runs it: the one that dask sent, carried out by an `Execution`.

A task that is a coroutine runs on the event loop, and gets NumPy's arrays.
"""

from __future__ import annotations

from typing import Any

from dask.typing import Key

from gpusched.placed import hosted
from gpusched.threadsafe.task_cleanup import running
from gpusched.workers.execution import Execution


class OnStream:
    """Stands for a task's specification in `distributed.worker`, which calls it with the inputs."""

    is_coro = False

    def __init__(self, spec: Any, key: Key, execution: Execution) -> None:
        self.spec = spec
        self._key = key
        self._execution = execution
        self.in_pieces = False
        """Whether it is known before that the task does not fit as a whole."""

    def __call__(self, values: dict[Key, Any]) -> Any:
        """Run the task on the inputs that the worker has gathered."""
        with running(self._key):
            return self._execution.run(self.spec, self._key, values, self.in_pieces)

    def __repr__(self) -> str:
        return repr(self.spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)


class Coroutine:
    """Stands for the specification of a task that is a coroutine."""

    is_coro = True

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    async def __call__(self, values: dict[Key, Any]) -> Any:
        """Run the task on the inputs that the worker has gathered."""
        return await self.spec(hosted(values))

    def __repr__(self) -> str:
        return repr(self.spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)
