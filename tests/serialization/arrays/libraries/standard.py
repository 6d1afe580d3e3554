"""Arrays with DLPack, made of others' by ``from_dlpack`` as the array API standard has it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


class Array:
    """An array that may have a unit, which its bytes do not report."""

    def __init__(self, values: np.ndarray, unit: str = "") -> None:
        self.values = values
        self.unit = unit
        self.shape = values.shape

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return sys.modules[__name__]

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


class Pickled(Array):
    """One that says itself how to pickle it."""

    def __reduce__(self) -> Any:
        return Pickled, (self.values, self.unit)


class Lost(Array):
    """One that its library does not make of others' arrays."""


class Refusing(Array):
    """One that lends nothing."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("no")


def from_dlpack(array: Any) -> Array:
    """Return an array over another's memory."""
    return Array(np.from_dlpack(array))
