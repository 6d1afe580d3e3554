"""What every library's file makes of a model: something to call on chunks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Packed:
    """A model as it travels."""

    kind: str
    """The file here that reads it, such as ``torch``."""
    form: str
    """Which of the library's formats it is in."""
    name: str
    """For people."""
    content: Any = b""
    """Its bytes; empty for a file that every worker reads by itself."""
    path: str = ""
    """Of that file or folder."""
    size: int = -1
    """Bytes of the file, as it was seen when `apply` was called; -1 if it was not."""
    versions: tuple[tuple[str, str], ...] = ()
    """Packages that must have the same version where the model is read, as (name, version)."""


class Model(Protocol):
    """A model that is loaded.

    Notes
    -----
    Used by several threads at once, as far as `policy` allows.
    """

    rows: int | None
    """Rows that each call must have; None for any number."""
    piece: int | None
    """Bytes of rows from which a call is quicker in pieces, which stay in the cache with all that
    is computed in between; None where that is not known."""
    on_gpu: bool
    """Whether it computes on this process's GPU, and takes CuPy's arrays there as they are."""
    policy: str
    """The library in the registry of `gpusched.threadsafe` whose policy holds; empty for none."""

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return the dtype that an input must have instead of `dtype`; empty if it may have it."""

    def run(
        self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool, owned: bool
    ) -> Any:
        """Return what the model gives, as its library has it.

        Raises `WritesInputError` if the model has written to arrays of others, where that can be
        determined.

        Parameters
        ----------
        method
            Of the model, instead of its call.
        arrays
            NumPy or CuPy arrays.
        kwargs
            Further arguments.
        cast
            Whether arrays are converted to what `mismatch` says.
        owned
            Whether nobody else has the arrays, so that the model may write to them.
        """

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a result as an array where `like` is: in NumPy's or in CuPy's.

        Parameters
        ----------
        dtype
            What it will be converted to, for dtypes that NumPy does not have.
        """

    def sharing(self, tasks: int) -> AbstractContextManager[None]:
        """Return what leaves other tasks, of so many, their share of the cores while one runs."""

    def afterwards(self) -> Callable[[], None]:
        """Return what gives back the rest, once nothing refers to the model any more."""


class Plain:
    """The rules of a model that has none of its own."""

    rows: int | None = None
    piece: int | None = None
    on_gpu = False
    policy = ""

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return nothing: every dtype will do."""
        return ""

    def sharing(self, tasks: int) -> AbstractContextManager[None]:
        """Return what does nothing: the library's threads are as it has them."""
        return nullcontext()

    def afterwards(self) -> Callable[[], None]:
        """Return what does nothing: everything goes with the last reference."""
        return _nothing


def _nothing() -> None:
    pass
