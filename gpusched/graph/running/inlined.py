"""Users' functions as the calls of NumPy that they make, for tasks without kernels.

A function that was shown to be safe to record makes the same calls for all chunks of one kind. Made
one by one, those of several functions run on blocks together, and what several of them compute is
computed once: both on the same operands in the same order, so with the same bits. It is done only
for functions whose calls are views and elementwise calls, and of which the result is a new array of
such a call: then the order of the calls is seen in floating-point errors only, and no result shares
memory with anything. Where there is such an error, the functions themselves are called
(`gpusched.graph.running.calling`). A function of eight operations on chunks of 1,200 x 1,200
float64 took 1.3 times the processor time by itself; of 300 x 300, as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusched.graph.running.division import is_elementwise
from gpusched.graph.running.inputs import describe
from gpusched.plan.plan import Register, used_registers
from gpusched.record.catalogue import has
from gpusched.record.record import Recorder
from gpusched.record.steps import Calls, ProgramStep


class Inlining:
    """The steps of a segment, with those of users' functions exchanged for what they call.

    Parameters
    ----------
    free
        The first register that the segment's program has not.
    """

    def __init__(self, free: int) -> None:
        self.steps: dict[int, list[tuple[int, ProgramStep]]] = {}
        """Of functions, by the registers of their results."""
        self.free = free
        """The first register that is not in use."""
        self._known: dict[Any, int] = {}
        """Registers of what functions compute on their way, by the call."""
        self.is_quiet = True
        """Whether functions that are called as they are report nothing at once."""

    def follow(self, recorder: Recorder, result: int, given: Mapping[int, Any],
               call: Callable[[], Any]) -> Any:  # fmt: skip
        """Call a function, keep what it calls if that shows all that it did, and return its result.

        Parameters
        ----------
        recorder
            Of the segment.
        result
            The register of the function's result.
        given
            What the function is given, by register.
        call
            Calls it.
        """
        recorder.followed = calls = Calls(given, self.free)
        steps = None
        try:
            found = call()
            steps = self._steps_for(result, found, calls)
        finally:
            recorder.followed = None
            if steps is None:
                self.is_quiet &= calls.is_quiet
                self._known.clear()  # The function may change what they were computed of.
        if steps is not None:
            self.steps[result] = steps
        return found

    def _steps_for(
        self, result: int, found: Any, calls: Calls
    ) -> list[tuple[int, ProgramStep]] | None:
        returned = calls.register_of(found)
        if returned is None or not calls.is_complete:
            return None
        kinds = {register: is_elementwise(step) for register, step in calls.made}
        fits = all(kinds[register] or _is_view(step) for register, step in calls.made)
        if not (fits and kinds.get(returned)):
            return None
        steps: list[tuple[int, ProgramStep]] = []
        names: Any = {k: Register(k) for _, step in calls.made for k in step.registers}
        for register, step in calls.made:
            call = step.renamed(names)
            # What is returned is computed for itself: whoever has it may change it.
            key = None if register == returned else _identity(call)
            known = None if key is None else self._known.get(key)
            if known is None:
                known = result if register == returned else self._new(key)
                steps.append((known, call))
            names[register] = Register(known)
        return steps

    def _new(self, key: Any) -> int:
        """Return a register for what is on the way to a result."""
        self.free += 1
        if key is not None:
            self._known[key] = self.free - 1
        return self.free - 1


def _identity(step: ProgramStep) -> Any:
    """Return what is equal for calls with equal results; None if that is not known."""
    try:
        return id(step.function), describe((step.args, sorted(step.kwargs.items())))
    except TypeError:
        return None


def _is_view(step: ProgramStep) -> bool:
    """Return whether a call gives a view of its first argument, by numbers and slices."""
    return has(step.function, "view") and not used_registers((step.args[1:], step.kwargs))
