"""Goes through the bytecode of a function: all that it reads and calls is listed.

A place on the stack, and a variable, has a kind (`kinds`): known values and methods, so that each
call shows what is called, with how many arguments; and whether this call of the function has made a
value, so that nobody else sees changes of it. Where ways meet, a place holds what the kinds on both
have in common. What values are is not asked: lazy chunks know, or end the recording. What each
instruction does is in the table of `instructions`.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from gpusched.backends.devices import device_of
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.graph.functions.lanes import calls_lanes
from gpusched.graph.functions.libraries import FUNCTIONS, NAMED, package
from gpusched.graph.functions.partials import applied
from gpusched.graph.safety import listed
from gpusched.graph.safety.exceptions import entries, handlers, only_asks
from gpusched.graph.safety.instructions import GENERATORS, TABLE, Ways, parts
from gpusched.graph.safety.kinds import (
    ATTRIBUTES,
    Followed,
    Items,
    Kind,
    Known,
    Listing,
    Method,
    Options,
    is_array,
    is_constant,
    is_format,
    is_new,
    is_own,
    is_string,
    is_without_chunk,
    joined,
    settled,
)
from gpusched.graph.safety.listed import Unsafe, described, refuse
from gpusched.graph.safety.outside import Outside
from gpusched.record.bytecode import codes, instructions
from gpusched.record.catalogue import CHANGING, has
from gpusched.record.chunk import LackingError
from gpusched.record.handlers import UFUNC_METHODS


def examine(function: Any, args: Iterable[Any], names: dict[str, Any],
            outside: Outside) -> None:  # fmt: skip
    """Raise `Unsafe` if a function may not be given lazy chunks.

    Parameters
    ----------
    function
        The function, a method, or an object that can be called.
    args, names
        Kinds of its arguments.
    outside
        Where what it reads from outside is noted.
    """
    if not isinstance(function, types.FunctionType):
        method = outside.method(function)
        function, args = method.__func__, [Known(method.__self__, "self"), *args]
    if function.__code__.co_flags & GENERATORS:
        refuse(GraphBreak.OWN_OBJECTS, "is a generator or a coroutine")
    examination = Examination(outside)
    examination.function(function, list(args), names)
    examination.finish()


class Examination:
    """What one function and all that it calls may do.

    Parameters
    ----------
    outside
        Where what they read from outside is noted.
    """

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self._done: set[Any] = set()
        """Functions, and kinds of their parameters, that have been gone through."""
        self._running: list[types.FunctionType] = []
        self._passed: dict[Any, float] = {}
        """Functions that may be called where it is not known which one is, with their limits."""
        self.assumed = False
        """Whether what is made of chunks is an array if these are arrays, and no lists."""
        self.changes = False
        """Whether something is changed that it has made."""
        self._most = -1
        """How many arguments by position such calls have at most."""

    def finish(self) -> None:
        """Refuse calls of what is not known by which something may be changed."""
        self.outside.chunks = self.assumed and self.changes
        for name, most in self._passed.items():
            if most < self._most:
                refuse(GraphBreak.OWN_ARGUMENTS, f"may call {name} with out=, or another function")

    @contextmanager
    def of_arrays(self) -> Iterator[None]:
        """Go through functions of lanes, which are arrays: nothing has to be assumed of them."""
        done, assumed, self._done = self._done, self.assumed, set()
        yield
        self._done, self.assumed = done, assumed

    def function(self, function: types.FunctionType, args: list[Any] | None = None,
                 names: dict[str, Any] | None = None) -> None:  # fmt: skip
        """Go through a function, for some arguments or for any."""
        if type(function.__globals__) is not dict:  # What another mapping has is its own affair.
            refuse(GraphBreak.OWN_OBJECTS, f"calls {function.__name__}, whose globals are no dict")
        self.outside.function(function)
        given = None if args is None else _given(function, args, names or {})
        if given is None or function in self._running:
            self.use(*(given or {}).values())
            given = dict.fromkeys(parameters(function.__code__), Kind.OTHER)
            defaults = function.__defaults__ or (), (function.__kwdefaults__ or {}).values()
            self.use(*(Known(value, "a default") for value in chain.from_iterable(defaults)))
        key = function, tuple(given.items())
        if key not in self._done:
            self._done.add(key)
            self._running.append(function)
            Code(self, function, function.__code__, None).run(given)
            self._running.pop()

    def use(self, *kinds: Any) -> None:
        """Take values into account that go where they are not followed."""
        for kind in kinds:
            if isinstance(kind, Items):
                self.use(*kind.items)
            elif isinstance(kind, Options):
                self.use(*(each for name, of in kind.names for each in (Known(name), of)))
            elif isinstance(kind, Known):
                self._use_value(kind.value, kind.name)
            elif isinstance(kind, Method) and kind.name in listed.EITHER:
                self._passed[kind.name] = listed.method_limit(kind.name)
            elif isinstance(kind, Method):
                said = f"uses the method {kind.name}, and does not only call it"
                refuse(GraphBreak.OWN_ATTRIBUTE, said)
            elif kind is Kind.TEXT:
                # Which depends on `numpy.set_printoptions`, where numbers are NumPy's.
                refuse(GraphBreak.OWN_CODE, "formats a string, and does not only raise it")
            elif kind not in (Kind.CHUNK, Kind.OTHER) and not is_new(kind):
                refuse(GraphBreak.OWN_CODE, f"uses {kind.value}")

    def _use_value(self, value: Any, name: str) -> None:
        if type(value) is tuple:
            for item in value:
                self._use_value(item, name)
        elif is_python(value):
            self.function(value)
        elif type(value) is np.ndarray and device_of(value) is not None:
            self.outside.arrays[id(value)] = value
        elif is_constant(value):
            if is_format(value):
                refuse(GraphBreak.OWN_CODE, "uses a string with %, which may format another")
        else:
            if calls_lanes(value) is not None:
                refuse(GraphBreak.OWN_OBJECTS, f"uses {name}, and does not only call it")
            if not listed.is_listed(value) or value is np.errstate or has(value, "changes"):
                refuse(GraphBreak.OWN_OBJECTS, f"uses {described(Known(value, name))}")
            self.calls(value)
            self._passed[listed.called_name(value)] = min(
                listed.limit(value), self._passed.get(listed.called_name(value), sys.maxsize)
            )

    def calls(self, value: Any) -> None:
        """Take into account that a function that is listed may be called."""
        self.outside.kernel(value)
        self.outside.between |= listed.is_between(value)

    def called(self, args: int) -> None:
        """Take a call of what is not known into account, with so many arguments by position."""
        self._most = max(self._most, args)


def is_python(value: Any) -> bool:
    """Return whether a value is a function in Python that is to be gone through itself."""
    return isinstance(value, types.FunctionType) and not listed.is_listed(value)


def parameters(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of a function's parameters."""
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]


def _given(function: types.FunctionType, args: list[Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return the kinds of a function's parameters in a call; `Unsafe` if it does not take it."""
    if hasattr(function, "__signature__"):
        refuse(GraphBreak.OWN_CALLS, f"calls {function.__name__}, whose signature is declared")
    signature = inspect.Signature.from_callable(function, follow_wrapped=False)
    try:
        found = dict(signature.bind(*args, **names).arguments)
    except TypeError as error:
        said = f"calls {function.__name__} with other arguments than it has ({error})"
        refuse(GraphBreak.OWN_OBJECTS, said)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[name] = Items(tuple(found.get(name, ())))
        elif parameter.kind is parameter.VAR_KEYWORD:
            found[name] = Options(tuple(found.get(name, {}).items()))
        elif name not in found:
            found[name] = Known(parameter.default, name)
    return found


@dataclass(frozen=True)
class State:
    """What the interpreter of Python holds before one instruction."""

    stack: tuple[Any, ...]
    variables: tuple[tuple[str, Any], ...]
    """Local variables, by name."""
    keywords: tuple[str, ...] = ()
    """Names of the last arguments of the call to come."""


class Code:
    """Goes through one code object: a function's, or one's that is defined in a function.

    Parameters
    ----------
    whole
        Of what it is a part.
    function
        The function that has it, or in which it is.
    code
        The code.
    outer
        What goes through the code that defines it; None if it is the function's.
    """

    def __init__(self, whole: Examination, function: types.FunctionType, code: types.CodeType,
                 outer: Code | None) -> None:  # fmt: skip
        self.whole, self.function, self.code, self.outer = whole, function, code, outer
        self.use = whole.use
        self.instructions = instructions(code)
        self._places = {each.offset: k for k, each in enumerate(self.instructions)}
        self._states: dict[int, State] = {}
        self._waiting: list[int] = []
        self._entries: list[tuple[Any, bool]] = []
        """Handlers of `AttributeError` with those that Python adds, and whether they are such."""
        self._asks = False
        """Whether a missing attribute goes to one of the former, at this instruction."""
        self.stack: list[Any] = []
        """Before the instruction that is gone through, and after it."""
        self.variables: dict[str, Any] = {}
        self.keywords: tuple[str, ...] = ()
        self._set_inside = {
            each.argval
            for part in codes(code)
            if part is not code
            for each in instructions(part)
            if each.opname == "STORE_DEREF" and each.argval in part.co_freevars
        }
        """Variables that functions inside may set."""

    def run(self, given: dict[str, Any]) -> None:
        """Go through all ways; `Unsafe` if there is something that is not listed."""
        self._check_handlers()
        self.use(*(given[name] for name in self.code.co_cellvars if name in given))
        self._goto(0, State((), tuple(given.items())))
        while self._waiting:
            place = self._waiting.pop()
            self._step(place, self._states[place])

    def _check_handlers(self) -> None:
        """Note handlers of exceptions, and refuse those of generators."""
        own = handlers(self.code)
        if not own:
            return
        if self.code.co_flags & GENERATORS:
            told = f"handles exceptions in a generator{self._where(self._place(own[0]))}"
            raise Unsafe(GraphBreak.OWN_HANDLES(told), placed=True)
        self.whole.outside.handles = True
        if only_asks(self.code):
            self._entries = [(each, each.target in own) for each in entries(self.code)]

    def _place(self, offset: int) -> int:
        """Return the number of the instruction at an offset, or after the prefixes there."""
        while offset not in self._places:
            offset += 2
        return self._places[offset]

    def _where(self, place: int) -> str:
        before = [i.positions.lineno for i in self.instructions[: place + 1] if i.positions]
        line = next((n for n in reversed(before) if n is not None), self.code.co_firstlineno)
        return f" ({self.instructions[place].opname.lower()}, line {line})"

    # Ways through the code ------------------------------------------------------------------

    def _goto(self, place: int, state: State) -> None:
        before = self._states.get(place)
        after = state if before is None else self._joined(before, state)
        if after != before:
            self._states[place] = after
            self._waiting.append(place)

    def _joined(self, one: State, other: State) -> State:
        """Return what holds on two ways that meet."""
        if len(one.stack) != len(other.stack):
            refuse(GraphBreak.OWN_CODE, "leaves different numbers of values behind")
        found, theirs = dict(one.variables), dict(other.variables)
        for name, kind in theirs.items():
            found[name] = self._either(found.get(name, Kind.UNBOUND), kind)
        stack = tuple(map(self._either, one.stack, other.stack))
        return State(stack, tuple(found.items()), one.keywords)

    def _either(self, one: Any, other: Any) -> Any:
        found = joined(one, other)
        if one == other or Kind.UNBOUND in (one, other):
            return found
        try:
            self.use(*(kind for kind in (one, other) if kind is not Kind.TEXT))
        except Unsafe:
            return Kind.MIXED  # which nobody may use
        return found

    def _step(self, place: int, state: State) -> None:
        """Go through one instruction."""
        self.stack, self.variables = list(state.stack), dict(state.variables)
        self.keywords, ways = state.keywords, None
        self._goto_handlers(place, state)
        try:
            for instruction in parts(self.instructions[place]):
                ways = TABLE[instruction.opname](self, instruction)
        except LackingError:
            return
        except Unsafe as error:
            if error.placed:
                raise
            told = error.reason.told(f"{error.reason}{self._where(place)}")
            raise Unsafe(told, placed=True) from None
        variables = tuple(self.variables.items())
        for target, stack in [(None, self.stack)] if ways is None else ways:
            after = place + 1 if target is None else self._place(target)
            self._goto(after, State(tuple(stack), variables, self.keywords))

    def _goto_handlers(self, place: int, state: State) -> None:
        """Go on where an exception goes that an instruction may raise."""
        offset, self._asks = self.instructions[place].offset, False
        for each, is_own_handler in self._entries:
            if each.start <= offset < each.end:
                raised = [Kind.OTHER] * (2 if each.lasti else 1)
                stack = (*state.stack[: each.depth], *raised)
                self._goto(self._place(each.target), State(stack, state.variables))
                self._asks |= is_own_handler

    # The stack and the variables --------------------------------------------------------------

    def push(self, *kinds: Any) -> Ways:
        """Put kinds on the stack, and go on with the next instruction."""
        self.stack += kinds
        return None

    def pop(self, count: int, numbers: bool = False) -> list[Any]:
        """Take so many kinds off the stack, the topmost last, to go anywhere.

        With `numbers`, lists of numbers go where they are nowhere else, as on the stack.
        """
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        kept = [numbers and isinstance(kind, Listing) and is_without_chunk(kind) for kind in found]
        return [k if keep else self.settled(k) for k, keep in zip(found, kept, strict=True)]

    def settled(self, kind: Any) -> Any:
        """Return the kind of what goes anywhere; items of lists are not followed any more.

        Arrays from outside are as those that the function is given: others may see them.
        """
        if isinstance(kind, Known) and type(kind.value) is np.ndarray:
            self.use(kind)
            return Kind.OTHER
        found = settled(kind)
        if found is not kind:
            self.use(kind)
        return found

    def taken(self, count: int) -> list[Any]:
        """Take kinds off the stack which go where they are not followed."""
        found = self.pop(count)
        self.use(*found)
        return found

    def load(self, name: str) -> Any:
        """Return the kind of a local variable."""
        found = self.variables.get(name, Kind.UNBOUND)
        if found is Kind.UNBOUND or name in self._set_inside:
            return Kind.OTHER  # Python raises if it has no value.
        return found

    def store(self, name: str, kind: Any) -> Ways:
        """Give a local variable a kind, and go on with the next instruction."""
        if name in self.code.co_cellvars and kind is not Kind.UNBOUND:
            self.use(kind)
        self.variables[name] = kind
        return None

    def held(self, name: str) -> Any:
        """Return the kind of a variable of an outer function."""
        if self.outer is not None:
            # Functions inside may be called at any time.
            return Kind.OTHER if name in self.outer.code.co_cellvars else self.outer.held(name)
        cells = dict(zip(self.code.co_freevars, self.function.__closure__ or (), strict=True))
        try:
            return Known(self.whole.outside.cell(cells[name], name), name)
        except ValueError:
            refuse(GraphBreak.OWN_OBJECTS, f"uses {name}, which has no value yet")

    def is_inside(self, name: str) -> bool:
        """Return whether a variable is one of a function that is gone through."""
        inside = name in self.code.co_cellvars
        return inside or (self.outer is not None and self.outer.is_inside(name))

    def attribute(self, owner: Any, name: str) -> Any:
        """Return the kind of an attribute.

        Raises
        ------
        LackingError
            If no value that the function is recorded with has it, which a handler is for.
        """
        if isinstance(owner, Known) and type(owner.value) is types.ModuleType:
            try:
                found = self.whole.outside.entry(vars(owner.value), name)
            except KeyError:
                refuse(GraphBreak.OWN_OBJECTS, f"uses {owner.name}.{name}, which is not loaded yet")
            return Known(found, f"{owner.name}.{name}")
        if isinstance(owner, Known) and isinstance(owner.value, np.ufunc) and name in UFUNC_METHODS:
            return Method(owner, name)
        if owner is Kind.TYPE and name == "__name__":
            return Kind.TEXT
        if not isinstance(owner, Known) or is_constant(owner.value):
            self.use(owner)
            if name in listed.NAMES:
                return Method(self._owner(owner, name), name)
            if name in ATTRIBUTES:
                return ATTRIBUTES[name]
            if self._asks and not listed.is_plain_attribute(name):
                self.whole.outside.lacking.add((self.code, name))
                raise LackingError
            refuse(GraphBreak.OWN_ATTRIBUTE, f"uses .{name} of {described(owner)}")
        try:
            if listed.is_listed(owner.value):
                raise KeyError(name)
            found = self.whole.outside.attribute(owner.value, name)
        except KeyError:
            refuse(GraphBreak.OWN_ATTRIBUTE, f"uses .{name} of {described(owner)}")
        return Known(found, f"{owner.name}.{name}")

    def _owner(self, owner: Any, name: str) -> Kind:
        """Return the kind of what a method is called of."""
        if owner is Kind.CHUNK and name == "copy":
            return self.assumed()
        return owner if is_array(owner) else Kind.NEW if is_own(owner) else Kind.OTHER

    def assumed(self) -> Kind:
        """Return the kind of what is made of a chunk, which is assumed to be an array."""
        self.whole.assumed = True
        return Kind.ARRAY

    # Calls ------------------------------------------------------------------------------------

    def call(self, callee: Any, args: list[Any], names: dict[str, Any]) -> Any:
        """Return the kind of a call's result."""
        if callee is Kind.LEAVING:
            return Known(None)
        if callee is Kind.COMPREHENSION:
            self.use(*args)
            return Kind.NEW
        if isinstance(callee, Known) and (calls := calls_lanes(callee.value)) is not None:
            return self._call_for_lanes(callee, calls, args, names)
        if isinstance(callee, Known) and (method := self._method(callee.value)) is not None:
            owner = Known(method.__self__, callee.name.rpartition(".")[0] or callee.name)
            function: Any = method.__func__
            return self._call_python(function, [owner, *args], names, listed.said(callee))
        if isinstance(callee, Known) and is_python(callee.value):
            return self._call_python(callee.value, args, names)
        for name, least in CHANGING.items():
            asked = name in names and names[name] != Known(least)
            self.whole.changes |= asked
            if asked and not listed.is_harmless(callee, name, names[name]):
                refuse(GraphBreak.OWN_ARGUMENTS, f"calls {listed.said(callee)} with {name}=")
        if isinstance(callee, Known) and callee.value is isinstance and len(args) == 2:
            self.use(args[0])
            return listed.instance(args[1], self.whole.outside)
        if isinstance(callee, Known) and callee.value is type and len(args) == 1:
            self.use(args[0])
            return Kind.TYPE
        if isinstance(callee, Known) and (callee.value is getattr or callee.value is hasattr):
            return self._ask_attribute(callee.value, args)
        raised = isinstance(callee, Known) and listed.is_error(callee.value)
        for kind in (*args, *names.values()):
            if not (raised and is_string(kind)):
                self.use(kind)
        if isinstance(callee, Method):
            self.whole.changes |= callee.name in listed.CHANGING
            return listed.method(callee, args, names)
        if isinstance(callee, Known):
            self.whole.changes |= has(callee.value, "changes")
            found = listed.function(callee.value, args, names)
            self.whole.calls(callee.value)
            self.whole.called(listed.most_given(callee.value, args))
            return found
        if callee not in (Kind.OTHER, Kind.CHUNK, Kind.NEW):
            refuse(GraphBreak.OWN_CALLS, f"calls {described(callee)}")
        self.whole.called(len(args))
        return Kind.OTHER

    def _call_for_lanes(self, callee: Known, calls: Any, args: list[Any],
                        names: dict[str, Any]) -> Any:  # fmt: skip
        """Return the kind of what is made of a function's results for lanes, which are views."""
        try:
            function, chunks, others, options = calls(*args, **names)
        except TypeError:
            told = f"calls {listed.said(callee)} with other arguments than it takes"
            refuse(GraphBreak.OWN_ARGUMENTS, told)
        self.use(*(kind for kind in (*args, *names.values()) if kind is not function))
        given = [*(Kind.CHUNK for _ in chunks), *others]
        if isinstance(function, Known) and type(function.value) is partial:
            value, first, keywords = applied(function.value, (), {})
            function = Known(value, function.name)
            given = [*map(_held, first), *given]
            options = {**{name: _held(each) for name, each in keywords.items()}, **options}
        with self.whole.of_arrays():
            self.call(function, given, options)
        return Kind.OTHER

    def _method(self, value: Any) -> types.MethodType | None:
        """Return the method that a call of a value calls; None where it is of none of Python's."""
        if isinstance(value, types.FunctionType) or listed.is_listed(value):
            return None
        try:
            found = self.whole.outside.method(value)
        except KeyError:
            return None
        return found if is_python(found.__func__) else None

    def _ask_attribute(self, function: Any, args: list[Any]) -> Any:
        """Return the kind of what `getattr` or `hasattr` give.

        Where nothing is known of the value, what stands in for them decides when it is recorded
        (`gpusched.graph.safety.standins`): it gives no methods.
        """
        owner, known = args[0] if args else Kind.MIXED, args[1:2]
        name = known[0].value if known and isinstance(known[0], Known) else None
        if type(name) is not str:
            refuse(GraphBreak.OWN_ATTRIBUTE, "asks for an attribute whose name is not known")
        if isinstance(owner, Known) and not is_constant(owner.value):
            refuse(GraphBreak.OWN_ATTRIBUTE, f"asks for .{name} of {described(owner)}")
        self.use(owner, *args[2:])
        return Kind.NEW if function is hasattr else Kind.OTHER

    def call_with_more(self, callee: Any, given: Followed, options: Options) -> Any:
        """Return the kind of what a call gives that is given any number of new arrays at the end.

        NumPy's functions change nothing else for it, be an array `out` or an option: what is given
        beyond their limit is one that nobody else sees.
        """
        numpys = isinstance(callee, Known) and listed.is_numpys(callee.value)
        if numpys or isinstance(callee, Method):
            return self.call(callee, [*given.items, Kind.ARRAY], dict(options.names))
        return self.call_with_any(callee, given, options)

    def call_with_any(self, callee: Any, given: Any, options: Any) -> Any:
        """Return the kind of what a call gives whose arguments are not known."""
        self.use(callee, given, options)
        self.whole.called(sys.maxsize)
        return Kind.OTHER

    def _call_python(self, function: types.FunctionType, args: list[Any], names: dict[str, Any],
                     name: str = "") -> Any:  # fmt: skip
        name = name or function.__name__
        if function.__code__.co_flags & GENERATORS:
            refuse(GraphBreak.OWN_OBJECTS, f"calls {name}, a generator or a coroutine")
        try:
            self.whole.function(function, args, names)
        except Unsafe as error:
            owner = package(function)
            if owner in (FUNCTIONS | NAMED) and package(self.function) != owner:
                told = f"calls {name} of {owner}, which is not recorded"
                raise Unsafe(GraphBreak.OWN_CALLS(told)) from None
            told = f"calls {name}, which {error.reason}"
            raise Unsafe(error.reason.told(told), error.placed) from None
        return Kind.OTHER

    def inside(self, code: types.CodeType) -> None:
        """Go through a function that is defined here, for any arguments."""
        names = self.function.__globals__
        if "__builtins__" in names:  # Where each such function gets Python's own from.
            self.whole.outside.entry(names, "__builtins__")
        given = dict.fromkeys(parameters(code), Kind.OTHER)
        Code(self.whole, self.function, code, self).run(given)


def _held(value: Any) -> Any:
    """Return the kind of what a partial application holds: its arrays are seen elsewhere."""
    return Kind.CHUNK if isinstance(value, np.ndarray) else Known(value, "an argument")
