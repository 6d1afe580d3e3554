"""Arrays of libraries that have no file here, by DLPack or ``__cuda_array_interface__``.

The library must make its own arrays of others': by ``from_dlpack``, as the array API standard has
it, or else by ``asarray``, and of the very type that was sent. The receiver imports it by name.
Everything else is pickled, as without this package.

- DLPack: https://dmlc.github.io/dlpack/latest/python_spec.html
- The standard: https://data-apis.org/array-api/latest/design_topics/data_interchange.html
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.serialization.arrays import cupy, device, messages
from gpusched.serialization.dtypes import is_plain
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.strided import Message, compact, restore

_KIND = "dlpack"
_BUILDERS = ("from_dlpack", "asarray")
_OWN = frozenset(("numpy", "cupy", "cupyx", "numba", "torch", "jax", "jaxlib", "tensorflow"))
"""Libraries with a file here; what these leave is not for this one."""
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
"""DLPack's numbers of kinds of memory."""


def can_rebuild(value: Any) -> bool:
    """Return whether the receiver can make just such an array of the bytes; it is tried.

    Not of types that say themselves how to pickle them, and of arrays with attributes that the
    bytes do not report, such as a unit: those are pickled.

    Examples
    --------
    >>> from gpusched.serialization.arrays.dlpack import can_rebuild
    >>> can_rebuild(memoryview(b"no array"))
    False
    """
    library = _library(value)
    if library is None or _has_own_pickling(type(value)):
        return False
    build, lent = _builder(library), _lend(value)
    if build is None or lent is None:
        return False
    try:
        rebuilt = build(lent)
    except (BufferError, RuntimeError, TypeError, ValueError):
        # The library takes none of that dtype or order.
        return False
    return type(rebuilt) is type(value) and not _knows_more(value, rebuilt)


def cuda_serialize(array: Any) -> Message:
    """Return an array on a GPU as a header and a frame there, by CuPy.

    Raises `NotImplementedError` if the array is not on a GPU; distributed then goes on with the
    next family.
    """
    lent = _lend(array)
    if isinstance(lent, np.ndarray):
        raise NotImplementedError("only arrays on a GPU have frames there")
    return cupy.pack_on_device(_KIND, lent, library=_library(array))


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, over the frame.

    Raises `CorruptFrameError` if the header is damaged.
    """
    import cupy as library

    layout, dtype, frame, about = device.unpack(_KIND, header, frames)
    return _build(about, cupy.place(layout, dtype, library.asarray(frame)))


def serialize(array: Any, context: dict[str, Any] | None = None) -> Message:
    """Return an array as a header and frames in host memory."""
    lent, library = _lend(array), _library(array)
    if isinstance(lent, np.ndarray):
        return messages.pack(_KIND, lent, context, library=library, device="cpu")
    return cupy.pack_to_host(_KIND, lent, context, library=library, device="gpu")


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, on the current GPU if it was on one.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `ModuleNotFoundError` if the array's library is not installed here; `WithoutGpuError` if the
    array was on a GPU, there is none or no CuPy here, and no NumPy array is wanted instead.
    """
    array, about = messages.unpack(_KIND, header, frames)
    if about.get("device") != "gpu":
        return _build(about, _writable(array))
    why = cupy.missing()
    if why is None:
        return _build(about, cupy.to_device(array))
    device.allow_host(f"GPU array of {about.get('library')}", why)
    return array


def _library(value: Any) -> str | None:
    """Return the name of the module whose functions make such arrays, or None."""
    namespace = getattr(value, "__array_namespace__", None)
    name = namespace().__name__ if namespace is not None else type(value).__module__.split(".")[0]
    known = name in sys.modules and name.split(".")[0] not in _OWN
    return name if known and name != "__main__" else None


def _builder(library: str) -> Callable[[Any], Any] | None:
    module = importlib.import_module(library)
    found = (getattr(module, name, None) for name in _BUILDERS)
    return next((function for function in found if function is not None), None)


def _has_own_pickling(cls: type) -> bool:
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(getattr(cls, name) is not getattr(object, name) for name in names)


def _knows_more(value: Any, rebuilt: Any) -> bool:
    """Return whether an array has attributes, arrays aside, that differ from those of another."""
    known = _attributes(rebuilt)
    return any(
        not hasattr(told, "shape") and (name not in known or known[name] != told)
        for name, told in _attributes(value).items()
    )


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _lend(value: Any) -> Any:
    """Return NumPy's or CuPy's view on an array; None if there is none."""
    if hasattr(value, "__cuda_array_interface__"):
        return _lend_gpu(value)
    if not hasattr(value, "__dlpack_device__"):
        return None
    kind, _ = value.__dlpack_device__()
    if kind in (_CUDA, _CUDA_MANAGED):
        return _lend_gpu(value)
    if kind not in (_CPU, _CUDA_HOST):
        return None
    try:
        lent = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        # NumPy knows neither bfloat16 nor sparse arrays, and others may refuse for reasons of
        # their own. They are pickled.
        return None
    return lent if is_plain(lent.dtype) else None


def _lend_gpu(value: Any) -> Any:
    if cupy.missing() is not None:
        return None
    import cupy as library

    if hasattr(value, "__cuda_array_interface__"):
        return library.asarray(value)
    return library.from_dlpack(value)


def _build(about: dict[str, Any], array: Any) -> Any:
    library = about.get("library")
    if not isinstance(library, str):
        raise CorruptFrameError(f"array: expected its library's name, found {library!r:.100}")
    device.require(library, "an array")
    build = _builder(library)
    if build is None:
        raise TypeError(f"{library} has neither {' nor '.join(_BUILDERS)}, as the sender's has")
    return build(array)


def _writable(array: np.ndarray) -> np.ndarray:
    # NumPy lends no other arrays to libraries with DLPack before 1.0. These could not tell either
    # that the sender's may be written to.
    if array.flags.writeable:
        return array
    layout, data = compact(array)
    return restore(layout, array.dtype, data.copy())
