"""Instructions that call, and build the arguments of calls; and those that enter contexts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.calls import described, refuse, sequence
from gpusched.graph.safety.instructions import After, Instruction, State, push, rule
from gpusched.graph.safety.kinds import (
    Kind,
    Known,
    Listing,
    Options,
    Row,
    is_shape,
    known_items,
)
from gpusched.graph.safety.operators import unary

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter


@rule("KW_NAMES")
def _kw_names(self: Interpreter, state: State, instruction: Instruction) -> After:
    return replace(state, keywords=self.code.co_consts[int(instruction.arg or 0)])


@rule("CALL")
def _call(self: Interpreter, state: State, instruction: Instruction) -> After:
    return _called(self, replace(state, keywords=()), int(instruction.arg or 0), state.keywords)


@rule("CALL_KW")
def _call_kw(self: Interpreter, state: State, instruction: Instruction) -> After:
    names = state.stack[-1]
    if not isinstance(names, Known):
        refuse(GraphBreak.OWN_CALLS, "calls with names that are not known")
    return _called(self, push(state, pops=1), int(instruction.arg or 0), names.value)


def _called(self: Interpreter, state: State, count: int, keywords: tuple[str, ...]) -> State:
    values = list(state.stack[len(state.stack) - count :])
    names = dict(zip(keywords, values[count - len(keywords) :], strict=True))
    args = values[: count - len(keywords)]
    first, second = state.stack[-count - 2], state.stack[-count - 1]
    if first is Kind.NULL:
        callee = second
    else:
        callee = first
        if second is not Kind.NULL:
            args.insert(0, second)
    return _finished(self, push(state, pops=count + 2), callee, args, names)


def _finished(self: Interpreter, state: State, callee: Any, args: list[Any],
              names: dict[str, Any]) -> State:  # fmt: skip
    """Return the state after a call, whose function and arguments have been taken off."""
    return push(state, self.call(callee, args, names))


@rule("CALL_FUNCTION_EX")
def _call_ex(self: Interpreter, state: State, instruction: Instruction) -> After:
    stack = list(state.stack)
    # Since Python 3.14 there is always a place for them.
    named = sys.version_info >= (3, 14) or int(instruction.arg or 0) & 1
    options = stack.pop() if named else Options(())
    given, slots = stack.pop(), [stack.pop(), stack.pop()]
    args = known_items(given)
    if options is Kind.NULL:
        options = Options(())
    if args is None or not isinstance(options, Options):
        refuse(GraphBreak.OWN_CALLS, "calls with arguments that are not known")
    callee = next((slot for slot in slots if slot is not Kind.NULL), Kind.OTHER)
    return _finished(self, replace(state, stack=tuple(stack)), callee, list(args),
                     dict(options.names))  # fmt: skip


@rule("BUILD_MAP")
def _build_map(self: Interpreter, state: State, instruction: Instruction) -> After:
    count = int(instruction.arg or 0)
    pairs = state.stack[len(state.stack) - 2 * count :]
    names = [key.value for key in pairs[::2] if isinstance(key, Known) and type(key.value) is str]
    if len(names) < count:
        refuse(GraphBreak.OWN_CODE, "builds a dictionary")
    return push(state, Options(tuple(zip(names, pairs[1::2], strict=True))), pops=2 * count)


@rule("BUILD_CONST_KEY_MAP")
def _build_const_map(self: Interpreter, state: State, instruction: Instruction) -> After:
    count, keys = int(instruction.arg or 0), state.stack[-1]
    if not isinstance(keys, Known) or not all(type(key) is str for key in keys.value):
        refuse(GraphBreak.OWN_CODE, "builds a dictionary")
    values = state.stack[-count - 1 : -1]
    return push(state, Options(tuple(zip(keys.value, values, strict=True))), pops=count + 1)


@rule("DICT_MERGE", "DICT_UPDATE")
def _dict_merge(self: Interpreter, state: State, instruction: Instruction) -> After:
    into, more = state.stack[-int(instruction.arg or 0) - 1], state.stack[-1]
    if not isinstance(into, Options) or not isinstance(more, Options):
        refuse(GraphBreak.OWN_CODE, "builds a dictionary")
    stack = list(state.stack[:-1])
    stack[-int(instruction.arg or 0)] = Options((*into.names, *more.names))
    return replace(state, stack=tuple(stack))


@rule("LIST_EXTEND")
def _list_extend(self: Interpreter, state: State, instruction: Instruction) -> After:
    more = state.stack[-1]
    if known_items(more) is None and not isinstance(more, Row) and not is_shape(more):
        refuse(GraphBreak.OWN_CODE, "builds a list of what is not known")
    return self.lists.built(state, int(instruction.arg or 0), more)


@rule("LIST_TO_TUPLE")
def _list_to_tuple(self: Interpreter, state: State, instruction: Instruction) -> After:
    listing = state.stack[-1]
    if not isinstance(listing, Listing | Row):
        refuse(GraphBreak.OWN_CODE, "builds a tuple of what is not known")
    return push(state, sequence(tuple, listing), pops=1)


@rule("CALL_INTRINSIC_1")
def _intrinsic(self: Interpreter, state: State, instruction: Instruction) -> After:
    if "LIST_TO_TUPLE" in str(instruction.argrepr):
        return _list_to_tuple(self, state, instruction)
    if "UNARY_POSITIVE" in str(instruction.argrepr):
        return unary(self, state, instruction)
    refuse(GraphBreak.OWN_CODE, "does what gpusched cannot follow")


# Contexts -------------------------------------------------------------------------------------


@rule("BEFORE_WITH")
def _before_with(self: Interpreter, state: State, instruction: Instruction) -> After:
    if state.stack[-1] is not Kind.STATE:
        refuse(GraphBreak.OWN_CODE, f"enters {described(state.stack[-1])}")
    return push(state, Kind.LEAVING, Kind.OTHER, pops=1)
