"""The stack and the variables of a function, in kinds, before one instruction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.safety.calls import refuse
from gpusched.graph.safety.kinds import Kind, aged, joined


@dataclass(frozen=True)
class State:
    """What the interpreter of Python holds before one instruction."""

    stack: tuple[Any, ...]
    variables: tuple[tuple[str, Any], ...]
    """Local variables, by name."""
    keywords: tuple[str, ...] = ()
    """Names of the last arguments of the call to come."""

    def joined(self, other: State) -> State:
        """Return what holds on two ways that meet."""
        if len(self.stack) != len(other.stack):
            refuse(GraphBreak.OWN_CODE, "leaves different numbers of values behind")
        stack = tuple(map(joined, self.stack, other.stack))
        mine, theirs = dict(self.variables), dict(other.variables)
        names = {name: joined(mine[name], theirs[name]) for name in mine if name in theirs}
        return State(stack, tuple(names.items()), self.keywords)

    def aged(self) -> State:
        """Return the state with no new arrays: something may share memory with one of them."""
        variables = tuple((name, aged(kind)) for name, kind in self.variables)
        return replace(self, stack=tuple(map(aged, self.stack)), variables=variables)


def push(state: State, *kinds: Any, pops: int = 0) -> State:
    """Return the state with some kinds taken from the stack and others put on it."""
    if len(state.stack) < pops:
        refuse(GraphBreak.OWN_CODE, "takes more values than there are")
    kept = state.stack[: len(state.stack) - pops]
    return replace(state, stack=(*kept, *kinds))


def stored(state: State, name: str, kind: Any) -> State:
    """Return the state in which a local variable has a kind."""
    return replace(state, variables=tuple({**dict(state.variables), name: kind}.items()))


def loaded(state: State, name: str) -> Any:
    """Return the kind of a local variable; refuse one that may have no value."""
    found = dict(state.variables).get(name, Kind.UNBOUND)
    if found is Kind.UNBOUND:
        refuse(GraphBreak.OWN_OBJECTS, f"uses {name}, which may have no value")
    return found
