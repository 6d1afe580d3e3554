"""Users' functions as the calls of NumPy that they make, for tasks without kernels.

A function that was shown to be safe to record makes the same calls for all chunks of one kind. Made
one by one, those of several functions run on tiles together, and what several of them compute is
computed once: both on the same operands in the same order, so with the same bits. It is done only
for functions whose calls are views and elementwise calls, and of which the result is a new array of
such a call: then the order of the calls is seen in floating-point errors only, and no result shares
memory with anything. Where there is such an error, the functions themselves are called
(`gpusched.graph.segment`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusched.graph.tiled import is_elementwise
from gpusched.plan.plan import Register, used_registers
from gpusched.record.calls import Calls
from gpusched.record.catalogue import has
from gpusched.record.record import Recorder


class Inlining:
    """The steps of a segment, with those of users' functions exchanged for what they call.

    Parameters
    ----------
    make
        What makes a step of a function and its arguments.
    describe
        What returns something hashable that is equal for equal arguments, or raises `TypeError`.
    free
        The first register that the segment's program has not.
    """

    def __init__(self, make: Any, describe: Callable[[Any], Any], free: int) -> None:
        self.steps: dict[int, list[tuple[int, Any]]] = {}
        """Of functions, by the registers of their results."""
        self.free = free
        """The first register that is not in use."""
        self._make = make
        self._describe = describe
        self._known: dict[Any, int] = {}
        """Registers of what functions compute on their way, by the call."""
        self._followed: dict[int, Calls] = {}
        """Of functions, by the registers of their results."""

    @property
    def is_quiet(self) -> bool:
        """Whether functions that are called as they are report nothing at once."""
        left = (calls for result, calls in self._followed.items() if result not in self.steps)
        return all(calls.is_quiet for calls in left)

    def begin(self, recorder: Recorder, result: int, given: Mapping[int, Any]) -> None:
        """Follow the calls of a function that is given some lazy chunks, by register.

        Parameters
        ----------
        recorder
            Of the segment.
        result
            The register of the function's result.
        given
            The chunks.
        """
        recorder.followed = self._followed[result] = Calls(dict(given), self.free)

    def end(self, recorder: Recorder, result: int, found: Any) -> None:
        """Keep the calls of the function, if they show all that it did.

        Parameters
        ----------
        recorder
            Of the segment.
        result
            The register of the function's result.
        found
            What it has returned.
        """
        calls, recorder.followed = recorder.followed, None
        steps = self._steps_for(result, found, calls) if calls is not None else None
        if steps is not None:
            self.steps[result] = steps
        else:
            self._known.clear()  # The function may change what they were computed of.

    def _steps_for(self, result: int, found: Any, calls: Calls) -> list[tuple[int, Any]] | None:
        returned = calls.register_of(found)
        if returned is None or not calls.is_complete:
            return None
        made = [(c.register, self._make(c.function, c.args, c.kwargs)) for c in calls.made]
        kinds = {register: is_elementwise(step) for register, step in made}
        fits = all(kinds[r] or _is_view(step) for r, step in made)
        if not (fits and kinds.get(returned)):
            return None
        names: dict[int, int] = {}
        steps: list[tuple[int, Any]] = []
        for register, step in made:
            call = self._make(
                step.function, _renamed(step.args, names), _renamed(step.kwargs, names)
            )
            # What is returned is computed for itself: whoever has it may change it.
            key = None if register == returned else self._identity(call)
            known = None if key is None else self._known.get(key)
            if known is None:
                known = result if register == returned else self._new(key)
                steps.append((known, call))
            names[register] = known
        return steps

    def _identity(self, step: Any) -> Any:
        """Return what is equal for calls with equal results; None if that is not known."""
        values = (step.args, sorted(step.kwargs.items()))
        try:
            return id(step.function), _mark(values, self._describe)
        except TypeError:
            return None

    def _new(self, key: Any) -> int:
        """Return a register for what is on the way to a result."""
        self.free += 1
        if key is not None:
            self._known[key] = self.free - 1
        return self.free - 1


def _is_view(step: Any) -> bool:
    """Return whether a call gives a view of its first argument, by numbers and slices."""
    return has(step.function, "view") and not used_registers((step.args[1:], step.kwargs))


def _renamed(structure: Any, names: Mapping[int, int]) -> Any:
    if type(structure) is Register:
        return Register(names.get(structure.number, structure.number), structure.item)
    if type(structure) in (list, tuple):
        return type(structure)(_renamed(item, names) for item in structure)
    if type(structure) is dict:
        return {name: _renamed(value, names) for name, value in structure.items()}
    return structure


def _mark(value: Any, describe: Callable[[Any], Any]) -> Any:
    if type(value) is Register:
        return Register, value.number, value.item
    if type(value) in (list, tuple):
        return type(value), tuple([_mark(item, describe) for item in value])
    return describe(value)
