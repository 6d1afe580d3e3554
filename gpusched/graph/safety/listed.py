"""What a function may read, call and import: all else is refused before it is recorded.

Lazy chunks answer for what they know, or end the recording (`gpusched.record.chunk`). So nothing is
asked here of what a chunk may be given to. But a function that ends its recording runs on arrays,
as its graph was made for functions that leave what they are given as it is: no call may change it.
"""

from __future__ import annotations

import abc
import builtins
import functools
import inspect
import math
import operator
import sys
import types
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from dask.core import flatten

from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.operations import operation_of
from gpusched.graph.functions import known  # noqa: F401  which imports all that fills HANDLERS
from gpusched.graph.safety.kinds import (
    PLAIN,
    SCALARS,
    Kind,
    Known,
    Method,
    array_of,
    is_array,
    is_new,
    is_own,
    items_of,
)
from gpusched.record.catalogue import changing_place, has, method_has, recorded_form
from gpusched.record.handlers import DISPATCHED, HANDLERS, METHODS
from gpusched.record.recorded import Freezable, RecordedFunction
from gpusched.record.ufuncs import is_recorded_method

if TYPE_CHECKING:
    from gpusched.graph.safety.outside import Outside


_PLAIN = (
    *PLAIN, *map(type, ({}.keys(), {}.values(), {}.items())), AttributeError, enumerate, filter,
    map, np.dtype, np.errstate, np.finfo, np.iinfo, np.ufunc, range, reversed, set, type,
    types.BuiltinFunctionType, types.CellType, types.FunctionType, types.GeneratorType,
    types.MethodType, types.ModuleType, zip,
)  # fmt: skip
"""Types of values that a function comes by which is given plain values and chunks."""

_PLAIN_ATTRIBUTES = frozenset(name for kind in _PLAIN for name in dir(kind))


def is_plain_attribute(name: str) -> bool:
    """Return whether chunks, plain values or what is made of them may have an attribute."""
    return name.startswith("__") or name in _PLAIN_ATTRIBUTES


class Unsafe(Exception):
    """Says why a function may not be given lazy chunks, and in which line once `placed`."""

    def __init__(self, reason: Reason, placed: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.placed = reason, placed


def refuse(kind: GraphBreak, text: str) -> NoReturn:
    """Raise `Unsafe`."""
    raise Unsafe(kind(text))


_MAKING = (
    abs, all, any, bool, callable, complex, dict, divmod, float, frozenset, int, isinstance, len,
    list, pow, range, round, set, slice, sorted, np.arange, np.array, np.broadcast_shapes,
    np.can_cast, np.dtype, np.empty, np.eye, np.finfo, np.full, np.identity, np.iinfo,
    np.indices, np.isscalar, np.issubdtype, np.iterable, np.linspace, np.min_scalar_type, np.ones,
    np.promote_types, np.zeros,
)  # fmt: skip
"""What makes something new of whatever it is given."""
_ARRAYS = (np.arange, np.empty, np.eye, np.full, np.identity, np.linspace, np.ones, np.zeros)
"""Of these, what makes an array."""
_OTHERS = (
    enumerate, filter, flatten, functools.reduce, map, max, min, np.asanyarray, np.asarray,
    np.errstate, operator.getitem, reversed, sum, tuple, zip,
)  # fmt: skip
_LISTED = frozenset(map(id, (*_MAKING, *_OTHERS, *SCALARS)))
"""By identity: nothing is asked of objects that are not known."""
_ERRSTATE = frozenset(["all", "divide", "over", "under", "invalid"])
_CALLING = (filter, functools.reduce, max, min, sorted)
"""What may call functions that it is given, each with two arguments at most."""

EITHER = ("max", "min")
"""Attributes of what `numpy.finfo` returns that are methods of arrays."""
CHANGING = ("append", "extend", "fill", "insert", "partition", "pop", "reverse", "sort")
"""Methods that change lists or arrays."""
CONVERTING = ("clip", "mean", "prod", "std", "sum", "var")
"""Methods that may be asked for a dtype, and are Python functions of NumPy's for arrays: these
would warn as complex numbers are converted (`gpusched.graph.safety.standins`)."""
READING = ("get", "items", "keys", "values")
"""Methods of dictionaries."""
NAMES = {*METHODS, "astype", *CHANGING, *READING}
"""Methods that may be called."""


def is_error(made: Any) -> bool:
    """Return whether a value is a class of exceptions, and making one runs nothing of the user's.

    A function that raises one runs twice: while it is recorded, and on real arrays.
    """
    return made is np.exceptions.AxisError or (
        type(made) is type
        and issubclass(made, BaseException)
        and isinstance(made.__init__, types.WrapperDescriptorType)
        and isinstance(made.__new__, types.BuiltinFunctionType)
    )


def is_listed(value: Any) -> bool:
    """Return whether a function may call a value, or be given it, that is not one of the user's."""
    if isinstance(value, np.ufunc):
        return operation_of(value) is not None or value in HANDLERS
    if id(value) in _LISTED or is_error(value) or isinstance(value, RecordedFunction | Freezable):
        return True
    if isinstance(value, types.BuiltinFunctionType) and _computes(value):
        return True
    numpys = type(value) is DISPATCHED and (value in HANDLERS or is_between(value))
    return numpys or recorded_form(value) is not None


def is_numpys(value: Any) -> bool:
    """Return whether a listed value is one of NumPy's functions of arrays."""
    return isinstance(value, np.ufunc) or type(value) is DISPATCHED


def is_between(value: Any) -> bool:
    """Return whether a value is a function of NumPy's that is called on arrays, between kernels.

    It changes nothing, and no kernel does what it does.
    """
    return type(value) is DISPATCHED and value not in HANDLERS and has(value, "pure")


def _computes(function: Any) -> bool:
    """Return whether a function is a listed one of Python's modules `math` and `operator`."""
    operates = getattr(function, "__module__", "") == "_operator" and has(function, "elementwise")
    return operates or getattr(math, getattr(function, "__name__", ""), None) is function


def limit(value: Any) -> float:
    """Return how many arguments by position a listed function may be given to change none."""
    if isinstance(value, np.ufunc) or recorded_form(value) is not None:
        return getattr(value, "nin", math.inf)
    place = changing_place(value) if type(value) is DISPATCHED else None
    return math.inf if place is None else place


def method_limit(name: str) -> float:
    """Return that of a method."""
    if name in ("conj", "conjugate"):
        return 0
    found = limit(getattr(np, name, None)) if name in METHODS else math.inf
    return found - 1


def most_given(called: Any, args: list[Any]) -> int:
    """Return how many arguments a call gives functions that it is given; -1 if it calls none."""
    if called is map:
        return len(args) - 1
    return 2 if any(called is each for each in _CALLING) else -1


def function(called: Any, args: list[Any], names: dict[str, Any]) -> Any:
    """Return the kind of a call's result; `Unsafe` if the call is not on the list."""
    name = called_name(called)
    if not is_listed(called):
        refuse(GraphBreak.OWN_CALLS, f"calls {name}, which is not recorded")
    if len(args) > limit(called):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with arguments that may change others")
    form = recorded_form(called)
    if form is not None and not names.keys() <= form.named:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with {', '.join(names)}=")
    if has(called, "changes") and not (args and is_new(args[0])):
        refuse(GraphBreak.OWN_CHANGES, f"calls {name} of an array that is not new")
    if isinstance(called, np.ufunc) and "where" in names and "out" not in names:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with where=")
    if called is np.errstate:
        if args or not names.keys() <= _ERRSTATE:
            told = "calls errstate with other arguments than names of errors"
            refuse(GraphBreak.OWN_ARGUMENTS, told)
        return Kind.STATE
    if called is np.gradient or (called is np.where and len(args) == 1):
        return Kind.ARRAYS
    given = "copy" in names or len(args) > 2
    if any(called is each for each in _ARRAYS):
        return Kind.TABLE
    if has(called, "fresh") or (isinstance(called, np.ufunc) and called.nout == 1):
        return array_of(*args, *names.values())
    if isinstance(called, np.ufunc):
        return Kind.ARRAYS
    if id(called) in _LISTED:
        # A type of numbers returns an array that is of it already, `numpy.array` if it is asked to.
        made = called in _MAKING and not (called is np.array and given)
        made = made or (called in SCALARS and all(map(is_own, args)))
        if called is np.array and made and array_of(*args) is Kind.TABLE:
            return Kind.TABLE
    else:
        made = is_error(called) or _computes(called)
    return Kind.NEW if made else Kind.OTHER


def method(called: Method, args: list[Any], names: dict[str, Any]) -> Any:
    """Return what `function` does, of a method."""
    owner, name = called.owner, called.name
    if isinstance(owner, Known):
        return _ufunc_method(owner.value, name, args)
    if name in CHANGING and not is_new(owner):
        refuse(GraphBreak.OWN_CHANGES, f"changes by {name} what others may see")
    if len(args) > method_limit(name):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with out=")
    if name in CONVERTING and ("dtype" in names or len(args) > 1 + (name == "clip")):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls the method {name} with a dtype, not np.{name}")
    copies = name == "astype" and "copy" not in names and len(args) == 1
    if name == "copy":
        return owner if is_array(owner) else Kind.NEW  # It may be a list's.
    return Kind.ARRAY if copies or method_has(name, "fresh") else Kind.OTHER


def _ufunc_method(ufunc: np.ufunc, name: str, args: list[Any]) -> Any:
    told = f"{ufunc.__name__}.{name}"
    if not is_recorded_method(ufunc, name):
        refuse(GraphBreak.OWN_CALLS, f"calls {told}, which is not recorded")
    if name == "at" and not (args and is_new(args[0])):
        refuse(GraphBreak.OWN_CHANGES, f"calls {told} of an array that is not new")
    if len(args) > (4 if name == "reduceat" else 3):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {told} with out=")
    return Kind.OTHER


def instance(of: Any, outside: Outside) -> Any:
    """Return the kind of whether a value is of a type, or of one of several.

    Only a type's own type has a say in that: what others would run is not looked at. An abstract
    type answers for each type of values once, and again after types have been registered with one
    (``ABCMeta.__instancecheck__``), which is noted.
    """
    union = isinstance(of, Known) and type(of.value) is types.UnionType
    several = tuple(map(Known, of.value.__args__)) if union else items_of(of)
    for each in (of,) if several is None else several:
        if items_of(each) is not None:
            instance(each, outside)
        elif isinstance(each, Known) and type(each.value) is abc.ABCMeta:
            outside.registrations()
        elif not _is_plain_type(each):
            refuse(GraphBreak.OWN_CALLS, f"asks whether a value is {described(each)}")
    return Kind.NEW


def _is_plain_type(kind: Any) -> bool:
    """Return whether a value is a type that does not decide what its instances are.

    What stands in for `type` itself is no type.
    """
    kinds = type, type(np.dtype)
    return isinstance(kind, Known) and type(kind.value) in kinds and kind.value is not type


def is_harmless(callee: Any, option: str, given: Any) -> bool:
    """Return whether an option of `CHANGING` has a call change nothing that others may see."""
    if option == "out":
        return isinstance(callee, Known) and is_new(given)
    if option == "copy":
        changes = isinstance(callee, Known) and callee.value is np.nan_to_num
        return isinstance(callee, Known | Method) and not changes
    return False


def called_name(value: Any) -> str:
    """Return the name of what is called; a user's `__getattr__` is asked for none."""
    value = value.__func__ if isinstance(value, types.MethodType) else value
    named = inspect.getattr_static(value, "__qualname__", None) is not None
    return value.__qualname__ if named else type(value).__name__


def described(kind: Any) -> str:
    """Return what is said of a value that is refused."""
    if isinstance(kind, Known):
        article = f"{kind.name}, " if kind.name else ""
        return f"{article}a {type(kind.value).__name__}"
    return str(kind.value) if isinstance(kind, Kind) else type(kind).__name__.lower()


def said(callee: Any) -> str:
    """Return what is said of something that is called."""
    if isinstance(callee, Known):
        return called_name(callee.value)
    return callee.name if isinstance(callee, Method) else described(callee)


# Imports --------------------------------------------------------------------------------------

# An import of a module that is loaded reads `sys.modules`, and nothing else, whatever the chunks
# are: Python finds the module there by its full name (``PyImport_ImportModuleLevelObject``), and
# the names that are taken from it in its dictionary. That holds if ``__import__`` is Python's own,
# if the module is of Python's own type and done with its initialisation, and if it has the names:
# only what is missing is looked for by finders or by a module's ``__getattr__``. All that is read
# is noted, as a plan depends on it.

_MODULES = sys.modules
"""What Python's own ``__import__`` reads, even if another dictionary gets that name."""


def imported(outside: Outside, function: types.FunctionType, name: str, level: Any,
             names: Any) -> tuple[types.ModuleType, str]:  # fmt: skip
    """Return the module that an import gives, and its name; `Unsafe` if it does more than read.

    Parameters
    ----------
    outside
        Where what is read is noted.
    function
        Which function imports.
    name, level, names
        Of the instruction: the module, how many packages up it is looked for, and what is taken.
    """
    if level != 0 or type(level) is not int or not isinstance(names, tuple | None):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by its place in a package")
    if not _is_import(outside.builtin(function, "__import__")):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by a function that is not Python's own")
    found = _loaded(outside, name)
    for each in names or ():
        from_module(outside, found, each)
    if not names:  # Then the first of the packages in the name is what an import gives.
        name = name.partition(".")[0]
        found = _loaded(outside, name)
    return found, name


def _is_import(function: Any) -> bool:
    """Return whether a function is Python's ``__import__``, which others may replace."""
    own = isinstance(function, types.BuiltinFunctionType) and function.__self__ is builtins
    return own and function.__name__ == "__import__"


def _loaded(outside: Outside, name: str) -> types.ModuleType:
    try:
        module: Any = outside.entry(_MODULES, name)
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is not loaded yet")
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is a {type(module).__name__}")
    spec = vars(module).get("__spec__")
    plain = spec is None or type(spec) is ModuleSpec
    if not plain or getattr(spec, "_initializing", False):
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is being loaded")
    return module


def from_module(outside: Outside, module: Any, name: str) -> Any:
    """Return what a module holds by a name; `Unsafe` if that is not a module that has it."""
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from what is not a module")
    try:
        return outside.entry(vars(module), name)
    except KeyError:
        missing = f"imports {name} from {module.__name__}, which does not have it"
        refuse(GraphBreak.OWN_CODE, missing)
