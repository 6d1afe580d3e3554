"""Functions that a function defines, as its lambdas, comprehensions and generator expressions are.

Such a function has no name outside, and reads variables of the outer one in cells. Whenever it
runs, it runs within a call that the outer function makes: it is never a result, nor kept anywhere.
So what its cells hold is what the outer function's variables hold before that call, as nobody else
assigns to them: a function inside that does is refused.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety import calls
from gpusched.graph.safety.calls import described, refuse
from gpusched.graph.safety.instructions import SAID, After, Instruction, State, push, rule, stored
from gpusched.graph.safety.kinds import (
    Generated,
    Items,
    Kind,
    Known,
    Listing,
    Made,
    Row,
    is_result,
    joined,
    row_of,
)

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter

GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of functions whose calls run nothing yet."""

_UNREAD = 4 | 8 | 16
"""Flags of a function's attributes that nobody reads here: its annotations, its cells, and from
Python 3.14 on what makes annotations."""

_DEFAULTS = GraphBreak.OWN_CODE, "defines a function inside, with defaults"


@rule("MAKE_CELL")
def _make_cell(self: Interpreter, state: State, instruction: Instruction) -> After:
    return state


@rule("LOAD_CLOSURE")
def _load_closure(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Kind.OTHER)


@rule("STORE_DEREF")
def _store_deref(self: Interpreter, state: State, instruction: Instruction) -> After:
    name = str(instruction.argval)
    if name not in self.code.co_cellvars:
        refuse(*SAID["STORE_DEREF"])
    return stored(push(state, pops=1), name, state.stack[-1])


@rule("MAKE_FUNCTION")
def _make_function(self: Interpreter, state: State, instruction: Instruction) -> After:
    flags, code = int(instruction.arg or 0), state.stack[-1]
    if flags & ~_UNREAD or not isinstance(code, Known):
        refuse(*_DEFAULTS)
    return push(state, Made(code.value, self), pops=1 + flags.bit_count())


@rule("SET_FUNCTION_ATTRIBUTE")
def _set_attribute(self: Interpreter, state: State, instruction: Instruction) -> After:
    """Follow what MAKE_FUNCTION's flags were until Python 3.12."""
    if int(instruction.arg or 0) & ~_UNREAD:
        refuse(*_DEFAULTS)
    return push(state, state.stack[-1], pops=2)


@rule("LOAD_FAST_AND_CLEAR")
def _load_and_clear(self: Interpreter, state: State, instruction: Instruction) -> After:
    """Keep a variable on the stack while a comprehension, from Python 3.12 on, has its name."""
    name = str(instruction.argval)
    if name in self.code.co_cellvars:
        # Two cells have this name: functions made within read another one than those made outside.
        reads = f"has a comprehension over {name}, which a function inside may read"
        refuse(GraphBreak.OWN_CODE, reads)
    before = dict(state.variables).get(name, Kind.UNBOUND)
    return push(stored(state, name, Kind.UNBOUND), before)


@rule("LIST_APPEND")
def _list_append(self: Interpreter, state: State, instruction: Instruction) -> After:
    return self.lists.built(state, int(instruction.arg or 0), Items(state.stack[-1:]))


@rule("RETURN_GENERATOR")
def _return_generator(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Kind.OTHER)


@rule("YIELD_VALUE")
def _yield(self: Interpreter, state: State, instruction: Instruction) -> After:
    if not is_result(state.stack[-1]):
        refuse(GraphBreak.OWN_CODE, f"yields {described(state.stack[-1])}")
    given = row_of(Listing((state.stack[-1],)))
    self.given = given if self.given is None else joined(self.given, given)
    return push(state, Known(None), pops=1)


def call(made: Made, args: list[Any], names: dict[str, Any], callers: tuple[Any, ...]) -> Any:
    """Return the kind of what a function gives that another one has defined.

    Parameters
    ----------
    made
        The function.
    args, names
        Kinds of its arguments.
    callers
        Functions that it is called by.
    """
    code = made.code
    if code.co_flags & GENERATORS:
        expression = code.co_varnames[:1] == (".0",) and len(args) == 1 and not names
        if not expression or code.co_flags & GENERATORS != inspect.CO_GENERATOR:
            refuse(GraphBreak.OWN_OBJECTS, f"calls {code.co_name}, a generator or a coroutine")
        return Generated(made, args[0])
    return _run(made, args, names, callers)[0]


def taken(generated: Generated, callers: tuple[Any, ...]) -> Row:
    """Return all that a generator expression gives."""
    found = _run(generated.made, [generated.first], {}, callers)[1]
    return Row(None) if found is None else found


def _run(made: Made, args: list[Any], names: dict[str, Any],
         callers: tuple[Any, ...]) -> tuple[Any, Any]:  # fmt: skip
    """Return the kinds of the result, and of what the function yields."""
    code = made.code
    if any(caller.__code__ is code for caller in callers):
        refuse(GraphBreak.OWN_CALLS, f"calls {code.co_name}, which calls itself")
    cells = tuple(types.CellType() for _ in code.co_freevars)
    outer, names_of_module = made.outer, made.outer.function.__globals__
    if "__builtins__" in names_of_module:  # Where each such function gets Python's own from.
        outer.outside.entry(names_of_module, "__builtins__")
    function = types.FunctionType(code, names_of_module, code.co_name, None, cells)
    comprehends = code.co_varnames[:1] == (".0",)
    arguments = {".0": args[0]} if comprehends else calls.parameters(function, args, names)
    inner = type(outer)(function, outer.outside, outer.lists, callers, outer)
    return inner.run(arguments), inner.given
