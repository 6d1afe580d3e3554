"""Arrays of one task that are copied to the device for it, and the registers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpusched.breaks import Reason
from gpusched.graph.running.decisions import Direct
from gpusched.placed import Mover, Placed, hosted
from gpusched.plan.plan import Register


class TaskCopies:
    """The arrays of one task in device memory, as CuPy's, and as the program has them.

    It moves arrays for what the task calls, too: all tasks of a batch share their copies.

    Parameters
    ----------
    mover
        What copies arrays.
    least
        Elements of the smallest result that stays on the device.

    Notes
    -----
    Belongs to one thread. An array is copied once.
    """

    def __init__(self, mover: Mover, least: int) -> None:
        self.mover = mover
        self._least = least
        self._made: dict[int, tuple[np.ndarray, Placed]] = {}

    def on_device(self, value: Any) -> Any:
        """Return a value, or several, with CuPy's arrays instead of chunks."""
        kind = type(value)
        if kind is Placed:
            return value.array
        if kind is np.ndarray:
            return self._copy(value).array
        if kind is tuple or kind is list:
            return kind([self.on_device(item) for item in value])
        return value

    def _copy(self, array: np.ndarray) -> Placed:
        found = self._made.get(id(array))
        if found is None:
            copy = Placed(self.mover.to_device(array, wait=False))
            found = self._made[id(array)] = array, copy
        return found[1]

    def keep(self) -> None:
        """Have the copies taken in place of the task's inputs, as others may compute with them."""
        for array, copy in self._made.values():
            self.mover.uploaded(array, copy)

    def to_device(self, array: np.ndarray, wait: bool = True) -> Any:
        """Return the copy in device memory, always the same one."""
        return self._copy(array).array

    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in host memory."""
        return self.mover.to_host(array)

    def uploaded(self, array: np.ndarray, copy: Placed) -> None:
        """Take note of a copy that a task of a batch has computed with."""
        self.mover.uploaded(array, copy)

    def settled(self, value: Any, structure: Any = None) -> Any:
        """Return results on the device as the program has them: what is small in host memory.

        Parameters
        ----------
        value
            CuPy's arrays, also in tuples, lists and dictionaries.
        structure
            The same with `gpusched.plan.plan.Register` instead of arrays that may be NumPy's
            scalars to the program; None where none is.
        """
        kind = type(value)
        if kind is tuple or kind is list:
            parts = structure if isinstance(structure, tuple | list) else [None] * len(value)
            pairs = zip(value, parts, strict=True)
            return kind([self.settled(item, part) for item, part in pairs])
        if kind is dict:
            named = structure if isinstance(structure, dict) else {}
            return {key: self.settled(item, named.get(key)) for key, item in value.items()}
        if not hasattr(kind, "__cuda_array_interface__"):
            return value
        if isinstance(structure, Register) and structure.scalar:
            return self.mover.to_host(value)[()]
        if value.size >= self._least:
            return Placed(value)
        # Whoever takes it computes with a few numbers, sooner than it launches a kernel.
        return self.mover.to_host(value)


class Moved(list[Any]):
    """Registers whose arrays are in device memory while kernels run, and NumPy's for all else.

    Parameters
    ----------
    registers
        Of the task, with arrays of NumPy's and `Placed` ones.
    inputs
        The registers that are read.
    copies
        The task's.
    refuse
        Called with a function's name and the reason before functions are called on the host.
    pays
        Returns whether the device is done sooner with so many calls of CuPy's.
    """

    def __init__(self, registers: list[Any], inputs: Iterable[int], copies: TaskCopies,
                 refuse: Callable[[tuple[str, Reason]], None],
                 pays: Callable[[int], bool]) -> None:  # fmt: skip
        super().__init__(registers)
        self.copies = copies
        self._inputs = tuple(inputs)
        self._refuse = refuse
        self.pays = pays
        self.left = False
        """Whether functions are called on the host, rather than kernels."""

    def leave(self, operation: str, reason: Reason) -> None:
        """Give functions NumPy's arrays from now on, and note why."""
        self._refuse((operation, reason))
        self.left = True
        for k in self._inputs:
            self[k] = hosted(self[k])


def leave(registers: list[Any], found: Direct) -> None:
    """Have functions called on NumPy's arrays, if those of the task could be moved."""
    if isinstance(registers, Moved):
        registers.leave(found.operation, found.reason)
