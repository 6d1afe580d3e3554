"""Imports in functions, of what is loaded already.

An import of a module that is loaded reads `sys.modules`, and nothing else, whatever the chunks
are: Python finds the module there by its full name (``PyImport_ImportModuleLevelObject``), and
the names that are taken from it in its dictionary. That holds if ``__import__`` is Python's own,
if the module is of Python's own type and done with its initialisation, and if it has the names:
only what is missing is looked for by finders or by a module's ``__getattr__``. All that is read
is noted, as a plan depends on it.
"""

from __future__ import annotations

import builtins
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.listed import refuse
from gpusched.graph.safety.outside import Outside

_MODULES = sys.modules
"""What Python's own ``__import__`` reads, even if another dictionary gets that name."""


def imported(outside: Outside, function: types.FunctionType, name: str, level: Any,
             names: Any) -> tuple[types.ModuleType, str]:  # fmt: skip
    """Return the module that an import gives, and its name; `Unsafe` if it does more than read.

    Parameters
    ----------
    outside
        Where what is read is noted.
    function
        Which function imports.
    name, level, names
        Of the instruction: the module, how many packages up it is looked for, and what is taken.
    """
    if level != 0 or type(level) is not int or not isinstance(names, tuple | None):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by its place in a package")
    if not _is_import(outside.builtin(function, "__import__")):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by a function that is not Python's own")
    found = _loaded(outside, name)
    for each in names or ():
        from_module(outside, found, each)
    if not names:  # Then the first of the packages in the name is what an import gives.
        name = name.partition(".")[0]
        found = _loaded(outside, name)
    return found, name


def _is_import(function: Any) -> bool:
    """Return whether a function is Python's ``__import__``, which others may replace."""
    own = isinstance(function, types.BuiltinFunctionType) and function.__self__ is builtins
    return own and function.__name__ == "__import__"


def _loaded(outside: Outside, name: str) -> types.ModuleType:
    try:
        module: Any = outside.entry(_MODULES, name)
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is not loaded yet")
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is a {type(module).__name__}")
    spec = vars(module).get("__spec__")
    plain = spec is None or type(spec) is ModuleSpec
    if not plain or getattr(spec, "_initializing", False):
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is being loaded")
    return module


def from_module(outside: Outside, module: Any, name: str) -> Any:
    """Return what a module holds by a name; `Unsafe` if that is not a module that has it."""
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from what is not a module")
    try:
        return outside.entry(vars(module), name)
    except KeyError:
        missing = f"imports {name} from {module.__name__}, which does not have it"
        refuse(GraphBreak.OWN_CODE, missing)
