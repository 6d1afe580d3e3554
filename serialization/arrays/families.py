"""distributed's families ``dask`` and ``cuda``, with messages of this package read by name.

Messages name their reader, so that no type is unpickled, and a type whose library is missing here
gives an error that says so, or a host array. Messages that others wrote are read as before.

A process that has imported distributed alone finds `Message` where it looks for the type, imports
this package with it, and so reads the message; without gpusched it says that there is none.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from distributed.protocol import pickle
from distributed.protocol.cuda import cuda_deserialize
from distributed.protocol.cuda import cuda_dumps as their_cuda_dumps
from distributed.protocol.cuda import cuda_loads as their_cuda_loads
from distributed.protocol.serialize import (
    dask_deserialize,
    register_serialization_family,
)
from distributed.protocol.serialize import dask_dumps as their_dask_dumps
from distributed.protocol.serialize import dask_loads as their_dask_loads

from gpusched.serialization.arrays import messages
from gpusched.serialization.frames import CorruptFrameError

READERS = (
    "numpy",
    "masked",
    "cupy",
    "cupyx_sparse",
    "placed",
    "numba_cuda",
    "torch",
    "jax",
    "tensorflow",
    "dlpack",
)
"""The files of this folder that read messages."""


class Message:
    """Stands for the type in messages of this package, whatever is in them."""


_TYPE = pickle.dumps(Message)


def register() -> None:
    """Take the place of distributed's own functions; a second time changes nothing."""
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
    return _reader(header).deserialize(header, frames)


def _read_cuda(header: Any, frames: list[Any]) -> Any:
    reader = _reader(header)
    if not hasattr(reader, "cuda_deserialize"):
        raise CorruptFrameError(f"reader: {reader.__name__} reads nothing on a GPU")
    return reader.cuda_deserialize(header, frames)


def _reader(header: Any) -> ModuleType:
    name = header.get(messages.KEY)
    if name not in READERS:
        raise CorruptFrameError(f"reader: expected one of {READERS}, found {name!r:.100}")
    return importlib.import_module(f"gpusched.serialization.arrays.{name}")


def _foreign(value: Any) -> ModuleType | None:
    # Everything that is pickled passes here, so the file is imported only where it can be used.
    cls = type(value)
    if not hasattr(cls, "__dlpack__") and not hasattr(cls, "__cuda_array_interface__"):
        return None
    from gpusched.serialization.arrays import dlpack

    return dlpack if dlpack.can_rebuild(value) else None
