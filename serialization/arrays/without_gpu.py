"""GPU arrays that arrive where there is no GPU, or no library for them: refused, or host arrays."""

from __future__ import annotations

from importlib.util import find_spec

from gpusched import config


class WithoutGpuError(RuntimeError):
    """A GPU array was sent to a process that cannot hold it."""


def allow_host(kind: str, why: str, instead: str = "a NumPy array") -> None:
    """Return if host arrays are wanted instead of GPU arrays.

    Parameters
    ----------
    kind
        The type that was sent.
    why
        It cannot be made here.
    instead
        What it becomes where that is wanted.

    Raises
    ------
    WithoutGpuError
        If ``gpusched.serialization.without-gpu`` is ``error``.
    ValueError
        If that setting is neither ``error`` nor ``host``.

    Examples
    --------
    >>> import dask
    >>> from gpusched.serialization.arrays.without_gpu import allow_host
    >>> with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
    ...     allow_host("cupy.ndarray", "CuPy is not installed")
    """
    wanted = config.get("serialization.without-gpu")
    if wanted not in ("error", "host"):
        raise ValueError(
            f"gpusched.serialization.without-gpu is {wanted!r}: expected error or host"
        )
    if wanted == "error":
        raise WithoutGpuError(
            f"a {kind} has arrived where {why}. Compute with it on a GPU worker, or set "
            f"gpusched.serialization.without-gpu to host to receive {instead}"
        )


def is_installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it.

    Examples
    --------
    >>> from gpusched.serialization.arrays.without_gpu import is_installed
    >>> is_installed("numpy"), is_installed("no_such_library")
    (True, False)
    """
    return find_spec(library) is not None


def require(library: str, what: str) -> None:
    """Refuse a value where its library is missing.

    Raises
    ------
    ModuleNotFoundError
        If the library cannot be imported here.

    Examples
    --------
    >>> from gpusched.serialization.arrays.without_gpu import require
    >>> require("no_such_library", "a tensor")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: a tensor has arrived where no_such_library is not installed
    """
    if not is_installed(library):
        raise ModuleNotFoundError(
            f"{what} has arrived where {library} is not installed", name=library
        )
