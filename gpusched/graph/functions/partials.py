"""Functions that are made of others, as the calls that they come to, and those that they hold."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import BuiltinMethodType
from typing import Any

import numpy as np
import tlz  # type: ignore[import-untyped]
import toolz  # type: ignore[import-untyped]
from dask.utils import methodcaller, typename

from gpusched.adapters.arrays import broadcast_trick
from gpusched.plan.plan import items
from gpusched.record.catalogue import has, shown_name

CURRIED: Any = tlz.curry | toolz.curry
"""tlz is cytoolz where that is installed; dask and dask-array need not take the same one."""

COMPOSED: Any = tlz.functoolz.Compose | toolz.functoolz.Compose
"""What `tlz.compose` and `toolz.compose` make."""

_PLACEHOLDER = getattr(functools, "Placeholder", None)
"""Since Python 3.14, an argument of a partial application that the call gives."""


def applied(
    function: Any, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return what is called in the end, and with what, by a call of partial applications.

    Objects of classes derived from `functools.partial` are not taken apart: they may do something
    else when they are called.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.functions.partials import applied
    >>> applied(partial(partial(max, 1), 2, key=abs), (3,), {"key": None}) == (
    ...     max, (1, 2, 3), {"key": None})
    True
    """
    args, kwargs = tuple(args), dict(kwargs)
    while type(function) is partial and not _waits(function):
        args = (*function.args, *args)
        kwargs = {**function.keywords, **kwargs}
        function = function.func
    return function, args, kwargs


def bare(function: Any) -> Any:
    """Return what a `functools.partial` calls in the end.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.functions.partials import bare
    >>> bare(partial(partial(max, 1), 2)) is max
    True
    """
    while type(function) is partial:
        function = function.func
    return function


def levels(function: Any) -> Iterator[Any]:
    """Yield a `functools.partial`, and those that it is one of.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.functions.partials import levels
    >>> [each.keywords for each in levels(partial(partial(int, base=2)))]
    [{'base': 2}]
    """
    while type(function) is partial:
        yield function
        function = function.func


def parts(function: Any) -> Iterable[Any]:
    """Yield the functions that partial applications and compositions call in the end.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.functions.partials import parts
    >>> list(parts(partial(np.sum, axis=0))) == [np.sum]
    True
    """
    if isinstance(function, COMPOSED):
        for part in (function.first, *function.funcs):
            yield from parts(part)
    elif isinstance(function, partial | CURRIED):
        for part in (function.func, *filter(callable, function.args)):
            yield from parts(part)
    else:
        yield function


def ufunc_of(method: Any) -> np.ufunc | None:
    """Return the ufunc that a function is a method of, such as `numpy.add.reduce`; None for others.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.partials import ufunc_of
    >>> ufunc_of(np.maximum.accumulate), ufunc_of(np.maximum)
    (<ufunc 'maximum'>, None)
    """
    owner = method.__self__ if type(method) is BuiltinMethodType else None
    return owner if isinstance(owner, np.ufunc) else None


def callables(structure: Any) -> Iterable[Any]:
    """Yield the functions among arguments, which what is called may call."""
    return (each for each in items(structure) if callable(each) and not isinstance(each, type))


def slow_part(function: Any) -> str | None:
    """Return the name of a part of `function` that is not known to be quick, or None.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.partials import slow_part
    >>> slow_part(np.sort), slow_part(np.sum)
    ('sort', None)
    """
    return next((name_of(part) for part in parts(function) if not has(bare(part), "quick")), None)


def name_of(function: Any) -> str:
    """Return a function's name, for people; that of what a wrapper such as a partial calls.

    Of functions that are called one after the other it is the first one's that does more than move
    chunks.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.graph.functions.partials import name_of
    >>> name_of(partial(partial(max, 1), 2))
    'max'
    >>> import toolz
    >>> name_of(toolz.compose(min, partial(sorted, reverse=True)))
    'sorted'
    """
    function = bare(function)
    if type(function) is methodcaller:
        return str(function.method)
    if isinstance(function, COMPOSED):
        called = (function.first, *function.funcs)
        return name_of(next((f for f in called if not has(bare(f), "moves")), function.first))
    function = getattr(function, "func", function)
    return shown_name(function) or str(getattr(function, "__name__", type(function).__name__))


def names_of(functions: Iterable[Any]) -> list[str]:
    """Return the names of functions, for people; without gpusched's own that have none for these.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.functions.partials import names_of
    >>> from gpusched.record.recorded import one_of
    >>> names_of([np.exp, one_of])
    ['exp']
    """
    return [name_of(each) for each in functions if has_name(each)]


def has_name(function: Any) -> bool:
    """Return whether a function has a name for people, as all but some of gpusched's own do."""
    return shown_name(bare(function)) != ""


class Guard:
    """Notices that partial applications were changed after they had been taken apart.

    Parameters
    ----------
    functions
        The partial applications.

    Notes
    -----
    Goes with each task that was made of partial applications, since those that are equal share a
    program. Messages carry them only if one was changed before they were written.
    """

    __slots__ = ("_found", "functions")

    def __init__(self, functions: tuple[Any, ...]) -> None:
        self.functions = functions
        self._found: tuple[Any, ...] | None = tuple(
            (level, level.func, level.args, tuple(level.keywords.items()))
            for function in functions
            for level in levels(function)
        )

    def held(self) -> list[Any]:
        """Return the arguments that the partial applications hold.

        Examples
        --------
        >>> from functools import partial
        >>> from gpusched.graph.functions.partials import Guard
        >>> Guard((partial(int, "11", base=2),)).held()
        ['11', 2]
        """
        parts = [level for function in self.functions for level in levels(function)]
        return [value for part in parts for value in (*part.args, *part.keywords.values())]

    def holds(self) -> bool:
        """Return whether they are what they were.

        Examples
        --------
        >>> from functools import partial
        >>> from gpusched.graph.functions.partials import Guard
        >>> function = partial(int, base=2)
        >>> guard = Guard((function,))
        >>> guard.holds(), function.keywords.update(base=8), guard.holds()
        (True, None, False)
        """
        if self._found is None:
            return False
        for level, func, args, names in self._found:
            keywords = level.keywords
            if level.func is not func or level.args is not args or len(keywords) != len(names):
                return False
            for name, value in names:
                if keywords.get(name, _MISSING) is not value:
                    return False
        return True

    def __reduce__(self) -> Any:
        return (_received, ()) if self.holds() else (_received, (self.functions,))

    def __dask_tokenize__(self) -> Any:
        return "gpusched.Guard", self.holds() or self.functions


_MISSING = object()


def _received(changed: tuple[Any, ...] = ()) -> Guard:
    guard = Guard(changed)
    guard._found = None if changed else ()
    return guard


def _waits(function: partial[Any]) -> bool:
    """Return whether the call gives one of the arguments before the last."""
    return any(map(is_open, function.args))


def is_open(argument: Any) -> bool:
    """Return whether an argument of a partial application is a place that its call is to fill."""
    return _PLACEHOLDER is not None and argument is _PLACEHOLDER


_SHOWN = next(iter(parts(broadcast_trick)))
"""What `ones`, `zeros` and `full` make their chunks with."""


def shows_one_element(function: Any) -> bool:
    """Return whether a function makes chunks of one element, which all others show, as `ones` does.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from gpusched.graph.functions.partials import shows_one_element
    >>> x = da.ones(3)
    >>> shows_one_element(x.dask[x.name, 0].func), shows_one_element(np.ones)
    (True, False)
    """
    return any(part is _SHOWN for part in parts(function))


_MAKERS = np.zeros_like, np.ones_like, np.full_like, np.empty_like
_OPTIONS = frozenset(["dtype", "order", "meta", "fill_value"])
_CUPY = "cupy.ndarray"
_NUMBERS = bool, int, float, complex, np.generic


def is_shown(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return whether a call with a shape surely gives a chunk whose elements are all the same.

    For another shape it gives the same element; that of `empty` may be any.

    Parameters
    ----------
    function, args, options
        What is called, with which arguments, as `applied` returns them.

    Notes
    -----
    dask's function has another one make an array of one element, and shows that everywhere. Other
    functions than NumPy's might make another element each time; of a dtype of subarrays, there
    would be several.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched.graph.functions.partials import applied, is_shown
    >>> x = da.ones(3)
    >>> is_shown(*applied(x.dask[x.name, 0].func, [(3,)], {}))
    True
    >>> is_shown(np.ones, [(3,)], {})
    False
    """
    if type(function) not in (tlz.curry, toolz.curry) or function.func is not _SHOWN:
        return False
    made = len(function.args) == 1 and any(function.args[0] is each for each in _MAKERS)
    if not made or function.keywords or len(args) != 1 or not options.keys() <= _OPTIONS:
        return False
    dtype, meta = options.get("dtype"), options.get("meta", ())
    plain = isinstance(dtype, np.dtype) and dtype.subdtype is None and not dtype.hasobject
    fill = isinstance(options.get("fill_value", 0), _NUMBERS)
    return plain and fill and (type(meta) in (np.ndarray, tuple) or typename(type(meta)) == _CUPY)
