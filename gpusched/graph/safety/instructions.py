"""The table of allowed instructions: those of the stack, of variables and of strings.

What each changes is a `State`: the stack and the variables of a function, in kinds.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.safety.calls import described, refuse
from gpusched.graph.safety.kinds import (
    Kind,
    Known,
    Method,
    aged,
    is_array,
    is_plain,
    is_settled,
    joined,
)
from gpusched.record.chunk import METHODS, UFUNC_METHODS

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter

_ATTRIBUTES = {"shape": Kind.SHAPE, "dtype": Kind.PLAIN, "ndim": Kind.PLAIN, "size": Kind.PLAIN,
               "itemsize": Kind.PLAIN, "nbytes": Kind.PLAIN}  # fmt: skip
"""What of an array is known without its values."""

_VIEWS = frozenset(["T", "real", "imag"])

_OF_PLAIN = {"kind": Kind.TEXT, "char": Kind.TEXT, "name": Kind.TEXT, "itemsize": Kind.PLAIN,
             "type": Kind.PLAIN, "dtype": Kind.PLAIN, "ndim": Kind.PLAIN, "start": Kind.PLAIN,
             "stop": Kind.PLAIN, "step": Kind.PLAIN, "eps": Kind.PLAIN, "tiny": Kind.PLAIN,
             "max": Kind.PLAIN, "min": Kind.PLAIN, "bits": Kind.PLAIN}  # fmt: skip
"""Attributes of dtypes, slices and what `numpy.finfo` returns. None of these has methods of such
names; those of NumPy scalars are read, and then refused where they are called."""


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


Instruction = dis.Instruction
After = State | None | list[tuple[int | None, State | None]]
Rule = Callable[["Interpreter", State, Instruction], After]

TABLE: dict[str, Rule] = {}
"""What each allowed instruction does, by its name in any of the versions of Python."""

NOT_FOLLOWED = GraphBreak.OWN_CODE, "does what gpusched cannot follow"

SAID = {
    "STORE_SUBSCR": (GraphBreak.OWN_ASSIGNS, "assigns to elements of an array"),
    "DELETE_SUBSCR": (GraphBreak.OWN_ASSIGNS, "deletes elements"),
    "STORE_SLICE": (GraphBreak.OWN_ASSIGNS, "assigns to elements of an array"),
    "STORE_ATTR": (GraphBreak.OWN_CODE, "sets an attribute"),
    "DELETE_ATTR": (GraphBreak.OWN_CODE, "deletes an attribute"),
    "STORE_GLOBAL": (GraphBreak.OWN_CODE, "sets a global variable"),
    "DELETE_GLOBAL": (GraphBreak.OWN_CODE, "deletes a global variable"),
    "STORE_DEREF": (GraphBreak.OWN_CODE, "sets a variable of an outer function"),
    "BUILD_SET": (GraphBreak.OWN_CODE, "builds a set"),
}
"""What is said of some instructions that are not in the table."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function into the table as the meaning of instructions of these names."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            TABLE[name] = rule
        return rule

    return enter


@rule("RESUME", "NOP", "PRECALL", "COPY_FREE_VARS", "NOT_TAKEN")
def _nothing(self: Interpreter, state: State, instruction: Instruction) -> After:
    return state


@rule("POP_TOP", "END_FOR", "POP_ITER")
def _pop(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, pops=1)


@rule("PUSH_NULL")
def _push_null(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Kind.NULL)


@rule("COPY")
def _copy(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, state.stack[-int(instruction.arg or 0)])


@rule("SWAP")
def _swap(self: Interpreter, state: State, instruction: Instruction) -> After:
    stack, depth = list(state.stack), int(instruction.arg or 0)
    stack[-1], stack[-depth] = stack[-depth], stack[-1]
    return replace(state, stack=tuple(stack))


# Variables and constants --------------------------------------------------------------------


@rule("LOAD_CONST", "LOAD_SMALL_INT")
def _load_const(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Known(instruction.argval))


@rule("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
def _load_fast(self: Interpreter, state: State, instruction: Instruction) -> After:
    # Since Python 3.13 a cell is loaded so, to become part of a function that is made.
    cell = int(instruction.arg or 0) >= self.code.co_nlocals
    if cell or instruction.argval in self.code.co_cellvars:
        return push(state, Kind.OTHER)
    return push(state, loaded(state, instruction.argval))


@rule("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
def _load_two(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, *(loaded(state, name) for name in instruction.argval))


@rule("STORE_FAST")
def _store_fast(self: Interpreter, state: State, instruction: Instruction) -> After:
    return stored(push(state, pops=1), instruction.argval, state.stack[-1])


@rule("STORE_FAST_STORE_FAST")
def _store_two(self: Interpreter, state: State, instruction: Instruction) -> After:
    first, second = instruction.argval
    after = stored(push(state, pops=2), first, state.stack[-1])
    return stored(after, second, state.stack[-2])


@rule("STORE_FAST_LOAD_FAST")
def _store_load(self: Interpreter, state: State, instruction: Instruction) -> After:
    first, second = instruction.argval
    after = stored(push(state, pops=1), first, state.stack[-1])
    return push(after, loaded(after, second))


@rule("DELETE_FAST")
def _delete_fast(self: Interpreter, state: State, instruction: Instruction) -> After:
    return stored(state, instruction.argval, Kind.UNBOUND)


@rule("LOAD_GLOBAL")
def _load_global(self: Interpreter, state: State, instruction: Instruction) -> After:
    name = str(instruction.argval)
    try:
        found = Known(self.outside.name(self.function, name), name)
    except KeyError:
        refuse(GraphBreak.OWN_OBJECTS, f"uses {name}, which is not defined")
    if not int(instruction.arg or 0) & 1:
        return push(state, found)
    # NULL is below what is called until Python 3.12, and above it since.
    after = sys.version_info >= (3, 13)
    return push(state, *((found, Kind.NULL) if after else (Kind.NULL, found)))


@rule("LOAD_DEREF")
def _load_deref(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, self.held(state, str(instruction.argval)))


@rule("LOAD_ATTR", "LOAD_METHOD")
def _load_attr(self: Interpreter, state: State, instruction: Instruction) -> After:
    owner, name = state.stack[-1], str(instruction.argval)
    found = _attribute(self, owner, name)
    called = instruction.opname == "LOAD_METHOD"
    if not called and _flags_methods():
        called = bool(int(instruction.arg or 0) & 1)
    if name in _VIEWS and owner is Kind.FRESH:
        state = state.aged()
    return push(state, *((found, Kind.NULL) if called else (found,)), pops=1)


def _flags_methods() -> bool:
    """Return whether LOAD_ATTR says that a call follows, as it does from Python 3.12 on."""
    return "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255


def _attribute(self: Interpreter, owner: Any, name: str) -> Any:
    """Return the kind of an attribute."""
    if is_array(owner):
        if name in _ATTRIBUTES:
            return _ATTRIBUTES[name]
        if name in _VIEWS:
            return Kind.ARRAY
        if name in METHODS or name == "astype":
            return Method(owner, name)
    elif isinstance(owner, Known) and type(owner.value) is types.ModuleType:
        try:
            return Known(self.outside.entry(vars(owner.value), name), f"{owner.name}.{name}")
        except KeyError:
            refuse(GraphBreak.OWN_OBJECTS, f"uses {owner.name}.{name}, which is not loaded yet")
    elif isinstance(owner, Known) and isinstance(owner.value, np.ufunc) and name in UFUNC_METHODS:
        return Method(owner, name)
    elif is_plain(owner) and name in _OF_PLAIN:
        return _OF_PLAIN[name]
    refuse(GraphBreak.OWN_ATTRIBUTE, f"uses .{name} of {described(owner)}")


# Strings --------------------------------------------------------------------------------------


@rule("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE", "FORMAT_WITH_SPEC")
def _format(self: Interpreter, state: State, instruction: Instruction) -> After:
    spec = instruction.opname == "FORMAT_WITH_SPEC" or (
        instruction.opname == "FORMAT_VALUE" and int(instruction.arg or 0) & 4
    )
    count = 2 if spec else 1
    for kind in state.stack[-count:]:
        if not is_settled(kind):
            refuse(GraphBreak.OWN_DECIDES, f"formats {described(kind)}")
    return push(state, Kind.TEXT, pops=count)


@rule("BUILD_STRING")
def _build_string(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Kind.TEXT, pops=int(instruction.arg or 0))
