"""Machine code of numba's as bytes.  The one file that uses its cache by private interfaces."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

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


class _Exchanged(NullCache):
    """Gives a dispatcher code that it need not make, and keeps what it makes."""

    def __init__(self, code: bytes | None) -> None:
        self.code = code

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self.code is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(self.code))

    def save_overload(self, sig: Any, data: Any) -> None:
        # Addresses in this process are no use to another.
        if not data.library.has_dynamic_globals:
            libraries.forget_instructions(data.library)
            self.code = dumps(data._reduce())


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
        compile. It is unpickled, and run: it must come from where tasks may come from.
    """
    if not hasattr(dispatcher, "overloads"):
        return dispatcher, None  # NUMBA_DISABLE_JIT is set.
    exchanged = dispatcher._cache = _Exchanged(code)
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher, exchanged.code
