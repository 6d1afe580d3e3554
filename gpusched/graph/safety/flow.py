"""Instructions that branch, loop, call and return."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.calls import described, is_error, refuse
from gpusched.graph.safety.instructions import TABLE, After, Instruction, Rule, State, push, rule
from gpusched.graph.safety.kinds import (
    Items,
    Kind,
    Known,
    Listing,
    Method,
    Options,
    aged,
    holds_new,
    items_of,
)
from gpusched.graph.safety.operators import decided, is_none, unary

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter


@rule("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def _jump(self: Interpreter, state: State, instruction: Instruction) -> After:
    return [(int(instruction.argval), state)]


def _branch(name: str) -> Rule:
    wanted = name.endswith(("IF_TRUE", "NOT_NONE"))
    about_none = name.endswith("NONE")

    def run(self: Interpreter, state: State, instruction: Instruction) -> After:
        kind, after = state.stack[-1], push(state, pops=1)
        value = decided(is_none(kind, negated=True) if about_none else kind)
        target = int(instruction.argval)
        if value is None:
            return [(None, after), (target, after)]
        return [(target, after)] if value == wanted else after

    return run


for _name in ("POP_JUMP{}_IF_TRUE", "POP_JUMP{}_IF_FALSE", "POP_JUMP{}_IF_NONE",
              "POP_JUMP{}_IF_NOT_NONE"):  # fmt: skip
    for _direction in ("", "_FORWARD", "_BACKWARD"):
        TABLE[_name.format(_direction)] = _branch(_name)


@rule("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _jump_or_pop(self: Interpreter, state: State, instruction: Instruction) -> After:
    value = decided(state.stack[-1])
    wanted = instruction.opname == "JUMP_IF_TRUE_OR_POP"
    target, popped = int(instruction.argval), push(state, pops=1)
    if value is None:
        return [(None, popped), (target, state)]
    return [(target, state)] if value == wanted else popped


@rule("RETURN_VALUE")
def _return(self: Interpreter, state: State, instruction: Instruction) -> After:
    self.returns(state.stack[-1])
    return None


@rule("RETURN_CONST")
def _return_const(self: Interpreter, state: State, instruction: Instruction) -> After:
    self.returns(Known(instruction.argval))
    return None


@rule("LOAD_ASSERTION_ERROR")
def _load_assertion(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, Known(AssertionError))


@rule("RAISE_VARARGS")
def _raise(self: Interpreter, state: State, instruction: Instruction) -> After:
    # Nothing has been changed yet: the function raises again, on real arrays.
    for kind in state.stack[len(state.stack) - int(instruction.arg or 0) :]:
        known = kind.value if isinstance(kind, Known) else None
        if kind is not Kind.ERROR and not is_error(known):
            refuse(GraphBreak.OWN_CALLS, f"raises {described(kind)}")
    return None


# Calls ----------------------------------------------------------------------------------------


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
    owner = [callee.owner] if isinstance(callee, Method) else []
    found, shares = self.call(callee, args, names)
    if shares and holds_new([*owner, *args, *names.values()]):
        state = state.aged()
        found = aged(found)
    return push(state, found)


@rule("CALL_FUNCTION_EX")
def _call_ex(self: Interpreter, state: State, instruction: Instruction) -> After:
    stack = list(state.stack)
    # Since Python 3.14 there is always a place for them.
    named = sys.version_info >= (3, 14) or int(instruction.arg or 0) & 1
    options = stack.pop() if named else Options(())
    given, slots = stack.pop(), [stack.pop(), stack.pop()]
    args = items_of(given)
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


@rule("BUILD_LIST")
def _build_list(self: Interpreter, state: State, instruction: Instruction) -> After:
    count = int(instruction.arg or 0)
    items = state.stack[len(state.stack) - count :]
    return push(state, Listing(tuple(items)), pops=count)


@rule("LIST_EXTEND")
def _list_extend(self: Interpreter, state: State, instruction: Instruction) -> After:
    depth, items = int(instruction.arg or 0), items_of(state.stack[-1])
    into = state.stack[-depth - 1]
    if items is None or not isinstance(into, Listing):
        refuse(GraphBreak.OWN_CODE, "builds a list of what is not known")
    stack = list(state.stack[:-1])
    stack[-depth] = Listing((*into.items, *items))
    return replace(state, stack=tuple(stack))


@rule("LIST_TO_TUPLE")
def _list_to_tuple(self: Interpreter, state: State, instruction: Instruction) -> After:
    listing = state.stack[-1]
    if not isinstance(listing, Listing):
        refuse(GraphBreak.OWN_CODE, "builds a tuple of what is not known")
    return push(state, Items(listing.items), pops=1)


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
