"""The registers of a task whose arrays gpusched copies to the device for its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpusched import config
from gpusched.fusion.plan import Register
from gpusched.placed import Mover, Placed, hosted

Uploads = dict[int, tuple[np.ndarray, Placed]]


class Moved(list[Any]):
    """Registers whose arrays are in device memory while kernels run, and NumPy's for all else.

    Parameters
    ----------
    registers
        Of the task, with arrays of NumPy's and `Placed` ones.
    inputs
        The registers that are read.
    mover
        What copies arrays.
    uploads
        By identity, the arrays that were copied for the task, with their copies.
    refuse
        Called with a function's name and the reason before functions are called on the host.
    """

    def __init__(self, registers: list[Any], inputs: Iterable[int], mover: Mover,
                 uploads: Uploads, refuse: Callable[[tuple[str, str]], None]) -> None:  # fmt: skip
        super().__init__(registers)
        self._inputs = tuple(inputs)
        self._mover = mover
        self._uploads = uploads
        self._refuse = refuse
        self.left = False
        """Whether functions are called on the host, rather than kernels."""

    def on_device(self) -> tuple[Any, ...]:
        """Return the inputs with arrays of CuPy's."""
        return tuple([self._up(self[k]) for k in self._inputs])

    def _up(self, value: Any) -> Any:
        kind = type(value)
        if kind is Placed:
            return value.array
        if kind is np.ndarray:
            if id(value) not in self._uploads:
                placed = Placed(self._mover.to_device(value))
                self._uploads[id(value)] = value, placed
                self._mover.uploaded(value, placed)
            return self._uploads[id(value)][1].array
        if kind is tuple or kind is list:
            return kind([self._up(item) for item in value])
        return value

    def leave(self, operation: str, reason: str) -> None:
        """Give functions NumPy's arrays from now on, and note why."""
        self._refuse((operation, reason))
        self.left = True
        for k in self._inputs:
            self[k] = hosted(self[k])

    def settled(self, structure: Any, value: Any) -> Any:
        """Return results of kernels as the program has them: what is small in host memory.

        Parameters
        ----------
        structure
            The results with `gpusched.fusion.plan.Register` in the place of arrays.
        value
            The results.
        """
        kind = type(structure)
        if kind is Register:
            return self._settled(value, structure.scalar)
        if kind is tuple or kind is list:
            pairs = zip(structure, value, strict=True)
            return kind([self.settled(part, item) for part, item in pairs])
        if kind is dict:
            return {key: self.settled(part, value[key]) for key, part in structure.items()}
        return value

    def _settled(self, array: Any, scalar: bool) -> Any:
        if not scalar and array.size >= config.get("fusion.minimum-elements"):
            return Placed(array)
        # Whoever takes it computes with a few numbers, sooner than it launches a kernel.
        found = self._mover.to_host(array)
        return found[()] if scalar else found
