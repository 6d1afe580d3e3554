"""Computations in files: saved with what they need, loaded with no access to what made them."""

from gpusched.saving.computation import SavedFunction
from gpusched.saving.errors import FormatError, UnsavableError, UntrustedError
from gpusched.saving.reading import describe, load
from gpusched.saving.writing import save

__all__ = [
    "FormatError",
    "SavedFunction",
    "UnsavableError",
    "UntrustedError",
    "describe",
    "load",
    "save",
]
