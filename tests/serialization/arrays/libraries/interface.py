"""Arrays in GPU memory with ``__cuda_array_interface__`` alone, made of others' by ``asarray``."""

from __future__ import annotations

import sys
from typing import Any


class Array:
    """Keeps whoever owns the memory."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return sys.modules[__name__]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.__cuda_array_interface__["shape"])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.owner.__cuda_array_interface__


def asarray(value: Any) -> Array:
    """Return an array over another's memory."""
    return Array(value)
