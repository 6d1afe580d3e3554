"""What is known of the user's functions in a segment, as they are in this process now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph import safety
from gpusched.graph.known import known
from gpusched.graph.partials import bare
from gpusched.record.catalogue import own_traits


@dataclass(frozen=True)
class Examination:
    """Whether functions may be given lazy chunks, for what they read from outside now."""

    outsides: tuple[safety.Outside, ...]
    """What was read."""
    refused: tuple[str, Reason] | None = None
    """The name of the first function that may not, with the reason; None if all may."""

    @classmethod
    def of(cls, steps: Iterable[Any]) -> Examination:
        """Examine the functions of some steps, as these call them."""
        outsides = []
        for step in steps:
            verdict = verdict_of(step)
            outsides.append(verdict.outside)
            if verdict.reason is not None:
                return cls(tuple(outsides), (bare_name(step.function), said_of(verdict.reason)))
        return cls(tuple(outsides))

    def holds(self) -> bool:
        """Return whether everything that was read is as it was."""
        return all([outside.holds() for outside in self.outsides])


NOTHING = Examination(())
"""For steps that call libraries' functions only."""


def verdict_of(step: Any) -> safety.Verdict:
    """Return whether a step's function may be given lazy chunks, as the step calls it."""
    names = {name: safety.kind_of(value) for name, value in step.kwargs.items()}
    return safety.examined(step.function, map(safety.kind_of, step.args), names)


def is_own(step: Any) -> bool:
    """Return whether a step calls a function of the user's that was shown to be safe."""
    return step.replayed and not known(step.function)


def reasons(steps: Iterable[Any]) -> list[tuple[str, Reason]]:
    """Return (name, reason) for each function of the user's own that is not recorded."""
    found = []
    for step in steps:
        if "quick" in own_traits(bare(step.function)):
            continue
        reason = verdict_of(step).reason
        if reason and reason.kind is not GraphBreak.LIBRARY:
            found.append((bare_name(step.function), said_of(reason)))
    return found


def said_of(reason: Reason) -> Reason:
    """Return the reason as it is reported of a function of the user's own."""
    return reason.told(f"your function {reason}")


def bare_name(function: Any) -> str:
    """Return the name of what a `functools.partial` calls in the end."""
    return str(getattr(bare(function), "__name__", type(function).__name__))
