"""Protects known libraries as they are imported, and those that are imported already."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from typing import Any

from gpusched import forks
from gpusched.threadsafe import replacing
from gpusched.threadsafe.replacing import Replaced
from gpusched.threadsafe.unsafe_libraries import OFF, Case, cases

logger = logging.getLogger(__name__)


@dataclass
class _Finder:
    """An import hook: finds what others find, and has it protected once it has been run."""

    watched: dict[str, list[Case]]
    """Cases by the modules that they change."""
    replaced: list[Replaced] = field(default_factory=list)
    joined: list[Any] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if name not in self.watched:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            # An instance's attribute: it is asked for like the method, and all else stays.
            loader: Any = spec.loader
            loader.exec_module = self._after(loader.exec_module)
        return spec

    def _after(self, run: Callable[[types.ModuleType], None]) -> Callable[[types.ModuleType], None]:
        def exec_module(module: types.ModuleType) -> None:
            run(module)
            self.protect(module)

        return exec_module

    def protect(self, module: types.ModuleType) -> None:
        """Apply the cases of a module that has just been run."""
        for case in self.watched.get(module.__name__, ()):
            if case.joins:
                self._join(case)
                continue
            replaced, missing = replacing.replace(case, module)
            self.replaced += replaced
            self.missing += missing
            self.done.add(case.library)
            if missing:
                logger.warning(
                    "%s has no %s: it is not called under %s", case.library, missing, case.policy
                )

    def _join(self, case: Case) -> None:
        guard = replacing.join(case)
        if guard is None:
            self.missing.append(case.joins)
            logger.warning("%s has no lock %s for %s", case.library, case.joins, case.policy)
            return
        self.joined.append(guard)
        self.done.add(case.library)


_installing = forks.lock()
_finder: _Finder | None = None


def protect() -> bool:
    """Put known libraries under their policies in this process, now and as they are imported.

    Workers do this as they start, unless the setting ``gpusched.threadsafe.enabled`` is off.

    Returns
    -------
    bool
        False if it was done already.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> threadsafe.protect()
    True
    >>> threadsafe.unprotect()
    """
    global _finder
    with _installing:
        if _finder is not None:
            return False
        watched: dict[str, list[Case]] = {}
        for case in cases():
            if case.policy != OFF:
                for name in {target.partition(":")[0] for target in (*case.targets, case.joins)}:
                    watched.setdefault(name, []).append(case)
        watched.pop("", None)
        _finder = _Finder(watched)
        sys.meta_path.insert(0, _finder)
        for name in watched:
            module = sys.modules.get(name)
            if module is not None:
                _finder.protect(module)
    return True


def unprotect() -> None:
    """Undo `protect`. What others have imported from a library stays under its policy."""
    global _finder
    with _installing:
        if _finder is None:
            return
        sys.meta_path.remove(_finder)
        for guard in _finder.joined:
            guard.joined = None
        replacing.put_back(_finder.replaced)
        _finder = None


@dataclass(frozen=True)
class Protection:
    """What is done about one library, as `gpusched info` shows it."""

    library: str
    policy: str
    origin: str
    """"table" or "settings"."""
    applied: bool
    """Whether it has been, in this process."""
    why: str
    evidence: tuple[str, ...]


def protections() -> list[Protection]:
    """Return what is done about each known library.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> {each.library: each.policy for each in threadsafe.protections()}["sqlite3"]
    'off'
    """
    from gpusched.threadsafe.unsafe_libraries import CASES

    table = {case.library: case.policy for case in CASES}
    done = set() if _finder is None else _finder.done
    return [
        Protection(
            case.library, case.policy,
            "table" if table.get(case.library) == case.policy else "settings",
            case.library in done, case.why, case.evidence,
        )
        for case in cases()
    ]  # fmt: skip
