"""A definition for arguments of certain dtypes: an operation that expressions can hold."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import DECLARABLE
from gpusched.emit.operations import DEFINED, Operation
from gpusched.kernels import mathematics
from gpusched.kernels.definition import FACTS, Definition, Value
from gpusched.kernels.errors import KernelError, from_numba, location
from gpusched.kernels.narrowing import narrow_floats, narrow_integers, narrowed

Dtypes = tuple[np.dtype, ...]


@dataclass(frozen=True)
class Variant:
    """A definition for arguments of certain dtypes.

    Notes
    -----
    Thread-safe: numba compiles under a lock of its own.
    """

    definition: Definition
    arguments: Dtypes
    only_here: bool = True
    """Whether nothing but a kernel computes it on arrays. What numba's ufuncs do, too, has its own
    numbers in the width that numba gives them, and not in that of the arguments."""

    @property
    def narrow(self) -> bool:
        """Whether the function's own floating-point constants are float32."""
        return self.only_here and is_narrow(self.arguments)

    @property
    def for_python(self) -> Callable[..., Any]:
        """The function that the reference backend calls."""
        return self.definition.plain()

    @cached_property
    def for_cpu(self) -> Any:
        """The function that numba compiles into kernels for the CPU."""
        from gpusched.vectormath.bits import device

        return device(self.bound(self._code, device, mathematics.for_cpu()))

    @cached_property
    def for_cuda(self) -> Any:
        """The function that numba-cuda compiles into kernels for GPUs."""
        from gpusched.backends.cuda.compiler import device_function

        return device_function(self.bound(self._code, device_function, mathematics.for_cuda()))

    @cached_property
    def _code(self) -> types.CodeType:
        """The function's code, with constants of the width that the arguments have."""
        code = self.definition.function.__code__
        if not self.narrow:
            return code
        from gpusched.vectormath.bits import device

        def bind(changed: types.CodeType) -> Any:
            return self.bound(changed, device, mathematics.for_cpu())

        return narrow_integers(narrow_floats(code), bind, self.signature)

    @property
    def signature(self) -> tuple[Any, ...]:
        """The arguments as numba's types."""
        import numba

        return tuple(numba.from_dtype(dtype) for dtype in self.arguments)

    def bound(
        self, code: types.CodeType, compile_: Callable[..., Any], table: dict[int, Any]
    ) -> Any:
        """Return what ``compile_`` makes its functions of: the function, run by other code."""

        def target(value: Value) -> Value:
            if isinstance(value, Definition):
                inner = value.function.__code__
                return compile_(value.bind(target, narrow_floats(inner) if self.narrow else inner))
            if self.narrow and type(value) is float:
                return narrowed(value)
            return mathematics.replacement(table, value)

        return self.definition.bind(target, code)


@lru_cache(maxsize=1024)
def variant(definition: Definition, arguments: Dtypes, only_here: bool = True) -> Variant:
    """Return a variant, the same one each time."""
    return Variant(definition, arguments, only_here)


def is_narrow(dtypes: Dtypes) -> bool:
    """Return whether float32 is the only floating dtype there is."""
    return {d for d in dtypes if d.kind == "f"} == {np.dtype(np.float32)}


@dataclass(frozen=True)
class Typed:
    """An operation made of a definition."""

    operation: str
    """Its name among `gpusched.emit.operations.DEFINED`."""
    arguments: Dtypes
    """What it takes."""
    results: Dtypes
    """What it returns, in order."""
    single: bool
    """Whether it returns a number rather than a tuple."""
    identity: Any = None
    """What changes nothing when joined, for an operation of reductions."""


@lru_cache(maxsize=4096)
def typed(
    definition: Definition, arguments: Dtypes, declared: Dtypes | None = None,
    identity: Any = None, only_here: bool = True,
) -> Typed:  # fmt: skip
    """Return a definition as an operation on such arguments.

    Parameters
    ----------
    definition
        The function.
    arguments
        Dtypes that the function is called with.
    declared
        Dtypes of the results; those that numba finds if None. Numba is asked all the same, but of
        what its ufuncs do, which it has compiled for these already.
    identity
        For a function that joins the values of a reduction.
    only_here
        As `Variant` has it; what is not is declared.

    Raises
    ------
    KernelError
        If numba cannot compile it for these, with the line.
    """
    chosen = variant(definition, arguments, only_here)
    found, single = _results(chosen) if only_here else (declared or (), True)
    if declared is not None and len(declared) != len(found):
        raise KernelError(
            f"{location(definition.function.__code__)}: kernel {definition.name} returns "
            f"{len(found)} values, but {len(declared)} dtypes are declared"
        )
    results = declared or found
    key = repr((definition.digest, chosen.narrow, [d.str for d in arguments],
                [d.str for d in results], repr(identity), only_here))  # fmt: skip
    digest = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
    # Part of file names, and of symbols in PTX.
    plain = definition.name.isidentifier() and definition.name.isascii()
    word = definition.name[:40] if plain else "kernel"
    name = f"{word}_{digest}"
    operands = ", ".join(f"{{{k}}}" for k in range(len(arguments)))
    call = f"{name}({operands})" if single else "{0}"
    templates = tuple(
        dict.fromkeys("biuf", _converted(call if single else f"{call}[{k}]", result))
        for k, result in enumerate(results)
    )
    # Heavy, since nothing is known of what is in it.
    DEFINED[name] = Operation(name, templates, heavy=True, function=chosen, identity=identity)
    return Typed(name, arguments, results, single, identity)


def _converted(text: str, dtype: np.dtype) -> str:
    return f"{text} != 0" if dtype.kind == "b" else f"{{T}}({text})"


def _results(chosen: Variant) -> tuple[Dtypes, bool]:
    """Return the same as `_inferred`, which is found once for all equal definitions."""
    facts = FACTS.setdefault(chosen.definition.digest, {})
    if chosen.arguments not in facts:
        facts[chosen.arguments] = _inferred(chosen)
    found: tuple[Dtypes, bool] = facts[chosen.arguments]
    return found


def _inferred(chosen: Variant) -> tuple[Dtypes, bool]:
    """Return the dtypes of what a function returns, and whether that is one number."""
    import numba
    from numba import types as numba_types

    definition = chosen.definition
    dispatcher = chosen.for_cpu
    if not hasattr(dispatcher, "overloads"):
        raise KernelError("kernels are compiled by numba, which NUMBA_DISABLE_JIT switches off")
    signature = chosen.signature
    try:
        dispatcher.get_call_template(signature, {})
    except numba.core.errors.NumbaError as error:
        raise from_numba(definition.name, error) from error
    found = dispatcher.overloads[signature].signature.return_type
    single = not isinstance(found, numba_types.BaseTuple)
    items = [found] if single else list(found)
    return tuple(_dtype(definition, item, chosen.narrow) for item in items), single


def _dtype(definition: Definition, found: Any, narrow: bool) -> np.dtype:
    from numba import types as numba_types
    from numba.np.numpy_support import as_dtype

    if isinstance(found, numba_types.Number | numba_types.Boolean):
        dtype = as_dtype(numba_types.unliteral(found))
        if dtype in DECLARABLE:
            # Integers in the function are 64 bits wide, and make numba widen float32.
            return np.dtype(np.float32) if narrow and dtype == np.float64 else dtype
    raise KernelError(
        f"{location(definition.function.__code__)}: kernel {definition.name} returns "
        f"{_in_words(found)}; a kernel returns a number, or a tuple of numbers, of the same kind "
        "on every path"
    )


def _in_words(found: Any) -> str:
    """Return what a function returns instead of a number, as its author would say it."""
    from numba import types as numba_types

    if isinstance(found, numba_types.Optional):
        return f"{found.type} on some paths and nothing on others"
    kinds = {numba_types.NoneType: "nothing", numba_types.UnicodeType: "a string",
             numba_types.Literal: "a string", numba_types.Array: "an array"}  # fmt: skip
    return next((word for kind, word in kinds.items() if isinstance(found, kind)), str(found))
