"""Which releases of its dependencies gpusched was tested with, and what is installed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from gpusched.dataclass import dataclass
from gpusched.installing import DISTRIBUTION


@dataclass(frozen=True)
class Outside:
    """A dependency whose installed release is outside of the bounds."""

    name: str
    """Of the distribution."""
    installed: str
    bounds: str
    """As in pyproject.toml, such as ``<2026.9,>=2026.7.1``."""
    newer: bool
    """Whether it is above the bounds, not below them."""

    def __str__(self) -> str:
        kind = "newer" if self.newer else "older"
        return f"{self.name} {self.installed} is {kind} than the tested releases ({self.bounds})"

    @property
    def remedy(self) -> str:
        """The command that installs a tested release."""
        return f"pip install '{self.name}{self.bounds}'"


def outside(requirements: list[str] | None = None) -> Iterator[Outside]:
    """Yield each installed dependency that is outside of its bounds.

    Parameters
    ----------
    requirements : list of str, optional
        Requirements as pip writes them; by default those of this installation of gpusched. Those
        of extras are left out.

    Examples
    --------
    >>> from gpusched.adapters.tested_releases import outside
    >>> [(each.name, each.newer) for each in outside(["numpy>=1", "dask<2000"])]
    [('dask', True)]
    """
    from packaging.requirements import Requirement
    from packaging.version import Version

    if requirements is None:
        requirements = _own_requirements()
    for requirement in map(Requirement, requirements):
        installed = _installed(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if installed and not requirement.specifier.contains(installed, prereleases=True):
            least = (s.version for s in requirement.specifier if s.operator == ">=")
            newer = all(Version(each) <= Version(installed) for each in least)
            yield Outside(requirement.name, installed, str(requirement.specifier), newer)


def moved(error: ImportError) -> ImportError:
    """Return what to raise where a library has no longer a name that an adapter imports.

    Parameters
    ----------
    error : ImportError
        Python's own, whose module names the library.
    """
    found = "; ".join(f"{each}: {each.remedy}" for each in outside())
    return ImportError(
        f"{error.msg}. gpusched uses this name; "
        + (found or "no dependency is outside of its tested releases: please report this"),
        name=error.name,
        path=error.path,
    )


def _own_requirements() -> list[str]:
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        # Imported from a clone that is not installed.
        return []


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
