"""What is wrong with a user's kernel, with the line."""

from __future__ import annotations

import types

from gpusched.backends.complaints import complaint


class KernelError(TypeError):
    """No kernel can be made of a function, or not for such arguments; the message has the line."""


class NotCompiledError(Exception):
    """Nothing compiled for the CPU does what a raw kernel does; the simulator runs it.

    The message has no line.
    """


def location(code: types.CodeType, line: int | None = None) -> str:
    """Return a place in a function as ``file:line``, for messages.

    Examples
    --------
    >>> from gpusched.kernels.errors import location
    >>> location((lambda x: x).__code__, 7).endswith(":7")
    True
    """
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def from_numba(name: str, error: Exception) -> KernelError:
    """Return numba's complaint about a function as an error that starts with the user's line."""
    return KernelError(complaint(f"kernel {name}", error))
