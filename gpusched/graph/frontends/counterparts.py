"""Other front ends' chunk functions -> those of dask.array that do the same, which others know.

They have copies of dask's chunk functions. A copy is exchanged for the original if its code
and all that it refers to are the same. The few that were written again are named in the adapter,
with a digest of both texts: they are no longer exchanged once one of the two changes.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import hashlib
import importlib
import sys
import textwrap
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from dask.utils import Dispatch

from gpusched.adapters.tasks import DataNode, GraphNode, List, Task, Tuple
from gpusched.emit.parsing import parse, source_of
from gpusched.graph.frontends.adapter import INSIDE, REWRITTEN, TOGETHER
from gpusched.graph.functions.partials import COMPOSED, CURRIED
from gpusched.record.bytecode import codes, instructions, looked_up

_FRONT_ENDS = "dask_array.", "dask.array._array_expr."
"""What the names of other front ends' functions begin with."""


def counterpart(function: FunctionType) -> Any:
    """Return dask's function that does the same as another front end's; itself if there is none."""
    if _in_module(function.__module__, function.__name__) is function and _name(
        function
    ).startswith(_FRONT_ENDS):
        return _exchanged(function)
    return _rewritten().get(function.__code__, function)


@functools.lru_cache(maxsize=1024)
def _exchanged(function: FunctionType) -> Any:
    group = next((names for names in TOGETHER if _name(function) in names), ())
    apart = any(_original(_named(name)) is None for name in group)
    return function if apart else _original(function) or function


def _original(function: FunctionType) -> Any:
    """Return dask's function of the same name that does the same, or another one by the table."""
    rewritten = _rewritten()
    if function in rewritten:
        return rewritten[function]
    equal = list(rewritten.items())
    modules = [n for n in sys.modules if n.startswith("dask.array.")]
    named = [_in_module(n, function.__name__) for n in modules if not n.startswith(_FRONT_ENDS)]
    return next((each for each in named if alike(function, each, equal)), None)


def _rewritten() -> dict[Any, Callable[..., Any]]:
    """Return what stands in for functions, and for the code of those that are inside others."""
    return _table() if "dask_array" in sys.modules else {}


@functools.lru_cache(maxsize=1)
def _table() -> dict[Any, Callable[..., Any]]:
    return {
        theirs: ours
        for name, (other, digest) in REWRITTEN.items()
        if digest_of(_named(name.partition(INSIDE)[0]), ours := _named(other)) == digest
        and (theirs := _named(name))
    }


def _name(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__name__}"


def _in_module(module: str, name: str) -> Any:
    """Return what a loaded module has by a name, without toolz's curry."""
    return _without_curry(getattr(sys.modules.get(module), "__dict__", {}).get(name))


def _without_curry(value: Any) -> Any:
    return value.func if isinstance(value, CURRIED) else value


def _named(name: str) -> Any:
    """Return what has a name; the code of a function that is made inside another one."""
    outside, _, inside = name.partition(INSIDE)
    module, _, attribute = outside.rpartition(".")
    found = getattr(_module(module), attribute, None)
    if not inside:
        return found
    parts = codes(found.__code__) if isinstance(found, FunctionType) else ()
    return next((code for code in parts if code.co_name == inside), None)


def _module(name: str) -> Any:
    """Return a module; None where it has moved, so that its functions are not exchanged."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def digest_of(first: Any, second: Any) -> str:
    """Return what is the same only while the texts of two functions are."""
    try:
        text = source_of(first) + source_of(second)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Exchange:
    """Exchanges functions in the tasks of one graph.

    Parameters
    ----------
    counterpart
        Returns what stands in for a function, or the function; None to leave all as they are.

    Notes
    -----
    Belongs to one thread. Functions made of others are made once for all tasks.
    """

    def __init__(self, counterpart: Callable[[FunctionType], Any] | None) -> None:
        self._counterpart = counterpart
        self._made: dict[int, tuple[Any, Any]] = {}

    def value(self, value: Any) -> Any:
        """Return a function, a task, or a structure of them with its functions exchanged."""
        if self._counterpart is None:
            return value
        if isinstance(value, FunctionType):
            return self._counterpart(value)
        if type(value) is DataNode:
            found = self.value(value.value) if callable(value.value) else value.value
            return value if found is value.value else DataNode(value.key, found)
        if isinstance(value, List | Tuple):
            items = self.value(value.args)
            return value if items is value.args else type(value)(*items)
        if isinstance(value, GraphNode):
            return self._task(value) if type(value) is Task else value
        if isinstance(value, functools.partial | CURRIED | COMPOSED):
            entry = self._made.get(id(value))
            if entry is None:
                # The function is kept with what it became, so that its id stays its own.
                entry = self._made[id(value)] = value, self._of_others(value)
            return entry[1]
        if type(value) in (list, tuple):
            items = [self.value(item) for item in value]
            same = all(a is b for a, b in zip(items, value, strict=True))
            return value if same else type(value)(items)
        if type(value) is dict:
            found = {key: self.value(item) for key, item in value.items()}
            return value if all(found[key] is item for key, item in value.items()) else found
        return value

    def _of_others(self, function: Any) -> Any:
        """Exchange functions in a `functools.partial`, or in what toolz composes or curries."""
        if isinstance(function, functools.partial | CURRIED):
            func, args = self.value(function.func), self.value(function.args)
            keywords = self.value(function.keywords)
            if func is function.func and args is function.args and keywords is function.keywords:
                return function
            made: Any = type(function)(func, *args, **keywords)
            if hasattr(function, "__name__"):
                made.__name__ = function.__name__
            return made
        parts = (function.first, *function.funcs)
        found = self.value(parts)
        return function if found is parts else type(function)(tuple(reversed(found)))

    def _task(self, task: Task) -> Task:
        func, args, kwargs = self.value(task.func), self.value(task.args), self.value(task.kwargs)
        if func is task.func and args is task.args and kwargs is task.kwargs:
            return task
        return Task(task.key, func, *args, _data_producer=task.data_producer, **kwargs)


_CHUNK = np.ndarray
"""The type of chunks for which functions looked up by type are compared."""

_MISSING = object()


def alike(first: Any, second: Any, equal: Iterable[tuple[Any, Any]] = ()) -> bool:
    """Return whether two functions have the same code, and mean the same by the names in it.

    Names of modules, of other functions, and of functions looked up by the type of a chunk are
    followed; the latter for NumPy's. False where the comparison finds no answer.

    Parameters
    ----------
    first, second
        The functions.
    equal
        Pairs of functions that are known to do the same, whatever their code.

    Examples
    --------
    >>> from gpusched.graph.frontends.counterparts import alike
    >>> def double(x):
    ...     return x * 2
    >>> def twice(x):
    ...     "Return twice the value."
    ...     return x * 2
    >>> alike(double, twice), alike(double, abs)
    (True, False)
    """
    return _Comparison(equal).values(first, second, frozenset())


class _Comparison:
    """One comparison; pairs that are being compared count as the same when they are met again."""

    def __init__(self, equal: Iterable[tuple[Any, Any]]) -> None:
        self._met = {(id(first), id(second)) for first, second in equal}

    def values(self, first: Any, second: Any, names: frozenset[str]) -> bool:
        """Compare what a name means; `names` are those that the code may look up in a module."""
        if first is second:
            return True
        if type(first) is not type(second):
            return False
        pair = id(first), id(second)
        if pair in self._met:
            return True
        self._met.add(pair)
        if isinstance(first, FunctionType):
            return self._functions(first, second)
        if isinstance(first, ModuleType):
            return self._modules(first, second, names)
        if isinstance(first, Dispatch):
            return self._dispatches(first, second)
        if isinstance(first, tuple):
            return self._tuples(first, second, names)
        if isinstance(first, dict):
            return list(first) == list(second) and self._tuples(
                tuple(first.values()), tuple(second.values()), names
            )
        plain = isinstance(first, str | bytes | int | float | complex)
        return plain and repr(first) == repr(second)

    def _tuples(self, first: tuple[Any, ...], second: tuple[Any, ...],
                names: frozenset[str]) -> bool:  # fmt: skip
        return len(first) == len(second) and all(
            self.values(a, b, names) for a, b in zip(first, second, strict=True)
        )

    def _functions(self, first: FunctionType, second: FunctionType) -> bool:
        code = first.__code__
        if code.co_names != second.__code__.co_names:
            return False
        # Where lines end decides, since Python 3.12, how a loop's jumps are compiled.
        if _plain_code(first) != _plain_code(second) and not _same_source(first, second):
            return False
        names = frozenset(name for part in codes(code) for name in part.co_names)
        given = [
            (first.__defaults__, second.__defaults__),
            (first.__kwdefaults__, second.__kwdefaults__),
            (_cells(first), _cells(second)),
            (getattr(first, "__wrapped__", None), getattr(second, "__wrapped__", None)),
        ]
        given += [(_meaning(first, name), _meaning(second, name)) for name in looked_up(code)]
        return all(self.values(a, b, names) for a, b in given)

    def _modules(self, first: ModuleType, second: ModuleType, names: frozenset[str]) -> bool:
        return all(
            self.values(getattr(first, name, _MISSING), getattr(second, name, _MISSING), names)
            for name in names
        )

    def _dispatches(self, first: Dispatch, second: Dispatch) -> bool:
        return self.values(first.dispatch(_CHUNK), second.dispatch(_CHUNK), frozenset())


def _same_source(first: FunctionType, second: FunctionType) -> bool:
    """Return whether two functions are written the same but for lines and documentation."""
    trees = []
    for function in (first, second):
        try:
            tree: Any = parse(textwrap.dedent(source_of(function))).body[0]
        except (OSError, SyntaxError):
            return False
        if not isinstance(tree, ast.FunctionDef):
            return False
        tree.body = tree.body[ast.get_docstring(tree) is not None :]
        trees.append(ast.dump(tree))
    return trees[0] == trees[1]


def _plain_code(function: FunctionType) -> CodeType:
    """Return a function's code without its documentation, and without where it stands."""
    code, documentation = function.__code__, function.__doc__
    consts = code.co_consts
    if consts and documentation is not None and consts[0] == documentation:
        # The code itself may use the same text.
        loads = [each.arg for each in instructions(code) if each.opcode in dis.hasconst]
        code = code if 0 in loads else code.replace(co_consts=(None, *consts[1:]))
    return _without_place(code)


def _without_place(code: CodeType) -> CodeType:
    consts = [_without_place(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_consts=tuple(consts), co_filename="", co_firstlineno=1,
                        co_linetable=b"", co_name="", co_qualname="")  # fmt: skip


def _cells(function: FunctionType) -> tuple[Any, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _meaning(function: FunctionType, name: str) -> Any:
    """Return what a name means outside a function."""
    found = function.__globals__.get(name, _MISSING)
    return getattr(builtins, name, _MISSING) if found is _MISSING else found
