"""Imports within functions, of modules that are loaded.

Such an import reads `sys.modules`, and nothing else, whatever the chunks are: Python finds the
module there by its full name (``PyImport_ImportModuleLevelObject``), and the names that are taken
from it in its dictionary. That holds if ``__import__`` is Python's own, if the module is of
Python's own type and done with its initialisation, and if it has the names: only what is missing
is looked for by finders or by a module's ``__getattr__``. All that is read is noted, as a plan
depends on it.
"""

from __future__ import annotations

import builtins
import sys
import types
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.calls import described, refuse
from gpusched.graph.safety.instructions import After, Instruction, State, push, rule
from gpusched.graph.safety.kinds import Known

if TYPE_CHECKING:
    from gpusched.graph.safety.interpreter import Interpreter

_MODULES = sys.modules
"""What Python's own ``__import__`` reads, even if another dictionary gets that name."""


@rule("IMPORT_NAME")
def _import_name(self: Interpreter, state: State, instruction: Instruction) -> After:
    level, names = (kind.value if isinstance(kind, Known) else None for kind in state.stack[-2:])
    if type(level) is not int or not isinstance(names, tuple | None):
        refuse(GraphBreak.OWN_CODE, "imports a module")
    name = str(instruction.argval)
    if not _is_own(self.outside.builtin(self.function, "__import__")):
        refuse(GraphBreak.OWN_CODE, f"imports {name} by a function that is not Python's own")
    full = _absolute(self, name, level)
    found = _loaded(self, full)
    for each in names or ():
        _taken(self, Known(found, full), each)
    if not names:  # Then the first of the packages in the name is what an import gives.
        full = full.partition(".")[0]
        found = _loaded(self, full)
    return push(state, Known(found, full), pops=2)


@rule("IMPORT_FROM")
def _import_from(self: Interpreter, state: State, instruction: Instruction) -> After:
    return push(state, _taken(self, state.stack[-1], str(instruction.argval)))


def _is_own(function: Any) -> bool:
    """Return whether a function is Python's ``__import__``, which others may replace."""
    own = isinstance(function, types.BuiltinFunctionType) and function.__self__ is builtins
    return own and function.__name__ == "__import__"


def _absolute(self: Interpreter, name: str, level: int) -> str:
    """Return the full name of a module, of which some may be that of the function's package."""
    if level == 0:
        return name
    names = self.function.__globals__
    try:
        package = self.outside.entry(names, "__package__")
        spec = self.outside.entry(names, "__spec__")
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name} into no package")
    # Python warns where these differ.
    if type(spec) is not ModuleSpec or type(package) is not str or spec.parent != package:
        refuse(GraphBreak.OWN_CODE, f"imports {name} into no package")
    parts = package.split(".")
    if not package or level > len(parts):
        refuse(GraphBreak.OWN_CODE, f"imports {name} from beyond its package")
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def _loaded(self: Interpreter, name: str) -> types.ModuleType:
    """Return a module; `Unsafe` if an import of it is more than to read it."""
    try:
        module = self.outside.entry(_MODULES, name)
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is not loaded yet")
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is a {type(module).__name__}")
    spec = vars(module).get("__spec__")
    plain = spec is None or type(spec) is ModuleSpec
    if not plain or getattr(spec, "_initializing", False):
        refuse(GraphBreak.OWN_CODE, f"imports {name}, which is being loaded")
    return module


def _taken(self: Interpreter, owner: Any, name: str) -> Known:
    """Return what a module holds by a name."""
    module = owner.value if isinstance(owner, Known) else None
    if type(module) is not types.ModuleType:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from {described(owner)}")
    try:
        return Known(self.outside.entry(vars(module), name), f"{owner.name}.{name}")
    except KeyError:
        refuse(GraphBreak.OWN_CODE, f"imports {name} from {owner.name}, which does not have it")
