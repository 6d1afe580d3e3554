"""How this package's functions take the place of distributed's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask.utils import Dispatch
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gpusched.adapters.distributed import registered


def replace(cls: type, serialize: Callable[..., Any], deserialize: Callable[..., Any]) -> None:
    """Register functions for a type, and for those of its subclasses that have no own ones.

    Parameters
    ----------
    cls
        The type.
    serialize, deserialize
        Of distributed's family ``dask``.
    """
    theirs = dict(registered(dask_serialize)).get(cls)
    # A class that inherits a function was noted with it once it was first sent, so that the type
    # alone would not replace it.
    inheriting = [] if theirs is None else _inheriting(dask_serialize, cls, theirs)
    for each in (cls, *inheriting):
        dask_serialize.register(each, serialize)
        dask_deserialize.register(each, deserialize)


def replace_cuda(cls: type, serialize: Callable[..., Any], deserialize: Callable[..., Any]) -> None:
    """Register functions of distributed's family ``cuda`` for a type."""
    cuda_serialize.register(cls, serialize)
    cuda_deserialize.register(cls, deserialize)


def _inheriting(dispatch: Dispatch, cls: type, function: Any) -> list[type]:
    noted = registered(dispatch)
    return [each for each, known in noted if known is function and issubclass(each, cls)]
