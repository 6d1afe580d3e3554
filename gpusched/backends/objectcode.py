"""Machine code of numba's as bytes."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core.compiler_lock import global_compiler_lock

from gpusched.adapters import numba as numba_code
from gpusched.backends import checks, elf, entries, native, tiles

logger = logging.getLogger(__name__)

_OF_THIS_PROCESS = (".const.picklebuf", ".const.pickledata", "numba.dynamic.globals")
"""How the names of variables begin that have Python's objects in them, or their addresses."""


def object_code(dispatcher: Any, signature: Any, tiled: bool = False) -> bytes | None:
    """Compile a numba function for arguments of one signature, with what calls it.

    Parameters
    ----------
    dispatcher
        What `numba.njit` returned, with a pipeline that keeps its code apart.
    signature
        Types of the result and the arguments.
    tiled
        Whether to add the loop over tiles of rows.

    Returns
    -------
    bytes or None
        An object file for `gpusched.backends.native.load`; None if the machine code needs
        numba, or this process, where it runs.
    """
    name = dispatcher.__name__
    if not elf.SUPPORTED or not native.readable():
        return _kept_here(name, "machine code of this platform is not loaded without numba")
    if assigned():
        return _kept_here(name, f"the program has set numba.config.{assigned()[0]}")
    with global_compiler_lock:
        compiled = numba_code.compiled_apart(dispatcher, signature)
        module = numba_code.final_module(compiled.library)
        if any(v.name.startswith(_OF_THIS_PROCESS) for v in module.global_variables):
            return _kept_here(name, "it may raise an error, or refers to objects of this process")
        _add_entries(module, compiled, tiled)
        found = numba_code.object_of(compiled.library, module)
    unknown = [each for each in elf.parsed(found).imports if not native.is_known(each)]
    return _kept_here(name, f"it calls {unknown[0]}") if unknown else found


def _kept_here(name: str, reason: str) -> bytes | None:
    logger.debug("code of %s is good in this process only: %s", name, reason)
    return None


@lru_cache(maxsize=1)
def _as_configured() -> Any:
    """Return numba's settings as its environment and its file have them."""
    spec = importlib.util.find_spec("numba.core.config")
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT",
             "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES")  # fmt: skip
"""Names in numba's configuration that change machine code."""


def assigned() -> list[str]:
    """Return the settings of numba's that the program has changed, so that no key has them."""
    return [
        name
        for name in _SETTINGS
        if getattr(numba.config, name, None) != getattr(_as_configured(), name, None)
    ]


def _add_entries(module: Any, compiled: Any, tiled: bool) -> None:
    made = numba_code.empty_module(compiled.library, "gpusched.entries")
    entries.add(made, compiled.target_context, compiled.fndesc.llvm_func_name, compiled.signature)
    if tiled:
        tiles.add(made)
    for text in (str(made), checks.text({f.name for f in made.functions})):
        added = llvm.parse_assembly(text)
        added.data_layout, added.triple = module.data_layout, module.triple
        added.verify()
        module.link_in(added)
    module.verify()


def specialise(dispatcher: Any, signature: Any) -> Callable[..., Any]:
    """Return a numba function that takes arguments of one signature only, in this process."""
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    found: Callable[..., Any] = dispatcher
    return found
