"""What saving and loading refuse."""

from __future__ import annotations


class UnsavableError(TypeError):
    """Something that a file cannot carry; the message says where it is, and the remedy."""


class UntrustedError(PermissionError):
    """A file carries code, which is not loaded unless the caller trusts it."""


class FormatError(ValueError):
    """A file of a format that this version of gpusched does not read."""
