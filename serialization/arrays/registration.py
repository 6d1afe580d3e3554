"""How arrays reach the files of their libraries, and messages their readers, within distributed.

A library's file is imported, and takes the place of distributed's functions, once the library is
used. Messages name their reader, so that no type is unpickled, and a type whose library is missing
here gives an error that says so, or a host array. Messages that others wrote are read as before.

A process that has imported distributed alone finds `Message` where it looks for the type, imports
this package with it, and so reads the message; without gpusched it says that there is none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dask.sizeof import sizeof
from dask.utils import Dispatch
from distributed.protocol import pickle
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.cuda import cuda_dumps as their_cuda_dumps
from distributed.protocol.cuda import cuda_loads as their_cuda_loads
from distributed.protocol.serialize import (
    dask_deserialize,
    dask_serialize,
    register_serialization_family,
)
from distributed.protocol.serialize import dask_dumps as their_dask_dumps
from distributed.protocol.serialize import dask_loads as their_dask_loads

from gpusched.adapters.distributed import registered
from gpusched.serialization import clients
from gpusched.serialization.arrays import messages
from gpusched.serialization.frames import CorruptFrameError

_FILES = {
    "numpy": ("numpy",),
    "cupy": ("cupy", "numba_cuda"),
    "gpusched": ("placed",),
    "cupyx": ("cupy", "numba_cuda"),
    "numba": ("numba_cuda",),
    "torch": ("torch",),
    "torchvision": ("torch",),
    "jax": ("jax",),
    "jaxlib": ("jax",),
    "tensorflow": ("tensorflow",),
}
"""Libraries, and the files of this folder that register their types. distributed's own file for
CuPy also registers numba's arrays, so ours for these must follow."""

READERS = {
    "numpy": ("numpy", ""),
    "masked": ("numpy", "_masked"),
    "cupy": ("cupy", ""),
    "cupyx_sparse": ("cupy", "_sparse"),
    "placed": ("placed", ""),
    "numba_cuda": ("numba_cuda", ""),
    "torch": ("torch", ""),
    "jax": ("jax", ""),
    "tensorflow": ("tensorflow", ""),
    "dlpack": ("dlpack", ""),
    "results": ("sealed_results", ""),
}
"""Readers of messages by name: the file of this folder, and how its functions' names end."""

_PROOF = {"numba": "numba.cuda"}
"""The module that has been imported if a library's arrays exist; else the library itself."""

_SIZED = ("torch", "jax", "jaxlib", "tensorflow")
"""Libraries whose arrays dask cannot size."""


def register() -> None:
    """Take the place of distributed's own functions; a second time changes nothing.

    Both sides of a connection need it: what one sends, distributed's own functions do not read.
    What distributed's own functions have sent is read. No library is imported.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed.protocol import deserialize, serialize
    >>> import gpusched.serialization
    >>> gpusched.serialization.register()
    >>> header, frames = serialize(np.arange(6.0).reshape(2, 3).T[::-1])
    >>> deserialize(header, frames).strides
    (-8, 24)
    """
    _register_families()
    clients.register()
    for library in _FILES:
        function = _registration(library)
        for dispatch in (dask_serialize, dask_deserialize, cuda_serialize, cuda_deserialize):
            dispatch.register_lazy(library, function)
        if library in _SIZED:
            sizeof.register_lazy(library, function)
        # A type that was sent or sized before is noted, and asks no more who else knows it.
        if _PROOF.get(library, library) in sys.modules:
            function()


def _registration(library: str) -> Callable[[], None]:
    def function() -> None:
        for name in _FILES[library]:
            _file(name).register()

    return function


class Message:
    """Stands for the type in messages of this package, whatever is in them."""


_TYPE = pickle.dumps(Message)


def _register_families() -> None:
    register_serialization_family("dask", dask_dumps, dask_loads)
    register_serialization_family("cuda", cuda_dumps, cuda_loads)
    dask_deserialize.register(Message, _read)
    cuda_deserialize.register(Message, _read_cuda)


def dask_dumps(value: Any, context: dict[str, Any] | None = None) -> Any:
    """Serialize a value by its type's function, or as an array that others can read."""
    try:
        header, frames = their_dask_dumps(value, context)
    except NotImplementedError:
        foreign = _foreign(value)
        if foreign is None:
            raise
        told, frames = foreign.serialize(value, context)
        header = {"sub-header": told, "serializer": "dask"}
    told = header["sub-header"]
    if messages.is_ours(told):
        header["type-serialized"] = _TYPE
        # distributed looks for it here.
        if "compression" in told:
            header["compression"] = told.pop("compression")
    return header, frames


def dask_loads(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the value."""
    told = header.get("sub-header")
    return _read(told, frames) if messages.is_ours(told) else their_dask_loads(header, frames)


def cuda_dumps(value: Any) -> Any:
    """Serialize a value on the GPU by its type's function, or as an array others can read."""
    try:
        header, frames = their_cuda_dumps(value)
    except NotImplementedError:
        foreign = _foreign(value)
        if foreign is None:
            raise
        told, frames = foreign.cuda_serialize(value)
        uncompressed = (False,) * len(frames)
        header = {"sub-header": told, "serializer": "cuda", "compression": uncompressed}
    if messages.is_ours(header["sub-header"]):
        header["type-serialized"] = _TYPE
    return header, frames


def cuda_loads(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the value, on the GPU."""
    told = header.get("sub-header")
    return _read_cuda(told, frames) if messages.is_ours(told) else their_cuda_loads(header, frames)


def _read(header: Any, frames: list[Any]) -> Any:
    return _reader(header, "deserialize")(header, frames)


def _read_cuda(header: Any, frames: list[Any]) -> Any:
    return _reader(header, "cuda_deserialize")(header, frames)


def _reader(header: Any, function: str) -> Callable[[Any, list[Any]], Any]:
    name = header.get(messages.KEY)
    if not isinstance(name, str) or name not in READERS:
        raise CorruptFrameError(f"reader: expected one of {list(READERS)}, found {name!r:.100}")
    file, suffix = READERS[name]
    found = getattr(_file(file), function + suffix, None)
    if found is None:
        raise CorruptFrameError(f"reader: {name} reads nothing on a GPU")
    return found


def _file(name: str) -> ModuleType:
    return importlib.import_module(f"gpusched.serialization.arrays.{name}")


def _foreign(value: Any) -> ModuleType | None:
    # Everything that is pickled passes here, so the file is imported only where it can be used.
    cls = type(value)
    if not hasattr(cls, "__dlpack__") and not hasattr(cls, "__cuda_array_interface__"):
        return None
    dlpack = _file("dlpack")
    return dlpack if dlpack.can_rebuild(value) else None


def replace(cls: type, serialize: Callable[..., Any], deserialize: Callable[..., Any]) -> None:
    """Register functions for a type, and for those of its subclasses that have no own ones."""
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
