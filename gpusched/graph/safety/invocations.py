"""Instructions that call, and build the arguments of calls; and those that enter contexts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety import closures
from gpusched.graph.safety.calls import described, is_item, item_of, refuse, sequence
from gpusched.graph.safety.instructions import After, Instruction, State, kept, push, rule
from gpusched.graph.safety.kinds import (
    ENDS,
    Generated,
    Kind,
    Known,
    Listing,
    Method,
    Options,
    Row,
    Series,
    aged,
    extended,
    holds_new,
    is_plain,
    is_shape,
    items_of,
    known_items,
    lists_in,
)
from gpusched.graph.safety.operators import held_by, unary

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
    owner = [callee.owner] if isinstance(callee, Method) else []
    if isinstance(callee, Method) and isinstance(callee.owner, Listing | Row):
        return _changed(self, state, callee, args, names)
    found, shares = self.call(callee, args, names)
    given = [*owner, *args, *names.values()]
    if shares:
        state = state.lending(given)
        found = kept(lists_in(given), aged(found) if holds_new(given) else found)
    return push(state, found)


def _changed(self: Interpreter, state: State, called: Method, args: list[Any],
             names: dict[str, Any]) -> State:  # fmt: skip
    """Return the state after a call of a list's method: see `OF_LISTS`."""
    owner, name = called.owner, called.name
    last = args[-1] if args and name in ("append", "extend", "insert") else None
    if isinstance(last, Generated):
        last = closures.taken(last, self.callers)
    numbers = args if last is None else args[:-1]
    if not owner.own or names or not all(map(is_plain, numbers)):
        refuse(GraphBreak.OWN_CHANGES, f"calls .{name} of a list that others may see")
    if name == "extend":
        if not (isinstance(last, Listing | Row | Series) or items_of(last) is not None):
            refuse(GraphBreak.OWN_OBJECTS, f"calls .extend with {described(last)}")
        return push(state.extended(owner, held_by(last)), Known(None))
    if last is not None and not is_item(last):
        refuse(GraphBreak.OWN_OBJECTS, f"calls .{name} with {described(last)}")
    found = item_of(owner) if name == "pop" else Known(None)
    return push(state.extended(owner, [] if last is None else [last]), found)


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
    depth, more = int(instruction.arg or 0), state.stack[-1]
    into = state.stack[-depth - 1]
    several = known_items(more) is not None
    known = several or isinstance(more, Row) or is_shape(more)
    if not known or not isinstance(into, Listing | Row):
        refuse(GraphBreak.OWN_CODE, "builds a list of what is not known")
    stack = list(state.stack[:-1])
    if isinstance(into, Listing) and several:
        stack[-depth] = replace(into, items=(*into.items, *held_by(more)))
    else:
        stack[-depth] = extended(into, held_by(more))
    return replace(state, stack=tuple(stack))


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
    if state.stack[-1] not in ENDS:
        refuse(GraphBreak.OWN_CODE, f"enters {described(state.stack[-1])}")
    return push(state, ENDS[state.stack[-1]], Kind.OTHER, pops=1)
