"""Bytes that tasks surely need, whatever dask believes of their chunks and whatever compiles."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from dask.array import chunk as dask_chunk
from dask.array.core import (
    chunks_from_arrays,
    concatenate3,
    concatenate_shaped,
    finalize,
    getter,
    getter_nofancy,
)
from dask.core import flatten, reshapelist

from gpusched.adapters.arrays import apply_random, apply_random_func
from gpusched.adapters.tasks import Task
from gpusched.dataclass import dataclass
from gpusched.graph.functions.known import is_elementwise_call
from gpusched.graph.functions.partials import applied, shows_one_element
from gpusched.graph.subgraph import at_once, copied, evaluate, resolved
from gpusched.plan.plan import items
from gpusched.record.catalogue import has
from gpusched.record.views import is_basic

_KINDS = "biufcmM"
_NUMBERS = (bool, int, float, complex, np.generic)
_VECTORS = ("choice", "dirichlet", "multinomial", "multivariate")
"""What distributions whose results have other shapes than `size` begin with."""


class _Maker:
    """A call that has made an array: it has memory of its own, which no other array shows."""


@dataclass(frozen=True)
class _Array:
    """A plain array that a call returns, or a task."""

    dtype: np.dtype
    shape: tuple[int, ...]
    maker: _Maker | None = None
    """What has made the memory of all its elements; None if that is an input's, or not known."""
    exists: bool = False
    """Whether that memory is there as a whole, whether or not there are kernels."""
    beside: int = 0
    """Bytes of arrays that are there while it is made."""

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def shown_by(self, array: np.ndarray) -> _Array:
        """Return a view of it, which `like` has been cut to."""
        return replace(self, shape=array.shape, beside=0)

    def like(self) -> np.ndarray:
        """Return an array of this shape that takes no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


class Certain:
    """What the tasks of a graph surely need.

    Parameters
    ----------
    tasks
        dask's nodes by key, put together as they are to run, before they are rewritten.

    Notes
    -----
    Belongs to one thread. What dask says of chunks counts for nothing here, since users say it,
    too (``map_blocks(f, chunks=..., dtype=...)``). Shapes and dtypes are followed from arguments of
    the calls that make chunks, through those functions only of which `_result` knows what they
    return. All others, the user's first of all, return something of no known size, as does whatever
    reads that; so do graphs of other computations, as of `persist`.

    The bound is `least`. It is one of the peak of a worker's process, as its operating system
    reports it, on a machine that does not swap, since each part of it is memory that is written,
    and there at one moment of the task:

    1. Inputs that count are results of other tasks that show memory which one call in these tasks
       has made. Different tasks have made different memory, since no other task sees what is made
       within one, but for its result; names for a result (`Alias`) count once. Workers hold all
       inputs until the task has ended, except those that they lend to a task that joins chunks:
       of those, it reads one whole array at a time, the largest among others.
    2. Besides those, the most that counts of any single call is there when it returns:

       - what dask draws, or counts (`arange`), is an array, since no kernel has these functions;
       - a result of the last call is the task's, and so an array as well, if it is not an input or
         a view of one: elementwise functions and joins write new arrays, in a kernel, on tiles, or
         as a whole; of a view of such, its own elements count;
       - what a call of these reads itself of what is drawn or counted in the same task is an
         argument of it, or a kernel's input, until it returns. No kernel writes to its inputs.

       Nothing between others counts: kernels and tiles leave none of it.
    """

    def __init__(self, tasks: Mapping[Any, Any]) -> None:
        self._tasks = tasks
        self._results: dict[Any, _Array | None] = {}

    def least(self, node: Task) -> int:
        """Return the bytes that a task surely needs, of its inputs, results and what is between.

        Examples
        --------
        >>> import dask.array as da
        >>> from gpusched.graph.passes.certain import Certain
        >>> x = da.random.default_rng(0).random(1000, chunks=1000) + 1
        >>> tasks = dict(x.dask)
        >>> sorted(Certain(tasks).least(node) for node in tasks.values())
        [8000, 16000]
        """
        lent = {resolved(self._tasks, key) for key in copied(node)}
        inputs = {resolved(self._tasks, key) for key in node.dependencies}
        return at_once(inputs, lent, self._held) + self._evaluated(node)[1]

    def _held(self, key: Any) -> int:
        found = self._result(key)
        return found.nbytes if found is not None and found.maker is not None else 0

    def _result(self, key: Any) -> _Array | None:
        """Return what a task returns; None if that is not known."""
        waiting = [resolved(self._tasks, key)]
        while waiting:
            first = waiting[-1]
            node = self._tasks.get(first)
            reads = {resolved(self._tasks, each) for each in getattr(node, "dependencies", ())}
            unknown = reads - self._results.keys()
            if first not in self._results and unknown:
                waiting += unknown
                continue
            waiting.pop()
            if first not in self._results:
                self._results[first] = self._evaluated(node)[0]
        return self._results[resolved(self._tasks, key)]

    def _evaluated(self, node: Any) -> tuple[_Array | None, int]:
        """Return what a task returns, and the most bytes that one of its calls has surely made.

        What was there beside these is counted, too.
        """
        inputs: dict[Any, Any] = {}
        for key in getattr(node, "dependencies", ()):
            found = self._result(key)
            # Its memory is not the task's.
            inputs[key] = found and _Array(found.dtype, found.shape)
        made = [0]

        def call(task: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> Any:
            found = _called(task, args, kwargs)
            if found is not None and found.maker is not None and found.exists:
                made.append(found.beside + found.nbytes)
            return found

        result = _literal(evaluate(node, inputs, call))
        if not isinstance(result, _Array):
            return None, max(made)
        if result.maker is not None:
            made.append(result.beside + result.nbytes)
        return result, max(made)


def _called(task: Task, args: list[Any], kwargs: dict[str, Any]) -> _Array | None:
    """Return what a call returns; None for what is not known."""
    args = _literal(args)
    named = {name: _literal(each) for name, each in kwargs.items()}
    found = _result(*applied(task.func, args, named))
    if found is None or found.maker is None or any(found.maker is a.maker for a in _arrays(args)):
        return found
    return replace(found, beside=_held_by(args))


def _literal(value: Any) -> Any:
    """Return what is known of an array that a graph holds, and of those in lists."""
    if type(value) in (list, tuple):
        return type(value)(map(_literal, value))
    if not isinstance(value, np.ndarray):
        return value
    plain = type(value) is np.ndarray and value.dtype.kind in _KINDS
    return _Array(value.dtype, value.shape) if plain else None


def _arrays(values: Any) -> Iterator[_Array]:
    """Yield the arrays among arguments."""
    return (each for each in items(values) if isinstance(each, _Array))


def _held_by(args: Collection[Any]) -> int:
    """Return the bytes of arrays among arguments that are there, those of views once."""
    found: dict[int, int] = {}
    for each in _arrays(args):
        if each.exists:
            found[id(each.maker)] = max(each.nbytes, found.get(id(each.maker), 0))
    return sum(found.values())


def _result(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what a call returns, if that surely is a plain array of known shape and dtype."""
    if shows_one_element(function):
        return _shown(args, kwargs)
    for functions, result in _FUNCTIONS:
        if any(function is each for each in functions):
            return result(function, args, kwargs)
    return _elementwise(function, args) if _is_elementwise(function, args, kwargs) else None


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return one element that all others show."""
    shape, dtype = kwargs.get("shape", args[0] if args else None), kwargs.get("dtype")
    if dtype is None or not _is_shape(shape) or np.dtype(dtype).kind not in _KINDS:
        return None
    return _Array(np.dtype(dtype), shape)


def _is_shape(value: Any) -> TypeGuard[tuple[int, ...]]:
    return type(value) is tuple and all(isinstance(n, int | np.integer) for n in value)


def _drawn(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what dask draws, with the dtype that NumPy draws in."""
    if len(args) != 6 or kwargs:
        return None
    kind, name, _, size, given, named = args
    is_numpys = isinstance(kind, type) and kind.__module__.startswith("numpy.random")
    if not is_numpys or not _is_shape(size) or type(name) is not str or type(named) is not dict:
        return None
    plain = all(_is_plain(each) for each in (*(given or ()), *named.values()))
    if not plain or name.startswith(_VECTORS):
        return None
    seed = np.random.SeedSequence(0) if function is apply_random_func else 0
    try:
        found = function(kind, name, seed, (0,) * len(size), given, named)
    except (TypeError, ValueError, ArithmeticError):
        return None  # As the task will say.
    return _Array(found.dtype, size, _Maker(), exists=True)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (*_NUMBERS, str, type, np.dtype))


def _counted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what `arange` counts, where that is as long as dask says."""
    like = kwargs.pop("like", None)
    if len(args) != 5 or kwargs or not (like is None or type(like) is np.ndarray):
        return None
    start, stop, step, length, dtype = args
    if not all(isinstance(n, int | float | np.number) for n in args[:4]):
        return None
    if dtype is None or np.dtype(dtype).kind not in "biuf" or stop - start != length * step:
        return None
    return _Array(np.dtype(dtype), (int(length),), _Maker(), exists=True)


def _astype(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what has another dtype: a new array, or maybe the same one."""
    array, dtype = [*args, kwargs.pop("astype_dtype", None), None][:2]
    if not isinstance(array, _Array) or dtype is None or not kwargs.keys() <= {"copy", "casting"}:
        return None
    found = np.dtype(dtype)
    if found.kind not in _KINDS:
        return None
    return array if found == array.dtype else _Array(found, array.shape, _Maker())


def _view(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what an index of slices and numbers shows of an array, or other axes."""
    array, *rest = args or (None,)
    if not isinstance(array, _Array) or not all(map(is_basic, (*rest, *kwargs.values()))):
        return None
    # dask's own function would copy small pieces.
    show = np.transpose if function is np.transpose else operator.getitem
    try:
        shown = show(array.like(), *rest, **kwargs)
    except (IndexError, TypeError, ValueError):
        return None  # As the task will say.
    return array.shown_by(shown) if isinstance(shown, np.ndarray) else None


def _read(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return what is read of an array in files, of unknown memory."""
    if len(args) < 2 or kwargs:
        return None
    source, index = args[:2]
    if type(source).__module__.partition(".")[0] not in ("zarr", "h5py"):
        return None
    dtype = np.dtype(source.dtype)
    whole = _Array(dtype, tuple(source.shape)) if dtype.kind in _KINDS else None
    return _view(operator.getitem, (whole, index), {})


def _joined(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Array | None:
    """Return a new array with the elements of those that are joined."""
    if kwargs or not args or not isinstance(args[0], list | tuple):
        return None
    arrays = args[0]
    each = list(flatten(arrays, container=(list, tuple)))
    if len(each) < 2 or not all(isinstance(n, _Array) and n.shape for n in each):
        return None
    if function is concatenate_shaped:
        arrays = reshapelist(args[1], arrays)
    shape = tuple(sum(lengths) for lengths in chunks_from_arrays(_like(arrays)))
    if len(shape) != len(each[0].shape) or math.prod(shape) != sum(
        math.prod(n.shape) for n in each
    ):
        return None
    return _Array(each[0].dtype, shape, _Maker())


def _like(arrays: Any) -> Any:
    return arrays.like() if isinstance(arrays, _Array) else [_like(each) for each in arrays]


_FUNCTIONS: tuple[tuple[tuple[Any, ...], Any], ...] = (
    ((apply_random, apply_random_func), _drawn),
    ((dask_chunk.arange,), _counted),
    ((dask_chunk.astype,), _astype),
    ((np.transpose, operator.getitem, dask_chunk.getitem), _view),
    ((getter, getter_nofancy), _read),
    ((concatenate3, concatenate_shaped, finalize), _joined),
)
"""What is known of functions that are not elementwise."""


def _is_elementwise(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call of NumPy's, or an operator, writes a new array of numbers."""
    if not is_elementwise_call(function, len(args)) or has(function, "view"):
        return False
    number = (*_NUMBERS, type(None)) if function is np.clip else _NUMBERS
    plain = all(isinstance(each, (_Array, *number)) for each in args)
    return plain and not kwargs and any(each.shape for each in _arrays(args))


def _elementwise(function: Any, args: tuple[Any, ...]) -> _Array | None:
    """Return a new array of the shape that the operands have together."""
    empty = [np.zeros((0,), each.dtype) if isinstance(each, _Array) else each for each in args]
    try:
        shape = np.broadcast_shapes(*(each.shape for each in _arrays(args)))
        found = function(*empty)
    except (TypeError, ValueError, ArithmeticError):
        return None  # As the task will say.
    if type(found) is not np.ndarray or found.dtype.kind not in _KINDS:
        return None
    return _Array(found.dtype, shape, _Maker())
