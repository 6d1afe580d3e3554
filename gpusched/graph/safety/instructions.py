"""The table of allowed instructions: those of the stack, of variables, imports and strings.

What each changes is a `State`: the stack and the variables of a function, in kinds.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.safety.calls import described, refuse
from gpusched.graph.safety.kinds import (
    Kind,
    Known,
    Listing,
    Method,
    Row,
    is_array,
    is_plain,
    is_settled,
    joined,
)
from gpusched.record.handlers import METHODS, UFUNC_METHODS

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


OF_LISTS = frozenset(["append", "extend"])
"""Methods of lists that are followed."""


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
    elif isinstance(owner, Listing | Row) and name in OF_LISTS:
        return Method(owner, name)
    refuse(GraphBreak.OWN_ATTRIBUTE, f"uses .{name} of {described(owner)}")


# Imports --------------------------------------------------------------------------------------
#
# An import of a module that is loaded reads `sys.modules`, and nothing else, whatever the chunks
# are: Python finds the module there by its full name (``PyImport_ImportModuleLevelObject``), and
# the names that are taken from it in its dictionary. That holds if ``__import__`` is Python's own,
# if the module is of Python's own type and done with its initialisation, and if it has the names:
# only what is missing is looked for by finders or by a module's ``__getattr__``. All that is read
# is noted, as a plan depends on it.

_MODULES = sys.modules
"""What Python's own ``__import__`` reads, even if another dictionary gets that name."""


@rule("IMPORT_NAME")
def _import_name(self: Interpreter, state: State, instruction: Instruction) -> After:
    level, names = (kind.value if isinstance(kind, Known) else None for kind in state.stack[-2:])
    name = str(instruction.argval)
    if type(level) is not int or level or not isinstance(names, tuple | None):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by its place in a package")
    if not _is_import(self.outside.builtin(self.function, "__import__")):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by a function that is not Python's own")
    found = _loaded(self, name)
    for each in names or ():
        _from_module(self, Known(found, name), each)
    if not names:  # Then the first of the packages in the name is what an import gives.
        name = name.partition(".")[0]
        found = _loaded(self, name)
    return push(state, Known(found, name), pops=2)


@rule("IMPORT_FROM")
def _import_from(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, _from_module(self, state.stack[-1], str(instruction.argval)))


def _is_import(function: Any) -> bool:
    """Return whether a function is Python's ``__import__``, which others may replace."""
    own = isinstance(function, types.BuiltinFunctionType) and function.__self__ is builtins
    return own and function.__name__ == "__import__"


def _loaded(self: Interpreter, name: str) -> types.ModuleType:
    """Return a module; `Unsafe` if an import of it is more than to read it."""
    try:
        module = self.outside.entry(_MODULES, name)
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is not loaded yet")
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is a {type(module).__name__}")
    spec = vars(module).get("__spec__")
    plain = spec is None or type(spec) is ModuleSpec
    if not plain or getattr(spec, "_initializing", False):
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is being loaded")
    return module


def _from_module(self: Interpreter, owner: Any, name: str) -> Known:
    """Return what a module holds by a name."""
    module = owner.value if isinstance(owner, Known) else None
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from {described(owner)}")
    try:
        return Known(self.outside.entry(vars(module), name), f"{owner.name}.{name}")
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from {owner.name}, which does not have it")


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
