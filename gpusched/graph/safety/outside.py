"""What functions read from outside of themselves: a plan holds for these values only.

Functions are recorded bound to these values, with stand-ins (`standins`) among them.
"""

from __future__ import annotations

import abc
import builtins
import inspect
import operator
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from gpusched.graph.functions.libraries import found_by_name
from gpusched.graph.safety.exceptions import without_handlers
from gpusched.graph.safety.kinds import is_constant, same
from gpusched.graph.safety.objects import CALLED, MISSING, Snapshot, attribute_of, method_of
from gpusched.graph.safety.standins import WARNS, stand_in
from gpusched.record.catalogue import recorded_form
from gpusched.record.chunk import LazyChunk
from gpusched.record.record import Recorder
from gpusched.record.recorded import Freezable

_READ_BY_PYTHON = frozenset(("__name__", "__package__", "__spec__", "__path__", "__loader__"))
"""Names that Python itself reads of a module for imports."""


def is_warning(error: TypeError) -> bool:
    """Return whether an error was raised as a function, bound to what it reads, would have warned.

    Examples
    --------
    >>> import warnings
    >>> from gpusched.graph.safety.outside import is_warning
    >>> try:
    ...     warnings.warn_explicit("", UserWarning, "", 1, registry="none")
    ... except TypeError as error:
    ...     is_warning(error)
    True
    """
    return str(error).startswith("'registry' must be a dict or None")


class Outside:
    """Where functions have read what.

    Notes
    -----
    Filled by one thread while functions are examined, and not changed since.
    """

    def __init__(self) -> None:
        self._read: dict[Any, tuple[Callable[[], Any], Any, Callable[[Any, Any], bool]]] = {}
        """By what has been read: how it is read, what that gave, and what compares it."""
        self._parts: list[Any] = []
        self.arrays: dict[int, np.ndarray] = {}
        """By identity, arrays that were read. What is in them is none of what was read: functions
        get them as they get chunks."""
        self.handles = False
        """Whether one of the functions handles exceptions: it is recorded without its handlers."""
        self.between = False
        """Whether one of the functions calls what no kernel computes, between kernels."""
        self.chunks = False
        """Whether it is assumed that what they are given of chunks are arrays, and no lists."""
        self.tables = False
        """Whether an array that they make without a chunk is indexed by what a chunk decides."""
        self.lacking: set[tuple[types.CodeType, str]] = set()
        """Attributes that no chunk has, by the code that asks for them and handles that."""

    def name(self, function: types.FunctionType, name: str) -> Any:
        """Return a global of a function's, or one of Python's own functions.

        Raises
        ------
        KeyError
            If there is none of that name.
        """
        found = self._entry(function.__globals__, name)
        if found is MISSING:
            found = self._entry(getattr(function, "__builtins__", vars(builtins)), name)
        if found is MISSING:
            raise KeyError(name)
        return found

    def builtin(self, function: types.FunctionType, name: str) -> Any:
        """Return one of the functions that are Python's own to a function; None if there is none.

        Instructions that need such a function look nowhere else.
        """
        found = self._entry(getattr(function, "__builtins__", vars(builtins)), name)
        return None if found is MISSING else found

    def entry(self, names: dict[str, Any], name: str) -> Any:
        """Return what a dictionary, such as a module's, has by a name; `KeyError` if nothing."""
        found = self._entry(names, name)
        if found is MISSING:
            raise KeyError(name)
        return found

    def _entry(self, names: dict[str, Any], name: str) -> Any:
        # What other mappings have for a name is their own affair.
        own = names if type(names) is dict else dict[str, Any]()
        read = partial(own.get, name, MISSING)
        return self._note((id(names), name), read, lambda value: (name, frozen(value)))

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute of an object; `KeyError` if others than Python decide what it is."""
        return self._of_object(owner, name, partial(attribute_of, owner, name))

    def method(self, owner: Any) -> types.MethodType:
        """Return the method that a call of an object is one of; `KeyError` if it is of none."""
        if type(owner) is types.MethodType:
            return owner
        found: types.MethodType = self._of_object(owner, CALLED, partial(method_of, owner))
        return found

    def _of_object(self, owner: Any, name: str, read: Callable[[], Any]) -> Any:
        if read() is MISSING:
            raise KeyError(name)
        return self._note((id(owner), name), read, lambda value: (name, frozen(value)))

    def cell(self, cell: types.CellType, name: str) -> Any:
        """Return a variable of an outer function; `ValueError` while it has no value."""
        found = self._note(id(cell), partial(_contents, cell), lambda value: (name, frozen(value)))
        if found is MISSING:
            raise ValueError(name)
        return found

    def function(self, function: types.FunctionType) -> None:
        """Note the code and the defaults of a function that is called."""
        self._note(id(function), partial(_meaning, function),
                   lambda found: (found[0], *map(frozen, found[1:])), _means)  # fmt: skip

    def registrations(self) -> None:
        """Note which types have been registered as what an abstract type stands for."""
        self._note("registrations", abc.get_cache_token, lambda token: ("registrations", token),
                   operator.eq)  # fmt: skip

    def kernel(self, callee: Any) -> None:
        """Note a user's kernel, or what is recorded as one, which reads values from outside."""
        if _frozen_parts(callee) is not None:
            self._note(id(callee), partial(_frozen_parts, callee), lambda found: found, operator.eq)

    def _note(self, key: Any, read: Callable[[], Any], part: Callable[[Any], Any],
              compare: Callable[[Any, Any], bool] = same) -> Any:  # fmt: skip
        """Return what is read now; note the first time, with what identifies it."""
        value = read()
        if key not in self._read:
            # With `read`, whatever the key is the id of stays alive.
            self._read[key] = read, value, compare
            self._parts.append(part(value))
        return value

    def holds(self) -> bool:
        """Return whether everything is as it was when it was read."""
        for read, value, compare in self._read.values():
            now = read()
            if now is not value and not compare(now, value):
                return False
        return True

    def bound(self, recorder: Recorder, arrays: Mapping[int, LazyChunk] | None = None) -> Bound:
        """Return what makes functions of those that read what was read, for one recording.

        Parameters
        ----------
        recorder
            Of the recording.
        arrays
            What stands for the arrays that were read, by their identity.
        """
        read = {key: found for key, (_, found, _) in self._read.items()}
        return Bound(read, recorder, arrays or {}, frozenset(self.lacking), self.tables)

    @property
    def is_little(self) -> bool:
        """Whether nothing was read whose memory matters, should somebody keep it."""
        return is_little(tuple([value for _, value, _ in self._read.values()]))

    @property
    def is_code(self) -> bool:
        """Whether nothing was read but functions, types and modules."""
        return all(map(_is_code, [value for _, value, _ in self._read.values()]))

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values that a function reads, to be compared and hashed.

        Functions that it calls are among them with their code and with what they read. They
        themselves go by when each is read first: others of the same code do the same.
        """
        numbers: dict[int, int] = {}

        def named(part: Any) -> Any:
            if type(part) is tuple:
                return tuple(map(named, part))
            called = type(part) is types.FunctionType and id(part) in self._read
            return ("function", numbers.setdefault(id(part), len(numbers))) if called else part

        return tuple(map(named, self._parts))


class Bound:
    """Functions that read the values that were read, whatever others set meanwhile.

    A plan that is recorded of them is one for these values, even if a global is another one for as
    long as the recording takes. What users' kernels read themselves is not bound.

    Parameters
    ----------
    read
        What was read: by the ids of a dictionary or an object and the name in it, and of cells and
        functions.
    recorder
        Of the recording.
    arrays
        As in `Outside.bound`.
    lacking, tables
        As in `Outside`.

    Notes
    -----
    Belongs to one thread. Of dictionaries only what was read is copied: nothing else is read then,
    and these functions, which hold each other, keep no arrays of the user's until they are
    collected.
    """

    def __init__(self, read: Mapping[Any, Any], recorder: Recorder, arrays: Mapping[int, LazyChunk],
                 lacking: frozenset[tuple[types.CodeType, str]], tables: bool) -> None:  # fmt: skip
        self._read = read
        self._tables = tables
        self._lacking = lacking
        self._recorder = recorder
        self._named: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for key, value in read.items():
            if type(key) is tuple:
                self._named[key[0]][key[1]] = value
        self._made: dict[int, Any] = dict(arrays)
        """By the id of what it stands for: what is one object stays one."""

    def value(self, value: Any) -> Any:
        """Return a value with such functions in it, and modules that hold what was read.

        Lists and dictionaries are as they are: functions that are recorded only pass them on.
        """
        kind = type(value)
        if id(value) in self._made:
            return self._made[id(value)]
        if kind is types.FunctionType and id(value) in self._read:
            return self._function(value)
        if kind is types.ModuleType and id(vars(value)) in self._named:
            return self._module(vars(value))
        if kind is not dict and id(value) in self._named:
            return self._object(value)
        if kind is types.MethodType and type(value.__func__) is types.FunctionType:
            return types.MethodType(self.value(value.__func__), self.value(value.__self__))
        found = value
        if kind is not np.ufunc and (form := recorded_form(value)) is not None:
            found = form
        elif kind is partial:
            found = partial(self.value(value.func), *map(self.value, value.args),
                            **self.values(value.keywords))  # fmt: skip
        elif kind is tuple:
            items = tuple(map(self.value, value))
            found = value if all(map(operator.is_, items, value)) else items
        else:
            found = stand_in(value, self._recorder, self._tables)
        if found is not value:
            self._made[id(value)] = found
        return found

    def values(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return such values by their names."""
        return {name: self.value(each) for name, each in named.items()}

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        code, defaults, *keywords = self._read[id(function)]
        names = vars(self._module(function.__globals__))
        names["__builtins__"] = self._builtins(function)
        cells = function.__closure__ or ()
        bound = tuple([types.CellType() if id(cell) in self._read else cell for cell in cells])
        code = without_handlers(code, self._lacking)
        made = types.FunctionType(code, names, function.__name__, None, bound)
        # It may hold itself.
        self._made[id(function)] = made
        made.__defaults__ = self.value(defaults)
        made.__kwdefaults__ = self.values(dict(zip(keywords[::2], keywords[1::2], strict=True)))
        for new, cell in zip(bound, cells, strict=True):
            found = self._read.get(id(cell), MISSING)
            if found is not MISSING:
                new.cell_contents = self.value(found)
        return made

    def _module(self, names: dict[str, Any]) -> types.ModuleType:
        """Return a module with what was read in a dictionary, which may be a module's."""
        found: types.ModuleType | None = self._made.get(id(names))
        if found is None:
            found = self._made[id(names)] = types.ModuleType(str(names.get("__name__")))
            mine = vars(found)
            mine.clear()
            mine.update({name: names[name] for name in _READ_BY_PYTHON if name in names})
            mine["__warningregistry__"] = WARNS
            for name, value in self._named.get(id(names), {}).items():
                if value is MISSING:
                    mine.pop(name, None)
                else:
                    mine[name] = self.value(value)
        return found

    def _object(self, owner: Any) -> Snapshot:
        """Return an object with what was read of one, which has no other attributes."""
        found = self._made[id(owner)] = Snapshot()
        for name, value in self._named[id(owner)].items():
            vars(found)[name] = self.value(value)
        return found

    def _builtins(self, function: types.FunctionType) -> dict[str, Any]:
        """Return Python's own functions, of which ``__import__`` gives such modules."""
        original = getattr(function, "__builtins__", vars(builtins))
        names = vars(self._module(original))
        names["__import__"] = lambda *args, **kwargs: self.value(
            original["__import__"](*args, **kwargs)
        )
        return names


def _is_code(value: Any) -> bool:
    """Return whether a value is a function, a type or a module, or what `_meaning` returns."""
    if type(value) is tuple:
        return bool(value) and type(value[0]) is types.CodeType and all(map(is_constant, value[1:]))
    kinds = types.FunctionType | types.ModuleType | types.BuiltinFunctionType | type
    python = value is MISSING or value is vars(builtins)
    return python or isinstance(value, kinds) or found_by_name(value)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value
        return MISSING


def _meaning(function: types.FunctionType) -> tuple[Any, ...]:
    """Return a function's code and defaults: these themselves, as others get their ids later."""
    keywords = (function.__kwdefaults__ or {}).items()
    return function.__code__, function.__defaults__, *chain.from_iterable(keywords)


def _means(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(map(same, now, before))


def _frozen_parts(callee: Any) -> Any:
    """Return what a plan depends on that holds a kernel as it is now; None if it is none."""
    return callee.parts() if isinstance(callee, Freezable) else recorded_form(callee)


def is_little(value: Any, seen: set[int] | None = None) -> bool:
    """Return whether a value is a constant, a module or a function, or holds only such values.

    Parameters
    ----------
    value
        The value.
    seen
        Ids of functions that were asked for already, as they may hold each other.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.safety.outside import is_little
    >>> is_little((1, "one", np.exp)), is_little(np.ones(3)), is_little([1])
    (True, False, False)
    """
    seen = set() if seen is None else seen
    if type(value) is tuple:
        return all(is_little(each, seen) for each in value)
    if isinstance(value, types.FunctionType):
        if id(value) in seen or _is_of_module(value):
            return True
        seen.add(id(value))
        held = (*_meaning(value)[1:], *map(_contents, value.__closure__ or ()), *_names(value),
                *vars(value).values(), *_annotations(value))  # fmt: skip
        return is_little(held, seen)
    if isinstance(value, types.ModuleType | types.CodeType):
        return True
    return value is MISSING or is_constant(value) or found_by_name(value)


def _is_of_module(function: types.FunctionType) -> bool:
    """Return whether a module has a function by its name: what it holds stays in any case.

    Programs and notebooks (`__main__`) define functions again, and the earlier ones end.
    """
    name = function.__module__
    module = None if name == "__main__" else sys.modules.get(name)
    own = vars(module) if isinstance(module, types.ModuleType) else {}
    return own.get(function.__qualname__) is function


def _names(function: types.FunctionType) -> list[Any]:
    """Return what goes with a function as its globals, unless these are a module's."""
    module, names = sys.modules.get(function.__module__), function.__globals__
    if module is not None and vars(module) is names:
        return []
    return [value for name, value in names.items() if name != "__builtins__"]


def _annotations(function: types.FunctionType) -> list[Any]:
    """Return what a function's annotations are but strings, types and generic aliases."""
    plain = str | type | types.GenericAlias | types.UnionType
    return [each for each in inspect.get_annotations(function).values()
            if not isinstance(each, plain)]  # fmt: skip


def frozen(value: Any) -> Any:
    """Return what identifies a value, to be hashed."""
    if value is MISSING:
        return "missing"
    if is_constant(value):
        return type(value), repr(value)
    if type(value) is tuple:
        return tuple, *map(frozen, value)
    if isinstance(value, types.FunctionType | np.ufunc | types.ModuleType | type):
        return value
    if type(value) is types.MethodType:
        return value.__func__, id(value.__self__)
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__, value.__qualname__, id(value)
    return type(value), id(value)
