"""Instructions that compute, compare, take items, branch, loop and return."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.calls import (
    arithmetic,
    described,
    held_by,
    is_error,
    item_of,
    refuse,
)
from gpusched.graph.safety.instructions import (
    SAID,
    TABLE,
    After,
    Instruction,
    Rule,
    State,
    push,
    rule,
)
from gpusched.graph.safety.kinds import (
    Items,
    Kind,
    Known,
    Listing,
    Row,
    is_array,
    is_listed,
    is_operand,
    is_plain,
    is_settled,
    is_shape,
    items_of,
    known_items,
    row_of,
)

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter

_COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


@rule("BINARY_OP")
def _binary(self: Interpreter, state: State, instruction: Instruction) -> After:
    left, right = state.stack[-2:]
    symbol = instruction.argrepr
    if symbol == "[]":
        return _subscript(self, state, instruction)
    if is_shape(left) and is_shape(right) and symbol in ("+", "+="):
        return push(state, Kind.SHAPE, pops=2)
    repeated = (left, right) if is_shape(left) else (right, left)
    if is_shape(repeated[0]) and is_plain(repeated[1]) and symbol in ("*", "*="):
        return push(state, Kind.SHAPE, pops=2)
    if isinstance(left, Listing | Row) and symbol in ("+", "+=", "*"):
        return _of_lists(self, state, instruction)
    doing = f"computes {symbol} with"
    found = arithmetic((left, right), doing)
    if symbol.endswith("=") and left is Kind.NUMBERS:
        refuse(GraphBreak.OWN_CHANGES, "changes an array of numbers in place")
    if symbol.endswith("=") and is_array(left):
        if left is not Kind.FRESH or symbol == "@=":
            refuse(GraphBreak.OWN_CHANGES, "changes an array in place that others may see")
        return push(state, Kind.FRESH, pops=2)
    if symbol == "@" and is_array(found):
        return push(state, Kind.ARRAY, pops=2)
    return push(state, found, pops=2)


def _of_lists(self: Interpreter, state: State, instruction: Instruction) -> After:
    """Follow ``[...] + [...]``, ``[...] += (...)`` and ``[...] * 3``."""
    left, right = state.stack[-2:]
    symbol, listed = instruction.argrepr, isinstance(right, Listing | Row)
    if symbol == "+=" and (listed or items_of(right) is not None):
        self.lists.change(left, held_by(right))
        return push(state, left, pops=2)
    if symbol == "+" and listed:
        both = isinstance(left, Listing) and isinstance(right, Listing)
        sum_of = Listing((*held_by(left), *held_by(right)))
        return push(state, self.made(sum_of if both else row_of(sum_of)), pops=2)
    if symbol == "*" and is_plain(right):
        return push(state, self.made(row_of(left)), pops=2)
    refuse(GraphBreak.OWN_OBJECTS, f"computes {symbol} with {described(right)}")


@rule("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE")
def unary(self: Interpreter, state: State, instruction: Instruction) -> After:
    """Replace the value on top of the stack by what is computed from it."""
    return push(state, arithmetic(state.stack[-1:], "computes with"), pops=1)


@rule("UNARY_NOT", "TO_BOOL")
def _truth(self: Interpreter, state: State, instruction: Instruction) -> After:
    kind = state.stack[-1]
    value = _decided(kind)
    negated = instruction.opname == "UNARY_NOT"
    return push(state, Kind.PLAIN if value is None else Known(value != negated), pops=1)


def _decided(kind: Any) -> bool | None:
    """Return whether a value is true; None if it may be either.

    Where an array decides, a plan holds for chunks that decide as the recorded one did
    (`gpusched.record.branches`): the number that the decision is, is settled then.
    """
    if isinstance(kind, Listing):
        return bool(kind.items)
    if not is_array(kind) and not is_settled(kind) and not isinstance(kind, Row):
        refuse(GraphBreak.OWN_DECIDES, f"decides by {described(kind)}")
    return bool(kind.value) if isinstance(kind, Known) else None


@rule("COMPARE_OP")
def _compare(self: Interpreter, state: State, instruction: Instruction) -> After:
    left, right = state.stack[-2:]
    symbol = str(instruction.argval).removeprefix("bool(").removesuffix(")")
    if is_array(left) or is_array(right):
        found = arithmetic((left, right), f"compares {symbol} with")
        truth = str(instruction.argrepr).startswith("bool(")
        return push(state, Kind.PLAIN if truth else found, pops=2)
    if not (is_settled(left) and is_settled(right)) or symbol not in _COMPARED:
        refuse(GraphBreak.OWN_DECIDES, f"compares {described(left)} with {described(right)}")
    if isinstance(left, Known) and isinstance(right, Known) and symbol in ("==", "!="):
        equal = left.value == right.value
        return push(state, Known(bool(equal == (symbol == "=="))), pops=2)
    return push(state, Kind.PLAIN, pops=2)


@rule("IS_OP")
def _is(self: Interpreter, state: State, instruction: Instruction) -> After:
    left, right = state.stack[-2:]
    negated = bool(instruction.arg)
    if isinstance(right, Known) and right.value is None:
        return push(state, _is_none(left, negated), pops=2)
    if isinstance(left, Known) and isinstance(right, Known):
        return push(state, Known((left.value is right.value) != negated), pops=2)
    refuse(GraphBreak.OWN_DECIDES, f"asks whether {described(left)} is {described(right)}")


def _is_none(kind: Any, negated: bool) -> Any:
    """Return the kind of ``value is None``, or of ``value is not None`` if negated."""
    if isinstance(kind, Known):
        return Known((kind.value is None) != negated)
    if is_array(kind) or kind is Kind.PLAIN:
        return Kind.PLAIN  # of another kind where it is None, and plans are made for kinds
    if is_settled(kind) or isinstance(kind, Items | Listing | Row):
        return Known(negated)
    refuse(GraphBreak.OWN_DECIDES, f"asks whether {described(kind)} is None")


@rule("CONTAINS_OP")
def _contains(self: Interpreter, state: State, instruction: Instruction) -> After:
    left, right = state.stack[-2:]
    if not (is_settled(left) and (is_settled(right) or is_listed(right))):
        refuse(GraphBreak.OWN_DECIDES, f"looks for {described(left)} in {described(right)}")
    return push(state, Kind.PLAIN, pops=2)


# Items ----------------------------------------------------------------------------------------


@rule("BINARY_SUBSCR")
def _subscript(self: Interpreter, state: State, instruction: Instruction) -> After:
    owner, index = state.stack[-2:]
    return push(state, item(owner, index), pops=2)


@rule("STORE_SUBSCR")
def _store(self: Interpreter, state: State, instruction: Instruction) -> After:
    """Follow ``new[mask] = number``, or ``new[0, 1:] = array``, which nobody else sees."""
    value, owner, index = state.stack[-3:]
    if isinstance(owner, Listing | Row):
        _store_item(self, owner, index, value)
        return push(state, pops=3)
    masked = is_array(index)
    if not _is_written(owner, value) or not _chooses(index) or (masked and not is_plain(value)):
        refuse(*SAID["STORE_SUBSCR"])
    return push(state, pops=3)


def _is_written(owner: Any, value: Any) -> bool:
    """Return whether a number or an array may be written to parts of a value: of a new array."""
    return owner is Kind.FRESH and (is_array(value) or value is Kind.NUMBERS or is_plain(value))


def _store_item(self: Interpreter, owner: Listing | Row, index: Any, value: Any) -> None:
    """Follow ``own[0] = value``; what is no known number may be a slice that gets several items."""
    number = isinstance(index, Known) and type(index.value) is int
    if not (number or (index is Kind.PLAIN and is_operand(value))):
        refuse(GraphBreak.OWN_CHANGES, "changes items of a list that are not known")
    self.lists.change(owner, [Kind.ARRAY if is_array(value) and not number else value])


@rule("STORE_SLICE")
def _store_slice(self: Interpreter, state: State, instruction: Instruction) -> After:
    value, owner, start, stop = state.stack[-4:]
    if not (_is_written(owner, value) and is_plain(start) and is_plain(stop)):
        refuse(*SAID["STORE_SLICE"])
    return push(state, pops=4)


def _chooses(index: Any) -> bool:
    """Return whether an index is a mask, or no chunk decides it."""
    parts = known_items(index)
    return is_array(index) or all(
        is_plain(part) or is_shape(part) for part in ((index,) if parts is None else parts)
    )


@rule("BINARY_SLICE")
def _binary_slice(self: Interpreter, state: State, instruction: Instruction) -> After:
    owner, start, stop = state.stack[-3:]
    if not (is_plain(start) and is_plain(stop)):
        refuse(GraphBreak.OWN_DECIDES, "takes a slice whose ends a chunk decides")
    found = item(owner, _slice([start, stop]))
    return push(state, found, pops=3)


def _slice(ends: Sequence[Any]) -> Any:
    """Return the kind of a slice, which is known if a tuple can be cut by it."""
    values = [end.value if isinstance(end, Known) else NotImplemented for end in ends]
    cuts = all(type(value) in (int, type(None)) for value in values) and values[2:] != [0]
    return Known(slice(*values)) if cuts else Kind.PLAIN


def item(owner: Any, index: Any) -> Any:
    """Return the kind of ``owner[index]``, which shows what the owner holds."""
    if is_array(owner):
        parts = items_of(index) if items_of(index) is not None else (index,)
        if all(is_operand(part) or is_shape(part) or is_listed(part) or part is Kind.NUMBERS
               for part in parts or ()):  # fmt: skip
            return Kind.ARRAY
        refuse(GraphBreak.OWN_DECIDES, f"takes an item by {described(index)}")
    if owner is Kind.NUMBERS and (is_plain(index) or is_shape(index)):
        return Kind.NUMBERS
    items = known_items(owner)
    number = index.value if isinstance(index, Known) and type(index.value) is int else None
    if items is not None and number is not None and -len(items) <= number < len(items):
        return items[number]
    if isinstance(owner, Listing | Row) and number is not None:
        return item_of(owner)
    if items is not None and isinstance(index, Known) and type(index.value) is slice:
        return (Listing if isinstance(owner, Listing) else Items)(items[index.value])
    if isinstance(owner, Row) and isinstance(index, Known) and type(index.value) is slice:
        return Row(owner.item)
    if is_shape(owner) and number is not None:
        return Kind.PLAIN
    if is_shape(owner) and is_plain(index):
        return Kind.OTHER if not isinstance(owner, Kind) else Kind.SHAPE
    refuse(GraphBreak.OWN_DECIDES, f"takes an item of {described(owner)}")


@rule("BUILD_SLICE")
def _build_slice(self: Interpreter, state: State, instruction: Instruction) -> After:
    count = int(instruction.arg or 0)
    if not all(map(is_plain, state.stack[-count:])):
        refuse(GraphBreak.OWN_DECIDES, "takes a slice whose ends a chunk decides")
    return push(state, _slice(state.stack[-count:]), pops=count)


@rule("BUILD_TUPLE", "BUILD_LIST")
def _build(self: Interpreter, state: State, instruction: Instruction) -> After:
    count = int(instruction.arg or 0)
    items = state.stack[len(state.stack) - count :]
    listed = instruction.opname == "BUILD_LIST"
    return push(state, self.made(Listing(items)) if listed else Items(items), pops=count)


@rule("UNPACK_SEQUENCE")
def _unpack(self: Interpreter, state: State, instruction: Instruction) -> After:
    count, kind = int(instruction.arg or 0), state.stack[-1]
    items = known_items(kind)
    if items is None:
        items = (item_of(kind),) * count
    if len(items) != count:
        refuse(GraphBreak.OWN_DECIDES, f"unpacks {len(items)} values into {count}")
    return push(state, *reversed(items), pops=1)


@rule("GET_ITER")
def _get_iter(self: Interpreter, state: State, instruction: Instruction) -> After:
    kind = state.stack[-1]
    item = Kind.PLAIN if items_of(kind) == () else item_of(kind)
    return push(state, Row(item), pops=1)


@rule("FOR_ITER")
def _for_iter(self: Interpreter, state: State, instruction: Instruction) -> After:
    row = state.stack[-1]
    if not isinstance(row, Row):
        refuse(GraphBreak.OWN_DECIDES, f"loops over {described(row)}")
    within, after = push(state, item_of(row)), state
    if sys.version_info >= (3, 13):
        # The loop ends at END_FOR, which takes an item off, and then POP_TOP, the iterator.
        after = within
    elif sys.version_info < (3, 12):
        after = push(state, pops=1)
    # The way on is gone last, when what the loop builds is known.
    return [(int(instruction.argval), after), (None, within)]


# Ways on ----------------------------------------------------------------------------------------


@rule("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def _jump(self: Interpreter, state: State, instruction: Instruction) -> After:
    return [(int(instruction.argval), state)]


def _branch(name: str) -> Rule:
    wanted = name.endswith(("IF_TRUE", "NOT_NONE"))
    about_none = name.endswith("NONE")

    def run(self: Interpreter, state: State, instruction: Instruction) -> After:
        kind, after = state.stack[-1], push(state, pops=1)
        value = _decided(_is_none(kind, negated=True) if about_none else kind)
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
    value = _decided(state.stack[-1])
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
