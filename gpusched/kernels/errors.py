"""What is wrong with a user's kernel, with the line."""

from __future__ import annotations

import linecache
import types


class KernelError(TypeError):
    """No kernel can be made of a function, or not for such arguments; the message has the line."""


def location(code: types.CodeType, line: int | None = None) -> str:
    """Return a place in a function as ``file:line``, for messages.

    Examples
    --------
    >>> from gpusched.kernels.errors import location
    >>> location((lambda x: x).__code__, 7).endswith(":7")
    True
    """
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def source_line(filename: str, line: int) -> str:
    """Return a line of a file without its indentation; empty if the file cannot be found."""
    return linecache.getline(filename, line).strip()


def from_numba(name: str, error: Exception) -> KernelError:
    """Return numba's complaint about a function as an error that starts with the user's line."""
    place = getattr(error, "loc", None)
    message = _message(str(error))
    if place is None:
        return KernelError(f"kernel {name} cannot be compiled: {message}")
    line = source_line(place.filename, place.line)
    quoted = f"\n    {line}" if line else ""
    return KernelError(
        f"{place.filename}:{place.line}: kernel {name} cannot be compiled: {message}{quoted}"
    )


def _message(text: str) -> str:
    """Return the first lines of numba's message that say what is wrong."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("Failed in", "File "))]
    return "; ".join(said[:2]) or text
