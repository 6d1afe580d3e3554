"""The table of allowed instructions, by their names in any of the versions of Python."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.graph.safety import listed
from gpusched.graph.safety.kinds import (
    GRIDS,
    Filling,
    Followed,
    Items,
    Kind,
    Known,
    Listing,
    Options,
    array_of,
    is_array,
    is_constant,
    is_new,
    is_numeric,
    is_one,
    is_own,
    is_string,
    is_type,
    items_of,
)
from gpusched.graph.safety.listed import described, from_module, imported, refuse

if TYPE_CHECKING:
    from gpusched.graph.safety.check import Code

GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of functions whose calls run nothing yet."""

Ways = list[tuple[int | None, list[Any]]] | None
"""Where an instruction may go on, with what stack; None for the next one with the stack there is.
"""
Rule = Callable[["Code", dis.Instruction], Ways]

_PARTS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
}
"""Instructions that are two, since Python 3.13."""

_SAID = {
    "STORE_ATTR": "sets an attribute",
    "DELETE_ATTR": "deletes an attribute",
    "STORE_GLOBAL": "sets a global variable",
    "DELETE_GLOBAL": "deletes a global variable",
}
"""What is said of some instructions that are not listed."""


class _Table(dict[str, Rule]):
    """Rules by names; what has none is refused."""

    def __missing__(self, name: str) -> Rule:
        refuse(GraphBreak.OWN_CODE, _SAID.get(name, "does what gpusched cannot follow"))


TABLE = _Table()
"""What each allowed instruction does."""


def parts(instruction: dis.Instruction) -> Iterator[dis.Instruction]:
    """Yield the instructions that one instruction is."""
    if instruction.opname not in _PARTS:
        yield instruction
        return
    for name, argval in zip(_PARTS[instruction.opname], instruction.argval, strict=True):
        yield instruction._replace(opname=name, arg=0, argval=argval)


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter a function into the table as the meaning of instructions of these names."""

    def enter(rule: Rule) -> Rule:
        TABLE.update(dict.fromkeys(names.split(), rule))
        return rule

    return enter


def _rules(rules: dict[str, Callable[[Any, Any], Any]]) -> None:
    for names, each in rules.items():
        rule(names)(each)


_rules({
    "RESUME NOP PRECALL COPY_FREE_VARS NOT_TAKEN MAKE_CELL": lambda code, i: None,
    "POP_TOP END_FOR POP_ITER": lambda code, i: code.pop(1) and None,
    "PUSH_NULL": lambda code, i: code.push(Kind.NULL),
    "RETURN_GENERATOR LOAD_CLOSURE": lambda code, i: code.push(Kind.OTHER),
    "LOAD_CONST LOAD_SMALL_INT": lambda code, i: code.push(Known(i.argval)),
    "LOAD_ASSERTION_ERROR": lambda code, i: code.push(Known(AssertionError)),
    "STORE_FAST": lambda code, i: code.store(i.argval, *code.pop(1)),
    "DELETE_FAST": lambda code, i: code.store(i.argval, Kind.UNBOUND),
    "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT": lambda code, i: [
        (i.argval, code.stack)
    ],
    "GET_ITER": lambda code, i: code.push(_part(code.taken(1)[0])),
    "YIELD_VALUE": lambda code, i: _replace(code, i, Kind.OTHER),
    "UNARY_NEGATIVE": lambda code, i: _replace(code, i, Kind.ARRAY),
    "BUILD_SLICE TO_BOOL UNARY_INVERT UNARY_NOT UNARY_POSITIVE":
        lambda code, i: _replace(code, i, Kind.NEW),
})  # fmt: skip


def _replace(code: Code, i: dis.Instruction, kind: Kind) -> None:
    """Put something on the stack instead of what an instruction takes off."""
    code.taken(1 - dis.stack_effect(i.opcode, i.arg, jump=False))
    code.push(kind)


@rule("COMPARE_OP CONTAINS_OP")
def _compare(code: Code, i: dis.Instruction) -> Ways:
    given = code.pop(2)
    if not all(map(is_type, given)):
        code.use(*given)
    if i.opname != "COMPARE_OP":
        return code.push(Kind.NEW)
    table = Kind.TABLE in given and array_of(*given) is Kind.TABLE
    return code.push(Kind.TABLE if table else Kind.MASK)


@rule("BUILD_STRING CONVERT_VALUE FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC")
def _format(code: Code, i: dis.Instruction) -> Ways:
    given = code.pop(1 - dis.stack_effect(i.opcode, i.arg, jump=False))
    code.use(*(kind for kind in given if not (is_string(kind) or kind is Kind.TYPE)))
    return code.push(Kind.TEXT)


@rule("COPY")
def _copy(code: Code, i: dis.Instruction) -> Ways:
    depth = int(i.arg or 0)
    code.stack[-depth] = code.settled(code.stack[-depth])
    return code.push(code.stack[-depth])


@rule("SWAP")
def _swap(code: Code, i: dis.Instruction) -> Ways:
    depth = int(i.arg or 0)
    code.stack[-1], code.stack[-depth] = code.stack[-depth], code.stack[-1]
    return None


# Variables ------------------------------------------------------------------------------------


@rule("LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_BORROW")
def _load_fast(code: Code, i: dis.Instruction) -> Ways:
    # Since Python 3.13 a cell is loaded so, to become part of a function that is made.
    cell = int(i.arg or 0) >= code.code.co_nlocals or i.argval in code.code.co_cellvars
    return code.push(Kind.OTHER if cell else code.load(i.argval))


@rule("LOAD_FAST_AND_CLEAR")
def _load_and_clear(code: Code, i: dis.Instruction) -> Ways:
    """Keep a variable on the stack while a comprehension, from Python 3.12 on, has its name."""
    code.push(code.variables.get(i.argval, Kind.UNBOUND))
    return code.store(i.argval, Kind.UNBOUND)


@rule("LOAD_GLOBAL")
def _load_global(code: Code, i: dis.Instruction) -> Ways:
    try:
        found = Known(code.whole.outside.name(code.function, i.argval), i.argval)
    except KeyError:
        refuse(GraphBreak.OWN_OBJECTS, f"uses {i.argval}, which is not defined")
    called = [Kind.NULL] * (int(i.arg or 0) & 1)
    # NULL is below what is called until Python 3.12, and above it since.
    return code.push(*((found, *called) if sys.version_info >= (3, 13) else (*called, found)))


@rule("LOAD_DEREF")
def _load_deref(code: Code, i: dis.Instruction) -> Ways:
    own = i.argval in code.code.co_cellvars
    return code.push(code.load(i.argval) if own else code.held(i.argval))


@rule("STORE_DEREF")
def _store_deref(code: Code, i: dis.Instruction) -> Ways:
    if not code.is_inside(i.argval):
        refuse(GraphBreak.OWN_CODE, "sets a variable of an outer function")
    return code.store(i.argval, *code.taken(1))


@rule("LOAD_ATTR LOAD_METHOD")
def _load_attr(code: Code, i: dis.Instruction) -> Ways:
    # LOAD_ATTR says whether a call follows from Python 3.12 on.
    flagged = i.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and int(i.arg or 0) & 1)
    found = code.attribute(code.pop(1)[0], i.argval)
    return code.push(found, *([Kind.NULL] if flagged else []))


@rule("IMPORT_NAME")
def _import_name(code: Code, i: dis.Instruction) -> Ways:
    level, names = (kind.value if isinstance(kind, Known) else None for kind in code.pop(2))
    found = imported(code.whole.outside, code.function, i.argval, level, names)
    return code.push(Known(*found))


@rule("IMPORT_FROM")
def _import_from(code: Code, i: dis.Instruction) -> Ways:
    owner = code.stack[-1]
    module = owner.value if isinstance(owner, Known) else None
    return code.push(Known(from_module(code.whole.outside, module, i.argval), i.argval))


@rule("MAKE_FUNCTION")
def _make_function(code: Code, i: dis.Instruction) -> Ways:
    inner = code.pop(1)[0].value
    code.taken(int(i.arg or 0).bit_count())
    if inner.co_flags & GENERATORS not in (0, inspect.CO_GENERATOR):
        refuse(GraphBreak.OWN_CODE, f"defines {inner.co_name}, a coroutine")
    before = code.stack, code.variables
    code.inside(inner)
    code.stack, code.variables = before
    # Until Python 3.12: nobody can write a function with such a parameter.
    builds = inner.co_varnames[:1] == (".0",) and not inner.co_flags & GENERATORS
    return code.push(Kind.COMPREHENSION if builds else Kind.OTHER)


@rule("SET_FUNCTION_ATTRIBUTE")
def _set_attribute(code: Code, i: dis.Instruction) -> Ways:
    """Follow what MAKE_FUNCTION's flags were until Python 3.12."""
    code.taken(2)
    return code.push(Kind.OTHER)


# Operators and items ----------------------------------------------------------------------------


_NONE, _NONE_TYPE = Known(None), Known(type(None))


@rule("BINARY_OP")
def _binary(code: Code, i: dis.Instruction) -> Ways:
    if i.argrepr == "[]":
        return _subscript(code, i)
    left, right = code.pop(2)
    if i.argrepr == "|" and all(is_type(k) or k == _NONE for k in (left, right)):
        # Several types, as `isinstance` takes them.
        return code.push(Items(tuple(_NONE_TYPE if k == _NONE else k for k in (left, right))))
    formats = "%" in i.argrepr and is_string(left)
    code.use(right, *(() if formats else (left,)))
    code.whole.changes |= i.argrepr.endswith("=")
    if i.argrepr.endswith("=") and not is_own(left):
        refuse(GraphBreak.OWN_CHANGES, "changes an array in place that others may see")
    if Kind.MASK in (left, right) and i.argrepr in ("&", "|", "^") and left == right:
        return code.push(Kind.MASK)
    if not formats and _makes_array(i.argrepr, left, right):
        return code.push(array_of(left, right))
    if not i.argrepr.endswith("=") and Kind.CHUNK in (left, right):
        other = right if left is Kind.CHUNK else left
        if i.argrepr != "*" or other is Kind.CHUNK or is_numeric(other):
            return code.push(code.assumed())
    return code.push(Kind.TEXT if formats else Kind.NEW)


def _makes_array(operator: str, left: Any, right: Any) -> bool:
    """Return whether an operator gives an array or a number, or something without items.

    Lists have but two operators, and no numbers are added to them: they are repeated, and ``+=``
    has them longer by what an array shows.
    """
    plain = operator.rstrip("=")
    if plain in ("-", "/", "//", "**", "@"):
        return True
    if plain in ("%", "&", "|", "^", "<<", ">>"):
        return is_array(left)  # Strings, sets and dictionaries have them, too.
    if operator != plain:
        return is_array(left) and is_numeric(right)
    if operator == "*":
        fractions = [k for k in (left, right) if isinstance(k, Known) and type(k.value) is float]
        return bool(fractions)
    return operator == "+" and (is_numeric(left) or is_numeric(right))


@rule("BINARY_SUBSCR")
def _subscript(code: Code, i: dis.Instruction) -> Ways:
    owner, index = code.pop(2)
    items = items_of(owner) or ()
    number = index.value if isinstance(index, Known) and type(index.value) is int else None
    if number is not None and -len(items) <= number < len(items):
        return code.push(items[number])
    if isinstance(owner, Known) and any(owner.value is each for each in GRIDS):
        code.use(index)
        return code.push(Kind.NEW)
    code.use(owner, index)
    chosen = items_of(index) or (index,)
    if owner is Kind.TABLE and not {Kind.ARRAY, Kind.CHUNK, Kind.MASK}.isdisjoint(chosen):
        code.whole.outside.tables = True
    return code.push(_part(owner))


@rule("BINARY_SLICE")
def _slice(code: Code, i: dis.Instruction) -> Ways:
    return code.push(_part(code.taken(3)[0]))


def _part(whole: Any) -> Kind:
    """Return the kind of what is taken of a value: of an array, an array again, or a number."""
    if whole is Kind.ARRAYS:
        return Kind.ARRAY
    return whole if whole is Kind.CHUNK or is_array(whole) else Kind.OTHER


@rule("STORE_SUBSCR STORE_SLICE DELETE_SUBSCR")
def _store(code: Code, i: dis.Instruction) -> Ways:
    given = code.taken(-dis.stack_effect(i.opcode, i.arg, jump=False))
    code.whole.changes = True
    if not is_new(given[0 if i.opname == "DELETE_SUBSCR" else 1]):
        refuse(GraphBreak.OWN_ASSIGNS, "assigns to elements of an array")
    return None


@rule("IS_OP")
def _is(code: Code, i: dis.Instruction) -> Ways:
    left, right = code.pop(2)
    if is_type(left) and is_type(right) and Kind.TYPE in (left, right):
        return code.push(Kind.NEW)
    if not any(isinstance(kind, Known) and is_one(kind.value) for kind in (left, right)):
        # Another constant without any difference may be another object.
        refuse(GraphBreak.OWN_DECIDES, f"asks whether {described(left)} is {described(right)}")
    if all(isinstance(kind, Known) and type(kind.value) is MethodType for kind in (left, right)):
        # Python makes one each time it is read.
        refuse(GraphBreak.OWN_DECIDES, f"asks whether {described(left)} is {described(right)}")
    if isinstance(left, Known) and isinstance(right, Known):
        return code.push(Known((left.value is right.value) != bool(i.arg)))
    # Whether a length is larger, for one, is a truth of Python's, but not while it is recorded.
    truths = left is Kind.MASK and isinstance(right, Known) and type(right.value) is bool
    if truths or not isinstance(right, Known):
        # An array that comes back from a call may be another object while it is recorded.
        refuse(GraphBreak.OWN_DECIDES, f"asks whether {described(left)} is {described(right)}")
    code.use(left, right)
    return code.push(Kind.NEW)


@rule("BUILD_TUPLE BUILD_LIST")
def _build(code: Code, i: dis.Instruction) -> Ways:
    count = int(i.arg or 0)
    if i.opname == "BUILD_TUPLE":
        return code.push(Items(tuple(code.pop(count))))
    return code.push(Listing(tuple(code.pop(count, numbers=True))))


@rule("LIST_APPEND LIST_EXTEND")
def _extend(code: Code, i: dis.Instruction) -> Ways:
    extends = i.opname == "LIST_EXTEND"
    more = code.stack.pop() if extends else code.pop(1)[0]
    into, place = code.stack[-int(i.arg or 0)], -int(i.arg or 0)
    follows = extends and isinstance(into, Listing)
    before, items = items_of(into), items_of(more)
    if follows and before is not None and items is not None:
        code.stack[place] = Listing((*before, *items))
    elif follows and _part(more) is Kind.ARRAY:
        code.stack[place] = Followed(into.items)
    else:
        code.use(into, more)
        code.stack[place] = Kind.NEW
    return None


@rule("LIST_TO_TUPLE")
def _to_tuple(code: Code, i: dis.Instruction) -> Ways:
    listing = code.stack.pop()
    if isinstance(listing, Followed):
        return code.push(listing)
    return code.push(Items(listing.items) if isinstance(listing, Listing) else Kind.NEW)


@rule("BUILD_MAP BUILD_CONST_KEY_MAP")
def _build_map(code: Code, i: dis.Instruction) -> Ways:
    count = int(i.arg or 0)
    if i.opname == "BUILD_MAP":
        pairs = code.pop(2 * count)
        keys, values = pairs[::2], pairs[1::2]
    else:
        keys = [Known(key) for key in code.pop(1)[0].value]
        values = code.pop(count)
    names = [key.value for key in keys if isinstance(key, Known) and type(key.value) is str]
    if count == 0:
        return code.push(Filling(()))
    if len(names) == count:
        return code.push(Options(tuple(zip(names, values, strict=True))))
    code.use(*keys, *values)
    return code.push(Kind.NEW)


@rule("MAP_ADD")
def _map_add(code: Code, i: dis.Instruction) -> Ways:
    code.taken(2)
    code.stack[-int(i.arg or 0)] = Kind.NEW
    return None


@rule("DICT_MERGE DICT_UPDATE")
def _dict_merge(code: Code, i: dis.Instruction) -> Ways:
    (more,) = code.pop(1)
    into = code.stack[-int(i.arg or 0)]
    found: Any = Kind.OTHER
    if isinstance(into, Options) and isinstance(more, Options):
        found = Options((*into.names, *more.names))
    else:
        code.use(into, more)
    code.stack[-int(i.arg or 0)] = found
    return None


@rule("UNPACK_SEQUENCE")
def _unpack(code: Code, i: dis.Instruction) -> Ways:
    kind, count = code.stack.pop(), int(i.arg or 0)
    items = items_of(kind)
    if items is None or len(items) != count:
        code.use(kind)
        items = (_part(kind),) * count
    return code.push(*reversed(items))


# Ways on ----------------------------------------------------------------------------------------


@rule("FOR_ITER")
def _for_iter(code: Code, i: dis.Instruction) -> Ways:
    within, after = [*code.stack, _part(code.stack[-1])], code.stack
    if sys.version_info >= (3, 13):
        # The loop ends at END_FOR, which takes an item off, and then POP_TOP, the iterator.
        after = within
    elif sys.version_info < (3, 12):
        after = code.stack[:-1]
    return [(int(i.argval), after), (None, within)]


def _branch(code: Code, i: dis.Instruction) -> Ways:
    """Follow both ways, unless it is known which one is gone."""
    stays = list(code.stack)
    (kind,) = code.pop(1)
    target = int(i.argval), stays if i.opname.endswith("OR_POP") else code.stack
    about_none = i.opname.endswith("NONE")
    if isinstance(kind, Known) and (about_none or is_constant(kind.value)):
        value = kind.value is not None if about_none else bool(kind.value)
        wanted = "IF_TRUE" in i.opname or i.opname.endswith("NOT_NONE")
        return [target] if value == wanted else None
    code.use(kind)
    return [(None, code.stack), target]


for _name in ("POP_JUMP{}_IF_TRUE", "POP_JUMP{}_IF_FALSE", "POP_JUMP{}_IF_NONE",
              "POP_JUMP{}_IF_NOT_NONE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):  # fmt: skip
    for _direction in ("", "_FORWARD", "_BACKWARD"):
        TABLE[_name.format(_direction)] = _branch


@rule("RETURN_VALUE RETURN_CONST")
def _return(code: Code, i: dis.Instruction) -> Ways:
    code.use(*(code.pop(1) if i.opname == "RETURN_VALUE" else (Known(i.argval),)))
    if code.stack:  # Another version of Python has other instructions.
        refuse(GraphBreak.OWN_CODE, "leaves values behind")
    return []


@rule("RAISE_VARARGS")
def _raise(code: Code, i: dis.Instruction) -> Ways:
    # Nothing has been changed yet: the function raises again, on real arrays.
    for kind in code.pop(int(i.arg or 0)):
        if isinstance(kind, Known) and not listed.is_error(kind.value):
            refuse(GraphBreak.OWN_CALLS, f"raises {described(kind)}")
        code.use(Kind.NEW if kind is Kind.TEXT else kind)
    return []


# Calls ----------------------------------------------------------------------------------------


@rule("KW_NAMES")
def _kw_names(code: Code, i: dis.Instruction) -> Ways:
    code.keywords = code.code.co_consts[int(i.arg or 0)]
    return None


@rule("CALL CALL_KW")
def _call(code: Code, i: dis.Instruction) -> Ways:
    keywords = code.pop(1)[0].value if i.opname == "CALL_KW" else code.keywords
    args, code.keywords = code.pop(int(i.arg or 0), numbers=True), ()
    callee, *own = [kind for kind in code.pop(2) if kind is not Kind.NULL]
    if not (isinstance(callee, Known) and callee.value is np.array):
        args = list(map(code.settled, args))
    first = len(args) - len(keywords)
    names = dict(zip(keywords, args[first:], strict=True))
    return code.push(code.call(callee, [*own, *args[:first]], names))


@rule("CALL_FUNCTION_EX")
def _call_ex(code: Code, i: dis.Instruction) -> Ways:
    # Since Python 3.14 there is always a place for options.
    named = sys.version_info >= (3, 14) or int(i.arg or 0) & 1
    options = code.pop(1)[0] if named else Kind.NULL
    options = Options(()) if options is Kind.NULL else options
    given = code.stack.pop()
    (callee,) = [kind for kind in code.pop(2) if kind is not Kind.NULL]
    args = items_of(given)
    if isinstance(options, Options) and args is not None:
        return code.push(code.call(callee, list(args), dict(options.names)))
    if _part(given) is Kind.ARRAY:
        given = Followed(())
    if isinstance(options, Options) and isinstance(given, Followed):
        return code.push(code.call_with_more(callee, given, options))
    return code.push(code.call_with_any(callee, given, options))


@rule("CALL_INTRINSIC_1")
def _intrinsic(code: Code, i: dis.Instruction) -> Ways:
    if "LIST_TO_TUPLE" in i.argrepr:
        return _to_tuple(code, i)
    if "UNARY_POSITIVE" not in i.argrepr:
        refuse(GraphBreak.OWN_CODE, "does what gpusched cannot follow")
    code.taken(1)
    return code.push(Kind.NEW)


# Exceptions -----------------------------------------------------------------------------------


_rules(
    {
        "PUSH_EXC_INFO": lambda code, i: code.pop(1) and code.push(Kind.OTHER, Kind.OTHER),
        "WITH_EXCEPT_START": lambda code, i: code.push(Kind.NEW),
        "POP_EXCEPT": lambda code, i: code.pop(1) and None,
        "RERAISE": lambda code, i: [],
    }
)


@rule("CHECK_EXC_MATCH")
def _check_match(code: Code, i: dis.Instruction) -> Ways:
    (of,) = code.pop(1)
    if not (isinstance(of, Known) and of.value is AttributeError):
        refuse(GraphBreak.OWN_HANDLES, f"handles {described(of)}")
    return code.push(Kind.NEW)


@rule("BEFORE_WITH")
def _before_with(code: Code, i: dis.Instruction) -> Ways:
    (context,) = code.pop(1)
    if context is not Kind.STATE:
        refuse(GraphBreak.OWN_CODE, f"enters {described(context)}")
    return code.push(Kind.LEAVING, Kind.OTHER)
