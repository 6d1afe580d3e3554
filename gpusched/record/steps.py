"""The calls that a program makes, and those that a function makes which it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.plan.plan import Registers, substitute, used_registers


@dataclass(frozen=True)
class Taken:
    """What a step was before its partial application was taken apart."""

    register: int
    """The input that is its `gpusched.graph.functions.partials.Guard`."""
    number: int
    """Among the partial applications that this one guards."""
    held: int
    """How many of the arguments it held."""
    names: frozenset[str]
    """Keyword arguments that the call itself gives."""


@dataclass(frozen=True)
class ProgramStep:
    """One call; its arguments may hold `Register` objects."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    recorded: bool = False
    """Whether the function takes lazy chunks."""
    replayed: bool = True
    """Whether what was recorded holds for the next chunk of the same kind."""
    taken: Taken | None = None
    """Of a partial application that was taken apart."""
    shown: bool = False
    """Whether functions that are not recorded may see how its result is laid out in memory."""

    @property
    def registers(self) -> set[int]:
        """Return the registers that the arguments hold."""
        return used_registers(self.args) | used_registers(self.kwargs)

    def call(self, function: Callable[..., Any], registers: Registers) -> Any:
        """Call a function instead of the step's own, with its arguments."""
        args = substitute(self.args, registers)
        if not self.kwargs:
            return function(*args)
        return function(*args, **substitute(self.kwargs, registers))

    def renamed(self, names: Any) -> ProgramStep:
        """Return the same call with other registers: `Register` objects, by number."""
        return replace(
            self, args=substitute(self.args, names), kwargs=substitute(self.kwargs, names)
        )

    def as_it_is(self, inputs: Sequence[Any]) -> ProgramStep:
        """Return the call of a partial application that was changed since; else the step itself."""
        if self.taken is None or inputs[self.taken.register].holds():
            return self
        kwargs = {name: self.kwargs[name] for name in self.taken.names}
        function = inputs[self.taken.register].functions[self.taken.number]
        return ProgramStep(function, self.args[self.taken.held :], kwargs, replayed=False)
