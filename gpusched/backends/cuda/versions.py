"""The versions whose private interfaces compile and launch kernels, and those installed here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from gpusched import installing

TESTED = {"numba-cuda": "0.30.4", "cuda-core": "1.2.2"}
"""What the extras of pyproject.toml install: exactly these."""

_BESIDE = ("numba", "llvmlite", "cuda-bindings", "numpy")
"""What else may be why an interface is another one."""


class CompilerVersionError(Exception):
    """A private interface of numba-cuda or cuda-core is not what it is in the tested versions."""


def installed(name: str) -> str:
    """Return the version of a package that is installed here, or "none".

    Examples
    --------
    >>> from gpusched.backends.cuda.versions import installed
    >>> installed("no-such-package")
    'none'
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


@contextmanager
def explained() -> Iterator[None]:
    """Raise `CompilerVersionError`, with all versions, where an interface is missing or differs.

    What a kernel itself has wrong is another error: numba-cuda's own, or a `TypeError`, which is
    taken for a changed interface where the versions are not the tested ones.
    """
    try:
        yield
    except (AttributeError, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and all(installed(n) == v for n, v in TESTED.items()):
            raise
        raise CompilerVersionError(_message(error)) from error


def _message(error: Exception) -> str:
    tested = ", ".join(f"{name} {version}" for name, version in TESTED.items())
    here = ", ".join(f"{name} {installed(name)}" for name in (*TESTED, *_BESIDE))
    return (
        f"kernels for GPUs are compiled through private interfaces of {tested}; here are {here}, "
        f"where one of them fails: {type(error).__name__}: {error}. Install the tested versions "
        f"with {installing.command('cuda13')} (or its extra cuda12 for a driver of that version)"
    )
