"""A number in dask's configuration that is chosen when dask asks for it."""

from __future__ import annotations

from typing import Any

import dask

from gpusched import config
from gpusched.chunking.chunk_bytes import Choice, choose

KEY = "array.chunk-size"
_DASK = 128 << 20

_chosen: list[Choice] = []


def chosen() -> Choice | None:
    """Return what ``chunks="auto"`` last meant in this process; None if gpusched never chose.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.ones((4_000, 4_000), chunks="auto")
    >>> from gpusched.chunking import chosen
    >>> x.blocks[0, 0].nbytes <= chosen().nbytes
    True
    """
    return _chosen[-1] if _chosen else None


class ChunkSize(int):
    """The bytes of a chunk, chosen again whenever somebody computes with it.

    dask reads its configuration when it makes an array: which workers there are then, and whether
    they have GPUs, is not known when fusion is switched on.

    Notes
    -----
    Thread-safe. What goes around arithmetic, as `json` does, sees dask's own default.
    """

    def __new__(cls) -> ChunkSize:
        """Make a number that has dask's own default until it is asked for."""
        return super().__new__(cls, _DASK)

    def now(self) -> int:
        """Return the bytes that suit what computes now."""
        found = choose()
        _chosen[:] = [found]
        return found.nbytes

    def __reduce__(self) -> Any:
        return ChunkSize, ()


def _forwarded(name: str) -> Any:
    def method(self: ChunkSize, *others: Any) -> Any:
        return getattr(self.now(), name)(*others)

    method.__name__ = name
    return method


_ARITHMETIC = """
__lt__ __le__ __eq__ __ne__ __gt__ __ge__ __hash__ __bool__ __int__ __float__ __index__ __add__
__radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__
__mod__ __rmod__ __str__ __repr__ __format__
"""
for _name in _ARITHMETIC.split():
    setattr(ChunkSize, _name, _forwarded(_name))


def for_fusion(on: bool) -> Any:
    """Return what dask's configuration should have for the size of chunks.

    Parameters
    ----------
    on
        Whether fusion is switched on. What the user has set stays in any case.

    Examples
    --------
    >>> import dask
    >>> from gpusched.chunking.size import ChunkSize, for_fusion
    >>> type(for_fusion(True)) is ChunkSize
    True
    >>> with dask.config.set({"array.chunk-size": "128MiB"}):
    ...     for_fusion(True)
    '128MiB'
    """
    default = _default()
    found = dask.config.get(KEY, default)
    ours = type(found) is ChunkSize
    if on and config.get("chunks.automatic"):
        # The very object, as somebody may have set what happens to equal the default.
        return ChunkSize() if ours or found is default else found
    return default if ours else found


def _default() -> Any:
    """Return the object that dask's own defaults have."""
    for each in reversed(dask.config.defaults):
        if "chunk-size" in each.get("array", {}):
            return each["array"]["chunk-size"]
    return None
