"""A raw kernel compiled for arguments of certain types, and run."""

from __future__ import annotations

import ast
import copy
import types as python_types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError

from gpusched.backends.cuda.errors import DivergenceError, GuardError
from gpusched.dataclass import dataclass
from gpusched.emit.parsing import register
from gpusched.kernels import mathematics
from gpusched.kernels.definition import Definition, Value
from gpusched.kernels.errors import NotCompiledError
from gpusched.kernels.host import generate
from gpusched.kernels.host.builtins import FUNCTIONS, device
from gpusched.kernels.host.cuda_names import CudaNames, numpy_dtype
from gpusched.kernels.host.lowering import CONTEXT, Rewritten, rewrite
from gpusched.store.statistics import updating

Triple = tuple[int, int, int]
_INTEGERS = types.Array(types.int64, 1, "C")


@dataclass(frozen=True)
class HostKernel:
    """A raw kernel as machine code for the CPU.

    Notes
    -----
    Thread-safe. One core runs the threads of a launch, one after another; launches of a kernel
    with atomics wait for each other, since those are plain operations here.
    """

    definition: Definition
    rewritten: Rewritten
    call: Callable[..., int]
    source: str
    """What was compiled."""
    kept: tuple[np.dtype, ...]
    """Of what each thread keeps over barriers."""
    masks: int
    """Arrays that say which threads take part."""
    meetings: tuple[int, ...]
    """Lines of barriers in loops and branches."""

    def run(self, blocks: Triple, threads: Triple, arguments: tuple[Any, ...]) -> None:
        """Run a launch; arrays among the arguments are changed.

        Raises
        ------
        GuardError
            For an index outside of an array.
        DivergenceError
            If not all threads of a block reach a barrier.
        """
        count = threads[0] * threads[1] * threads[2]
        memory = [np.empty(m.shape if m.shared else (count, *m.shape), m.dtype)
                  for m in self.rewritten.memory]  # fmt: skip
        kept = [np.zeros(count, dtype) for dtype in self.kept]
        masks = [np.zeros(count, np.int64) for _ in range(self.masks)]
        fault = np.zeros(3, np.int64)
        try:
            missed = self.call(*arguments, *memory, *kept, *blocks, *threads, fault, *masks)
        except IndexError as error:
            raise GuardError(self._outside(*map(int, fault))) from error
        if missed:
            raise DivergenceError(
                f"{self._file}:{self.meetings[missed - 1]}: threads of one block do not meet at "
                "this barrier; simulate the kernel to see which"
            )

    @property
    def _file(self) -> str:
        return self.definition.function.__code__.co_filename

    def _outside(self, number: int, index: int, length: int) -> str:
        site = self.rewritten.sites[number]
        return (
            f"{self._file}:{site.line}: a thread uses {site.array} at {index} along axis "
            f"{site.axis}, whose length is {length}; a guard is missing; simulate the kernel to "
            f"see which thread"
        )


def compile_kernel(
    definition: Definition, tree: ast.FunctionDef, signature: tuple[Any, ...]
) -> HostKernel:
    """Compile a kernel.

    Parameters
    ----------
    definition, tree
        The same function.
    signature
        The arguments as numba's types.

    Raises
    ------
    NotCompiledError
        If nothing compiled does what the kernel does.
    """
    found = rewrite(copy.deepcopy(tree), CudaNames(definition))
    made = generate.source(found)
    memory = [types.Array(numba.from_dtype(m.dtype), len(m.shape) + (not m.shared), "C")
              for m in found.memory]  # fmt: skip
    kept = _kept(definition, found, made, (*signature, *memory))
    stores = [types.Array(numba.from_dtype(dtype), 1, "C") for dtype in kept]
    masks = [_INTEGERS] * made.masks
    every = (*signature, *memory, *stores, *[types.int64] * 6, _INTEGERS, *masks)
    name = f"kernel{found.suffix}"
    scope = _scope(definition, made.text, name, found.suffix)
    # The GIL keeps two launches with atomics apart.
    options = {"error_model": "numpy", "nogil": not found.atomics, "_nrt": False}
    dispatcher = numba.njit(**options)(scope[name])
    _compile(dispatcher, every)
    with updating() as counters:
        counters.compilations += 1
    meetings = tuple(made.meetings)
    return HostKernel(definition, found, dispatcher, made.text, kept, made.masks, meetings)


def _kept(
    definition: Definition, found: Rewritten, made: generate.Source, given: tuple[Any, ...]
) -> tuple[np.dtype, ...]:
    """Return the dtypes of what threads keep over barriers, as numba infers them."""
    if not made.kept:
        return (np.dtype(np.int64),) * made.counters
    name = f"whole{found.suffix}"
    dispatcher = _scope(definition, generate.whole(found), name, found.suffix)[name]
    signature = (*given, _INTEGERS, *[types.int64] * (len(CONTEXT) + 1))
    _compile(dispatcher, signature)
    inferred: dict[str, set[Any]] = {}
    for variable, type_ in dispatcher.overloads[signature].type_annotation.typemap.items():
        inferred.setdefault(variable.partition(".")[0], set()).add(types.unliteral(type_))
    dtypes = [_dtype(variable, inferred[variable]) for variable in made.kept]
    return (*dtypes, *[np.dtype(np.int64)] * made.counters)


def _dtype(variable: str, found: set[Any]) -> np.dtype:
    if len(found) > 1:
        several = " and ".join(sorted(map(str, found)))
        raise NotCompiledError(f"{variable}, kept over a barrier, is {several}: convert it")
    (only,) = found
    if not isinstance(only, types.Number | types.Boolean):
        raise NotCompiledError(f"{variable}, kept over a barrier, is {only} and no number")
    return numpy_dtype(only)


def _compile(dispatcher: Any, signature: tuple[Any, ...]) -> None:
    try:
        dispatcher.compile(signature)
    except (NumbaError, NotImplementedError) as error:
        raise NotCompiledError(f"numba cannot compile it: {_said(error)}") from error


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Failed in")), "")


def _scope(definition: Definition, text: str, last: str, suffix: str) -> dict[str, Any]:
    """Return the names of a source, run; all its functions but `kernel` are compiled."""
    filename = f"<gpusched {definition.name} on the CPU {definition.digest} {last}>"
    register(filename, text)
    table = mathematics.for_cpu()

    def target(value: Value) -> Value:
        if isinstance(value, Definition):
            return device(value.bind(target))
        return mathematics.replacement(table, value)

    scope: dict[str, Any] = {name: target(value) for name, value in definition.outside.items()}
    scope |= {name + suffix: function for name, function in FUNCTIONS.items()}
    scope |= {"__name__": __name__, f"nan{suffix}": np.nan}
    exec(compile(text, filename, "exec"), scope)
    for name, value in list(scope.items()):
        here = isinstance(value, python_types.FunctionType) and name != f"kernel{suffix}"
        if here and value.__code__.co_filename == filename:
            value.__qualname__ = f"{definition.name}_{name}_{definition.digest}"
            scope[name] = device(value)
    return scope


def types_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments as numba's types.

    Raises
    ------
    NotCompiledError
        For something else than NumPy arrays and numbers.
    """
    return tuple(map(_type_of, arguments))


def _type_of(value: Any) -> Any:
    plain = type(value) is np.ndarray or isinstance(value, np.generic | bool | int | float)
    try:
        if plain:
            return numba.typeof(value)
    except (ValueError, NumbaError) as error:
        raise NotCompiledError(f"an argument is {value.dtype}: {error}") from error
    raise NotCompiledError(f"an argument is a {type(value).__module__}.{type(value).__name__}")
