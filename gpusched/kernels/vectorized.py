"""numba's ufuncs, made by ``numba.vectorize``: their Python functions become part of kernels.

numba keeps the Python function that a ufunc was made of, and the loops that it has compiled. A
kernel holds the function as `gpusched.kernel` would, for the dtypes of the loop that NumPy would
run. Where a kernel may differ from what numba compiled, the ufunc itself is called:

- numba compiles the values of global variables and closures into a loop. If one has another value
  by now, or numba has not kept the old one (its loop came from a file), they may differ.
- Functions by ``numba.njit`` raise ZeroDivisionError where the ufunc that calls them, and a kernel,
  divide as NumPy does.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import DECLARABLE
from gpusched.kernels.definition import Definition, define, inner_function, outside_of
from gpusched.kernels.elementwise import kind_of
from gpusched.kernels.errors import KernelError
from gpusched.kernels.typed import Dtypes, typed
from gpusched.plan.expression import UnfusibleError
from gpusched.record.bytecode import instructions
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import OfLibrary

_DIVISIONS = frozenset(["/", "//", "%", "/=", "//=", "%="])
_OPTIONS = frozenset(["nopython", "boundscheck", "cache", "inline", "nogil"])
"""Options of numba's after which a function's values are those of its Python code."""
_NUMBERS = (bool, int, float, np.generic)
_LIBRARIES = ("numpy", "numba", "math", "builtins")
_MISSING = object()


class Compiled(OfLibrary):
    """A function that numba has compiled, and that is recorded from its Python code."""

    elementwise = True


@dataclass(frozen=True)
class Vectorized(Compiled):
    """A ufunc of numba's, as it is now.

    Notes
    -----
    Immutable, and equal to any other that computes the same.
    """

    function: Any = field(compare=False)
    """The ufunc."""
    definition: Definition
    """The Python function that it was made of."""
    lasts = True
    loops: tuple[str, ...]
    """The dtypes of the loops that numba has compiled, as `numpy.ufunc.types` has them."""

    @property
    def __name__(self) -> str:
        return self.definition.name

    def __dask_tokenize__(self) -> Any:
        return "numba.vectorize", self.definition.digest, self.loops

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the operation on lazy chunks; return a lazy chunk."""
        if options:
            raise UnfusibleError(GraphBreak.OPTION, f"options {', '.join(options)}")
        operands = tuple(operand(recorder, each) for each in args)
        arguments, results = self._loop(operands)
        try:
            operation = typed(self.definition, arguments, results, only_here=False)
        except KernelError as error:
            raise UnfusibleError(GraphBreak.OWN_CODE, str(error)) from error
        cast = tuple(recorder.cast(o, d) for o, d in zip(operands, arguments, strict=True))
        # A loop of the user's own is always worth a kernel.
        recorder.operations += 1
        node = recorder.apply(operation.operation, cast, operation.results[0])
        return LazyChunk(recorder, node, scalar=not node.shape, fresh=True)

    def _loop(self, operands: tuple[Any, ...]) -> tuple[Dtypes, Dtypes]:
        """Return the dtypes of the loop that NumPy would run: of its operands, and its results."""
        ufunc = self.function.ufunc
        if len(operands) != ufunc.nin:
            raise UnfusibleError(
                GraphBreak.OPTION, f"takes {ufunc.nin} arguments, and not {len(operands)}"
            )
        kinds = [kind_of(each) for each in operands]
        try:
            found = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
        except TypeError as error:
            raise UnfusibleError(
                GraphBreak.DTYPE, "numba has compiled no loop for these dtypes"
            ) from error
        for dtype in found:
            if dtype not in DECLARABLE:
                raise UnfusibleError(GraphBreak.DTYPE, f"dtype {dtype}")
        return tuple(found[: ufunc.nin]), tuple(found[ufunc.nin :])


def owns(function: Any) -> bool:
    """Return whether a function is a ufunc of numba's that a kernel may compute."""
    module = sys.modules.get("numba.np.ufunc.dufunc")
    if module is None or type(function) is not module.DUFunc:
        return False
    from gpusched.adapters.numba import dispatcher_of

    return dispatcher_of(function).targetoptions.get("nopython") is True


def form(function: Any) -> Vectorized | None:
    """Return what records a ufunc of numba's as it is now.

    None where a kernel may differ from what numba has compiled.

    Examples
    --------
    >>> import numba
    >>> from gpusched.kernels.vectorized import form, owns
    >>> @numba.vectorize(["float64(float64)"])
    ... def twice(x):
    ...     return x + x
    >>> form(twice).loops, owns(max)
    (('d->d',), False)
    """
    from gpusched.adapters.numba import dispatcher_of

    dispatcher = dispatcher_of(function)
    if not dispatcher.overloads or not is_compiled_as_it_is(dispatcher):
        return None
    try:
        return Vectorized(function, define(dispatcher.py_func), tuple(function.ufunc.types))
    except KernelError:
        return None


def is_compiled_as_it_is(dispatcher: Any, divides: bool = False) -> bool:
    """Return whether what numba has compiled so far is a function with what it reads now.

    Parameters
    ----------
    dispatcher
        The function.
    divides
        Whether the functions that it calls may divide.
    """
    if not dispatcher.targetoptions.keys() <= _OPTIONS:
        return False
    loops = list(_read_by_loops(dispatcher))
    outside = outside_of(dispatcher.py_func).items()
    return all(_is_same(name, value, loops, divides) for name, value in outside)


def _is_same(name: str, value: Any, loops: list[dict[str, Any]], divides: bool) -> bool:
    """Return whether all loops have read a value that is the same as now."""
    if not all(_is_equal(read.get(name, _MISSING), value) for read in loops):
        return False
    if inner_function(value) is not value:
        compiled = hasattr(value, "targetoptions") and is_compiled_as_it_is(value, divides)
        return compiled and (divides or not _divides(value))
    return isinstance(value, _NUMBERS) or _is_of_library(value)


def _is_of_library(value: Any) -> bool:
    """Return whether a value is a module, a type or a function that does not change.

    What is in the user's own modules, and in arrays, may be another value by now.
    """
    if isinstance(value, types.ModuleType):
        library = value.__name__
    else:
        named = value if isinstance(value, type | types.FunctionType) else type(value)
        library = named.__module__ if callable(value) else ""
    return library.partition(".")[0] in _LIBRARIES


def _divides(dispatcher: Any) -> bool:
    """Return whether a function by ``numba.njit`` may raise an error where a kernel divides."""
    return any(
        instruction.argrepr in _DIVISIONS or instruction.argval == "divmod"
        for instruction in instructions(dispatcher.py_func.__code__)
    )


def _read_by_loops(dispatcher: Any) -> Iterator[dict[str, Any]]:
    """Give what each compiled loop has read from outside, as numba's representation of it says."""
    from numba.core import ir

    for compiled in dispatcher.overloads.values():
        blocks = getattr(compiled.type_annotation, "blocks", {})
        yield {
            statement.value.name: statement.value.value
            for block in blocks.values()
            for statement in block.body
            if isinstance(statement, ir.Assign)
            and isinstance(statement.value, ir.Global | ir.FreeVar)
        }


def _is_equal(before: Any, now: Any) -> bool:
    """Return whether two values are one object, or equal numbers of a type."""
    if isinstance(now, _NUMBERS):
        return type(before) is type(now) and repr(before) == repr(now)
    return before is now
