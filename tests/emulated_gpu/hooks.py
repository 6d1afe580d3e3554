"""Changes modules right after they are imported, before anybody has looked at them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and has them changed afterwards."""

    def __init__(self, changes: dict[str, str]) -> None:
        self._changes = changes
        self._looking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual specification with another loader, or None for other modules."""
        if name not in self._changes or getattr(self._looking, "now", False):
            return None
        self._looking.now = True
        try:
            found = importlib.util.find_spec(name)
        finally:
            self._looking.now = False
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader, self._changes[name])
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, usual: Any, change: str) -> None:
        self._usual = usual
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._usual.exec_module(module)
        importlib.import_module(self._change, __package__).install(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


def install(changes: dict[str, str]) -> None:
    """Have each module passed to `install` of the module here that it is mapped to.

    Raises
    ------
    RuntimeError
        A module is imported already: others may have taken from it what is to be exchanged.
    """
    early = sorted(set(changes) & set(sys.modules))
    if early:
        raise RuntimeError(f"the emulated GPU must be turned on before {early} are imported")
    sys.meta_path.insert(0, AfterImport({name: f".{change}" for name, change in changes.items()}))
