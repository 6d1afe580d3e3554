"""Machine code of numba's as bytes.  The one file that uses its cache by private interfaces."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.environment import Environment
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.registry import cpu_target

from gpusched.fusion.backends import libraries

_OPTIONS = (
    "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT",
)  # fmt: skip
"""Names in numba's configuration that change machine code."""


@lru_cache(maxsize=1)
def processor() -> str:
    """Return a digest of the kind of processor that code is made for, and of numba's options.

    ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` name another kind than this machine's.
    """
    options = [str(getattr(numba.config, name, None)) for name in _OPTIONS]
    parts = [*map(str, cpu_target.target_context.codegen().magic_tuple()), *options]
    return hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class _Code:
    """What is kept of a compiled function: its machine code, and the names in it."""

    symbol: str
    """Of the function; those of its wrappers are made from it."""
    environment: str
    """Of the variable that holds the function's Python objects."""
    defined: list[str]
    """All functions that the machine code defines."""
    instructions: bytes
    """An object file, such as ELF."""

    def packed(self) -> bytes:
        """Return it as bytes: the length of the names, 4 bytes, the names as JSON, the rest."""
        told = json.dumps([self.symbol, self.environment, self.defined]).encode()
        return _LENGTH.pack(len(told)) + told + self.instructions


_LENGTH = struct.Struct("<I")
_SYMBOL = re.compile(r"[\w.$]+", re.ASCII)


class UnknownCodeError(ValueError):
    """Bytes are not what `specialise` returned."""


def _unpacked(code: bytes) -> _Code:
    try:
        (length,) = _LENGTH.unpack_from(code)
        end = _LENGTH.size + length
        told = json.loads(code[_LENGTH.size : end])
    except (struct.error, ValueError) as error:
        raise UnknownCodeError(f"code of a kernel: {error}") from error
    match told:
        case [str(symbol), str(environment), list(defined)] if all(
            isinstance(name, str) and _SYMBOL.fullmatch(name)
            for name in (symbol, environment, *defined)
        ):
            return _Code(symbol, environment, defined, code[end:])
    raise UnknownCodeError(f"code of a kernel: found {told!r:.200}")


def _code_of(compiled: CompileResult) -> _Code | None:
    """Return what is to be kept, or None for what is good in this process only."""
    environments = compiled._find_referenced_environments()
    if compiled.library.has_dynamic_globals or compiled.reload_init:
        return None  # It holds addresses of this process.
    if any(environment.consts for environment in environments):
        return None  # It holds Python objects.
    libraries.forget_instructions(compiled.library)
    _, _, (instructions, _) = compiled.library.serialize_using_object_code()
    described = compiled.fndesc
    defined = libraries.defined(compiled.library)
    return _Code(described.mangled_name, described.env_name, defined, instructions)


def _restored(code: _Code, function: Any, signature: Any, target: Any) -> CompileResult:
    described = PythonFunctionDescriptor(
        native=True,
        modname=function.__module__,
        qualname=function.__qualname__,
        unique_name=function.__qualname__,
        doc="",
        typemap=None,
        restype=signature.return_type,
        calltypes=None,
        args=inspect.getfullargspec(function).args,
        kws=(),
        mangler=lambda *args, **kwargs: code.symbol,
        argtypes=signature.args,
        env_name=code.environment,
    )
    environment = Environment.from_fndesc(described)
    library = "gpusched.kernel", "object", (code.instructions, libraries.declared(code.defined))
    return CompileResult._rebuild(
        target, library, described, environment, signature, False, (), "", (), (environment,)
    )


class _Exchanged(NullCache):
    """Gives a dispatcher code that it need not make, and keeps what it makes."""

    def __init__(self, function: Any, code: bytes | None) -> None:
        self._function = function
        self.code = code

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self.code is None:
            return None
        target_context.refresh()
        return _restored(_unpacked(self.code), self._function, sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        found = _code_of(data)
        if found is not None:
            self.code = found.packed()


def specialise(
    dispatcher: Any, signature: Any, code: bytes | None
) -> tuple[Callable[..., Any], bytes | None]:
    """Return a numba function that takes arguments of one signature only, and its code.

    Parameters
    ----------
    dispatcher
        What `numba.njit` returned.
    signature
        Types of the result and the arguments.
    code
        From an earlier call, perhaps in another process on the same kind of processor; None to
        compile. It is run: it must come from where tasks may come from.

    Raises
    ------
    UnknownCodeError
        If the code is not what this function returns.
    """
    if not hasattr(dispatcher, "overloads"):
        return dispatcher, None  # NUMBA_DISABLE_JIT is set.
    exchanged = dispatcher._cache = _Exchanged(dispatcher.py_func, code)
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher, exchanged.code
