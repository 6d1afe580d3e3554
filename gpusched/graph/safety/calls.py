"""What calls give, of the functions and methods that may be given lazy chunks."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.operations import COMBINES, operation_of
from gpusched.graph.functions import known  # noqa: F401  which imports all that fills HANDLERS
from gpusched.graph.safety.kinds import (
    SCALARS,
    Items,
    Kind,
    Known,
    Listing,
    Made,
    Method,
    Options,
    Row,
    is_array,
    is_listed,
    is_operand,
    is_plain,
    is_settled,
    is_shape,
    is_text,
    items_of,
    joined,
    known_items,
    row_of,
)
from gpusched.graph.safety.outside import CONVERTING, FILLING
from gpusched.record.catalogue import has, method_has, recorded_form
from gpusched.record.handlers import HANDLERS, METHODS, UFUNC_METHODS, signature_of, unusual
from gpusched.record.recorded import Freezable, RecordedFunction

Names = dict[str, Any]


class Unsafe(Exception):
    """Says why a function is not known to be safe, and in which line once `placed`."""

    def __init__(self, reason: Reason, placed: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.placed = reason, placed


def refuse(kind: GraphBreak, text: str) -> NoReturn:
    """Raise `Unsafe`."""
    raise Unsafe(kind(text))


_PLAIN_RESULTS: dict[Any, Kind] = {np.shape: Kind.SHAPE, np.ndim: Kind.PLAIN, np.size: Kind.PLAIN,
                                   np.result_type: Kind.PLAIN, np.iscomplexobj: Kind.PLAIN,
                                   np.isrealobj: Kind.PLAIN}  # fmt: skip

_OF_SHAPES = (np.max, np.min, np.prod, np.sum)
"""Functions whose result is a number for a tuple of numbers, too."""

_NUMPY = frozenset(map(type, HANDLERS))
"""Types of NumPy's functions; nothing is asked of objects of other types."""

_ERRSTATE = frozenset(["all", "divide", "over", "under", "invalid"])
_INFORMATION = (np.finfo, np.iinfo)
_CREATING = (np.arange, np.array, np.asarray, np.eye, np.identity, np.linspace, *FILLING)
_JOINING = {np.concatenate: 1, np.piecewise: 2, np.ravel_multi_index: 1, np.select: 2,
            np.stack: 1}  # fmt: skip
"""Functions whose first arguments are lists or tuples of arrays, and how many are."""
_RETURNING = (np.histogram, np.histogramdd)
"""Functions that return some of what they are given, as edges of bins."""
_OF_NUMBERS = (float, int, bool, complex, min, max, sum, round, pow, divmod, abs)


def call(callee: Known, args: Sequence[Any], names: Names) -> Any:
    """Return the kind of a call's result.

    Parameters
    ----------
    callee
        One of NumPy's, Python's or gpusched's functions.
    args, names
        Kinds of the arguments.

    Raises
    ------
    Unsafe
        If the call is not on the list.
    """
    function = callee.value
    if isinstance(function, np.ufunc):
        return _ufunc(function, args, names)
    if isinstance(function, RecordedFunction | Freezable):
        return _recorded(function, args, names)
    if recorded_form(function) is not None:
        if names:
            refuse(GraphBreak.OWN_ARGUMENTS, f"calls {function.__name__} with {', '.join(names)}=")
        return _recorded(function, args, names)
    if isinstance(function, type):
        return _type(callee, args, names)
    if type(function) in _NUMPY and function in HANDLERS:
        return _catalogue(function, args, names)
    if isinstance(function, types.BuiltinFunctionType):
        return _python(callee, args, names)
    refuse(GraphBreak.OWN_CALLS, f"calls {described_callee(callee)}")


def creates(function: Any) -> bool:
    """Return whether a function makes an array of the numbers that it is given."""
    return any(function is each for each in _CREATING)


def created(function: Any, args: Sequence[Any], names: Names) -> Any:
    """Return the kind of such an array; `Unsafe` if a chunk may decide it."""
    if not names.keys() <= {"dtype", "shape", "fill_value", "endpoint"}:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {function.__name__} with {', '.join(names)}=")
    _check_each(function.__name__, (*args, *names.values()), _is_of_numbers)
    if not any(function is each for each in FILLING):
        return Kind.NUMBERS
    if len(args) > (3 if function is np.full else 2):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {function.__name__} with an order")
    return Kind.FRESH


def converts(function: Any, kind: Any) -> bool:
    """Return whether a function makes an array of one, or `np.array` of a list of them."""
    if type(function) is not types.BuiltinFunctionType or function not in CONVERTING:
        return False
    if function is np.array and isinstance(kind, Listing):
        return bool(kind.items) and all(map(is_array, kind.items))
    return is_array(kind.item if function is np.array and isinstance(kind, Row) else kind)


def converted(function: Any, args: Sequence[Any], names: Names) -> Any:
    """Return what `call` does, of a function that makes an array of one."""
    given = [*args[1:], *names.values()]
    if len(given) > 1 or not names.keys() <= {"dtype"}:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {function.__name__} with more than a dtype")
    _check_each(function.__name__, given, lambda kind: is_plain(kind) or is_text(kind))
    return Kind.FRESH if function is np.array else Kind.ARRAY


def _is_of_numbers(kind: Any) -> bool:
    if isinstance(kind, Listing | Items):
        return all(map(_is_of_numbers, kind.items))
    return is_settled(kind) or is_listed(kind)


def _ufunc(function: np.ufunc, args: Sequence[Any], names: Names) -> Any:
    name = function.__name__
    if operation_of(function) is None:
        refuse(GraphBreak.OWN_CALLS, f"calls {name}, which is not recorded")
    if not names.keys() <= {"dtype"}:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with {', '.join(names)}=")
    _check_each(name, names.values(), lambda kind: is_plain(kind) or is_text(kind))
    if len(args) != function.nin:
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with {len(args)} arguments")
    kind = arithmetic(args, f"calls {name} with")
    return Items((kind,) * function.nout) if function.nout > 1 else kind


def arithmetic(args: Sequence[Any], doing: str) -> Any:
    """Return the kind of what arithmetic makes of its operands; `Unsafe` for other operands."""
    for arg in args:
        # NumPy makes an array of a list that is computed with one.
        listed = is_listed(arg) and any(map(is_array, args))
        if not is_operand(arg) and arg is not Kind.NUMBERS and not listed:
            refuse(GraphBreak.OWN_OBJECTS, f"{doing} {described(arg)}")
    if any(map(is_array, args)):
        return Kind.FRESH
    return Kind.NUMBERS if Kind.NUMBERS in args else Kind.PLAIN


def described(kind: Any) -> str:
    """Return what is said of a value that is refused."""
    if isinstance(kind, Known):
        article = f"{kind.name}, " if kind.name else ""
        return f"{article}a {type(kind.value).__name__}"
    if isinstance(kind, Made):
        return f"{kind.code.co_name}, a function inside"
    if isinstance(kind, Items):
        return "a tuple"
    return str(kind.value) if isinstance(kind, Kind) else type(kind).__name__.lower()


def _recorded(function: Any, args: Sequence[Any], names: Names) -> Any:
    given = (*args, *names.values())
    _check_each("a kernel", given, lambda kind: is_operand(kind) or is_settled(kind))
    return Kind.ARRAY  # Or several, which unpacking gives one by one.


def _catalogue(function: Any, args: Sequence[Any], names: Names) -> Any:
    name = function.__name__
    handler = HANDLERS[function]
    values = {each: kind.value for each, kind in names.items() if isinstance(kind, Known)}
    usual = values.keys() - unusual(function, handler, values).keys()
    names = {each: kind for each, kind in names.items() if each not in usual}
    lists = _JOINING.get(function, 0)
    args = [*(_of_several(name, kind, lists > 1) for kind in args[:lists]), *args[lists:]]
    if function in _OF_SHAPES and len(args) == 1 and is_shape(args[0]) and not names:
        return Kind.PLAIN
    _check(name, handler, args, names, function not in _RETURNING)
    if function in _PLAIN_RESULTS:
        return _PLAIN_RESULTS[function]
    if not any(map(is_array, (*args, *names.values()))):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} without an array of its arguments'")
    return Kind.FRESH if has(function, "fresh") else Kind.ARRAY


def _of_several(name: str, kind: Any, numbers: bool) -> Any:
    """Return the kind of an argument that may be a list: NumPy reads what its arrays hold.

    It keeps neither these nor the list. `numbers` says whether there may be numbers among them.
    """
    if not isinstance(kind, Items | Listing | Row):
        return kind
    several = (kind.item,) if isinstance(kind, Row) else kind.items
    _check_each(name, several, lambda each: is_array(each) or each is Kind.NUMBERS
                or (numbers and is_plain(each)))  # fmt: skip
    if any(map(is_array, several)):
        return Kind.ARRAY
    return Kind.NUMBERS if Kind.NUMBERS in several else Kind.SHAPE


def _check(name: str, handler: Callable[..., Any], args: Sequence[Any], names: Names,
           numbers: bool = False) -> None:  # fmt: skip
    """Raise `Unsafe` for a call with arguments that a handler does not honour.

    `numbers` says whether an array that the function has made of numbers may be among them: it is
    copied where it is read, and is not among the results.
    """
    try:
        signature_of(handler).bind(None, *args, **names)
    except TypeError as error:
        refuse(
            GraphBreak.OWN_ARGUMENTS,
            f"calls {name} with arguments that no kernel honours ({error})",
        )
    given = (*args, *names.values())
    # NumPy reads the lists that it is given, and keeps none; nor does it the function's own arrays.
    _check_each(name, given, lambda kind: is_array(kind) or is_settled(kind) or is_listed(kind)
                or (numbers and kind is Kind.NUMBERS))  # fmt: skip


def _check_each(name: str, kinds: Iterable[Any], allowed: Callable[[Any], bool]) -> None:
    """Raise `Unsafe` for a call with a value of a kind that is not allowed."""
    for kind in kinds:
        if not allowed(kind):
            refuse(GraphBreak.OWN_ARGUMENTS, f"calls {name} with {described(kind)}")


def method(called: Method, args: Sequence[Any], names: Names) -> Any:
    """Return what `call` does, of a method of an array's or of a ufunc's."""
    if isinstance(called.owner, Known):
        ufunc = called.owner.value
        name = f"{ufunc.__name__}.{called.name}"
        if called.name == "at" and len(args) > 1 and isinstance(args[1], Items):
            _check_each(name, args[1].items, lambda kind: is_array(kind) or is_settled(kind)
                        or kind is Kind.NUMBERS)  # fmt: skip
            args = [args[0], Known(None), *args[2:]]
        if ufunc.__name__ not in COMBINES or operation_of(ufunc) is None or not args:
            refuse(GraphBreak.OWN_CALLS, f"calls {name}, which is not recorded")
        _check(name, UFUNC_METHODS[called.name], (Known(None), *args[1:]), names, numbers=True)
        _check_each(name, args[:1], is_array)
        if called.name == "at":
            if args[0] is not Kind.FRESH:
                refuse(GraphBreak.OWN_CHANGES, f"calls {name} of an array that is not new")
            return Known(None)
        return Kind.ARRAY
    if called.name == "astype":
        return _astype(args, names)
    _check(called.name, METHODS[called.name], (Known(None), *args), names)
    return Kind.FRESH if method_has(called.name, "fresh") else Kind.ARRAY


def _astype(args: Sequence[Any], names: Names) -> Any:
    given = [*args, *names.values()]
    if len(args) > 1 or len(given) < 1 or not names.keys() <= {"dtype", "copy"}:
        refuse(GraphBreak.OWN_ARGUMENTS, "calls astype with arguments that no kernel honours")
    if not all(is_plain(kind) or is_text(kind) for kind in given):
        refuse(GraphBreak.OWN_ARGUMENTS, f"calls astype with {', '.join(map(described, given))}")
    return Kind.ARRAY if "copy" in names else Kind.FRESH


def _type(callee: Known, args: Sequence[Any], names: Names) -> Any:
    """Return what a type makes of numbers; none is called with an array."""
    made: Any = callee.value
    if made is np.errstate:
        if not args and names.keys() <= _ERRSTATE and all(map(is_text, names.values())):
            return Kind.STATE
        refuse(GraphBreak.OWN_ARGUMENTS, "calls errstate with other arguments than names of errors")
    if made in (slice, range, *_INFORMATION, np.dtype):
        return _of_settled(made, args, names)
    if made is tuple and not names and len(args) < 2:
        return sequence(made, args[0] if args else Items(()))
    if made in (zip, enumerate):
        return _series(made, args, names)
    if made in SCALARS or made in _OF_NUMBERS:
        return _of_numbers(callee, args, names)
    if is_error(made):
        return Kind.ERROR  # to be raised, which a recording does not survive
    refuse(GraphBreak.OWN_CALLS, f"calls {described_callee(callee)}")


def sequence(made: type, of: Any) -> Any:
    """Return the kind of a new list, or of a tuple, of the items of something."""
    items = known_items(of)
    if made is tuple and (items is not None or is_shape(of)):
        return Items(of.items) if isinstance(of, Listing) else of
    if items is not None:
        return Listing(tuple(items))
    if not isinstance(of, Row) and not is_shape(of):
        refuse(GraphBreak.OWN_OBJECTS, f"calls {made.__name__} with {described(of)}")
    item = of.item if isinstance(of, Row) else item_of(of)
    return Kind.SHAPE if made is tuple and is_plain(item) else Row(item)


def is_item(kind: Any) -> bool:
    """Return whether a list that the function has made may hold a value."""
    held = Items | Listing | Row
    return is_array(kind) or is_settled(kind) or kind is Kind.NUMBERS or isinstance(kind, held)


def is_several(kind: Any) -> bool:
    """Return whether a value is a list, a tuple, or what a loop runs over."""
    return isinstance(kind, Listing | Row) or items_of(kind) is not None


def held_by(kind: Any) -> tuple[Any, ...]:
    """Return the kinds of a list's or a tuple's items; of any length, those that they may be."""
    items = known_items(kind)
    if items is not None:
        return tuple(items)
    return () if isinstance(kind, Row) and kind.item is None else (item_of(kind),)


def is_error(made: Any) -> bool:
    """Return whether a value is a class of exceptions, and making one runs nothing of the user's.

    A function that raises one runs twice: while it is recorded, and on real arrays.
    """
    return (
        type(made) is type
        and issubclass(made, BaseException)
        and isinstance(made.__init__, types.WrapperDescriptorType)
        and isinstance(made.__new__, types.BuiltinFunctionType)
    )


def described_callee(callee: Known) -> str:
    """Return what is said of something that is called and not on the list."""
    name = getattr(callee.value, "__qualname__", "") or type(callee.value).__name__
    return f"{name}, which is not recorded"


def _of_settled(made: Any, args: Sequence[Any], names: Names) -> Any:
    if not all(is_settled(kind) for kind in (*args, *names.values())):
        refuse(GraphBreak.OWN_DECIDES, f"calls {made.__name__} with a value of a chunk")
    return Row(Kind.PLAIN) if made is range else Kind.PLAIN


def _of_numbers(callee: Known, args: Sequence[Any], names: Names) -> Any:
    name = callee.value.__name__
    if callee.value is sum and len(args) == 1 and not names and _holds_arrays(args[0]):
        # From 0 on, each plus what is so far: never in place.
        return joined(Kind.PLAIN, arithmetic((item_of(args[0]), Kind.PLAIN), "adds up"))
    if callee.value is bool and len(args) == 1 and not names and is_array(args[0]):
        return Kind.PLAIN  # as where an array decides
    allowed = all(is_plain(k) for k in (*args, *names.values()))
    several = len(args) == 1 and (is_shape(args[0]) or _is_row_of_numbers(args[0]))
    whole = callee.value in (min, max, sum) and several and not names
    if not allowed and not whole:
        refuse(
            GraphBreak.OWN_ARGUMENTS,
            f"calls {name} with {', '.join(map(described, [*args, *names.values()]))}",
        )
    return Kind.PLAIN


def _is_row_of_numbers(kind: Any) -> bool:
    return isinstance(kind, Listing | Row) and is_plain(item_of(kind))


def _holds_arrays(kind: Any) -> bool:
    """Return whether a value is an array, or a list or tuple of arrays."""
    several = is_array(kind) or isinstance(kind, Row | Listing) or bool(items_of(kind))
    return several and is_array(item_of(kind))


def _series(made: Any, args: Sequence[Any], names: Names) -> Any:
    if not all(map(is_settled, (*names.values(), *(args[1:] if made is enumerate else ())))):
        refuse(GraphBreak.OWN_DECIDES, f"calls {made.__name__} with a value of a chunk")
    items = [item_of(kind) for kind in (args[:1] if made is enumerate else args)]
    return Row(Items((Kind.PLAIN, *items) if made is enumerate else tuple(items)))


def item_of(kind: Any) -> Any:
    """Return the kind of the items that a loop over a value meets; `Unsafe` if it is not known."""
    if isinstance(kind, Row | Listing):
        item = row_of(kind).item
        return Kind.PLAIN if item is None else item
    items = items_of(kind)
    if items:
        found = items[0]
        for item in items[1:]:
            found = joined(found, item)
        return found
    if kind is Kind.SHAPE:
        return Kind.PLAIN
    if is_array(kind):
        return Kind.ARRAY  # One item by a number after the other, as many as its shape says.
    refuse(GraphBreak.OWN_DECIDES, f"loops over, or unpacks, {described(kind)}")


def _python(callee: Known, args: Sequence[Any], names: Names) -> Any:
    function = callee.value
    given = (*args, *names.values())
    if function is len and len(args) == 1:
        if (items := known_items(args[0])) is not None:
            return Known(len(items))
        if is_array(args[0]) or is_shape(args[0]) or isinstance(args[0], Row):
            return Kind.PLAIN
    elif function is isinstance and len(args) == 2:
        return _instance(*args)
    elif function is abs and len(args) == 1 and not names:
        return arithmetic(args, "calls abs with")
    elif function is pow and len(args) == 2 and not names:
        return arithmetic(args, "calls pow with")
    elif function.__module__ == "_operator" and has(function, "elementwise") and not names:
        return arithmetic(args, f"calls {function.__name__} with")
    elif function in _OF_NUMBERS:
        return _of_numbers(callee, args, names)
    elif getattr(math, getattr(function, "__name__", ""), None) is function:
        if all(is_plain(kind) or is_shape(kind) for kind in given):
            return Kind.PLAIN
        refuse(GraphBreak.OWN_DECIDES, "calls a scalar function with a value of a chunk")
    refuse(GraphBreak.OWN_CALLS, f"calls {described_callee(callee)}")


def _instance(kind: Any, of: Any) -> Any:
    """Return the kind of whether a value is of a type, or of one of several.

    Only a type's own type has a say in that: what others would run is not looked at.
    """
    several = items_of(of)
    several = (of,) if several is None else several
    for each in several:
        if not isinstance(each, Known) or type(each.value) is not type:
            refuse(GraphBreak.OWN_CALLS, f"asks whether a value is {described(each)}")
    if not is_array(kind) and not is_settled(kind) and not isinstance(kind, Items | Listing | Row):
        refuse(GraphBreak.OWN_DECIDES, f"asks of what type {described(kind)} is")
    if isinstance(kind, Known):
        return Known(isinstance(kind.value, tuple(each.value for each in several)))
    return Kind.PLAIN  # Plans are made for kinds, and so for types.


def parameters(function: types.FunctionType, args: Sequence[Any], names: Names) -> Names:
    """Return the kinds of a function's parameters in a call; `Unsafe` if it does not take it."""
    if hasattr(function, "__signature__"):
        refuse(GraphBreak.OWN_CALLS, f"calls {function.__name__}, whose signature is declared")
    signature = inspect.Signature.from_callable(function, follow_wrapped=False)
    try:
        bound = signature.bind(*args, **names)
    except TypeError as error:
        refuse(
            GraphBreak.OWN_OBJECTS,
            f"calls {function.__name__} with other arguments than it has ({error})",
        )
    found = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[name] = Items(tuple(found.get(name, ())))
        elif parameter.kind is parameter.VAR_KEYWORD:
            found[name] = Options(tuple(found.get(name, {}).items()))
        elif name not in found:
            found[name] = Known(parameter.default, name)
    return found
