"""Puts the emulated runtime in place of the one inside CuPy.

CuPy's modules call the CUDA runtime through functions of `cupy_backends.cuda.api.runtime`: other
Cython modules through its table of capsules, when they are imported, and Python through its names.
Both are exchanged here, right after that module is imported. The runtime that is linked into CuPy
is left as it is, and never called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import build

_TYPES: dict[str, Any] = {
    "PyObject *": ctypes.py_object,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "intptr_t": ctypes.c_ssize_t,
    "size_t": ctypes.c_size_t,
    "uintmax_t": ctypes.c_uint64,
    "unsigned int": ctypes.c_uint,
    "cudaMemcpyKind": ctypes.c_int,
}
_SKIP = "int __pyx_skip_dispatch"
_OPTIONAL = "__pyx_optional_args"
# Of the C functions that only Cython modules call: their types are structures.
_LEFT = {
    "check_status",
    "getChannelDesc",
    "getTextureObjectResourceDesc",
    "getTextureObjectTextureDesc",
    "make_Extent",
    "make_PitchedPtr",
    "make_Pos",
}
_NOT_THERE = ("ipcGetEventHandle", "ipcOpenEventHandle", "deviceDisablePeerAccess")

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Export(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("signature", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Flags(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("flags", ctypes.c_uint))


_kept: list[Any] = []


def install(runtime: ModuleType) -> None:
    """Exchange the functions of CuPy's `runtime` module.

    Raises
    ------
    RuntimeError
        CuPy exports a function that the emulated runtime does not know, or another signature.
    """
    library = ctypes.PyDLL(str(build.libraries()[build.DRIVER]))
    functions = {
        "getDeviceProperties": _properties(runtime),
        "pointerGetAttributes": _pointer_attributes(runtime),
    }
    library.emulator_bind_python(
        ctypes.py_object(runtime.CUDARuntimeError), ctypes.py_object(functions)
    )
    capsules = runtime.__pyx_capi__
    signatures = {name: _api.PyCapsule_GetName(each) for name, each in capsules.items()}
    left = {name for name, text in signatures.items() if b"(" in text} - _LEFT
    for export in _exports(library, "emulator_missing"):
        name = export.name.decode()
        _exchange(runtime, name, signatures[name], export.address)
        left.discard(name)
    for export in _exports(library, "emulator_exports"):
        name = export.name.decode()
        if signatures[name] != export.signature:
            raise RuntimeError(
                f"CuPy exports runtime.{name} as {signatures[name].decode()!r}, and "
                f"tests/emulated_gpu/source/cupy_runtime.c has {export.signature.decode()!r}"
            )
        _exchange(runtime, name, signatures[name], export.address)
        left.discard(name)
    if left:
        raise RuntimeError(
            f"CuPy exports functions of the runtime that cupy_runtime.c lacks: {sorted(left)}"
        )
    for name in _NOT_THERE:
        setattr(runtime, name, _not_there(name))
    for name, function in _interprocess(runtime).items():
        setattr(runtime, name, function)
    _kept.extend([library, functions])


def _exports(library: Any, table: str) -> Iterator[_Export]:
    at = ctypes.addressof(_Export.in_dll(library, table))
    while (export := _Export.from_address(at)).name:
        yield export
        at += ctypes.sizeof(_Export)


def _exchange(runtime: ModuleType, name: str, signature: bytes, address: int) -> None:
    text = ctypes.create_string_buffer(signature)
    _kept.append(text)
    capsule = _api.PyCapsule_New(address, ctypes.cast(text, ctypes.c_char_p), None)
    runtime.__pyx_capi__[name] = capsule  # type: ignore[attr-defined]
    if hasattr(runtime, name):
        setattr(runtime, name, _callable(name, signature.decode(), address))


def _callable(name: str, signature: str, address: int) -> Callable[..., Any]:
    """Return a Python function that calls a C function with Cython's hidden arguments."""
    result, _, arguments = signature.partition(" (" if " (" in signature else "(")
    given = [text for text in arguments.rstrip(")").split(", ") if _SKIP not in text]
    optional = bool(given) and _OPTIONAL in given[-1]
    plain = given[: len(given) - optional]
    kinds = [_TYPES.get(text, ctypes.py_object) for text in plain] + [ctypes.c_int]
    if optional:
        kinds.append(ctypes.POINTER(_Flags))
    made = ctypes.PYFUNCTYPE(_TYPES.get(result, ctypes.py_object), *kinds)(address)

    def call(*values: Any, flags: int | None = None) -> Any:
        extra = values[len(plain) :]
        if not optional:
            return made(*values, 0)
        flags = extra[0] if extra else flags
        last = None if flags is None else ctypes.byref(_Flags(1, flags))
        return made(*values[: len(plain)], 0, last)

    call.__name__ = name
    return call


def _not_there(name: str) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise NotImplementedError(f"the emulated GPU lacks cupy.cuda.runtime.{name}")

    return call


def _pointer_attributes(runtime: ModuleType) -> Callable[[int], Any]:
    library = ctypes.CDLL(build.DRIVER)

    def attributes(address: int) -> Any:
        kind, device = ctypes.c_uint(0), ctypes.c_int(-2)
        at = ctypes.c_uint64(address)
        library.cuPointerGetAttribute(ctypes.byref(kind), 2, at)
        library.cuPointerGetAttribute(ctypes.byref(device), 9, at)
        host = 0 if kind.value == 2 else address
        return runtime.PointerAttributes(
            device.value, address if kind.value else 0, host, {0: 0, 1: 1, 2: 2}[kind.value]
        )

    return attributes


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 64),)


def _interprocess(runtime: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return CuPy's functions for memory of other processes, which Python alone calls."""
    library = ctypes.CDLL(build.DRIVER)

    def check(status: int) -> None:
        if status:
            raise runtime.CUDARuntimeError(status)

    def get(address: int) -> bytes:
        runtime.getDevice()
        handle = _Handle()
        check(library.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)))
        return bytes(handle)

    def opened(handle: bytes, flags: int = 1) -> int:
        runtime.setDevice(runtime.getDevice())
        address = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(handle)
        check(library.cuIpcOpenMemHandle_v2(ctypes.byref(address), given, flags))
        return address.value

    def close(address: int) -> None:
        check(library.cuIpcCloseMemHandle(ctypes.c_uint64(address)))

    return {"ipcGetMemHandle": get, "ipcOpenMemHandle": opened, "ipcCloseMemHandle": close}


# Keys of CuPy's dictionary that are CUdevice_attribute's; the others are 0.
_PROPERTIES = {
    "sharedMemPerBlock": 8,
    "regsPerBlock": 12,
    "warpSize": 10,
    "maxThreadsPerBlock": 1,
    "clockRate": 13,
    "totalConstMem": 9,
    "major": 75,
    "minor": 76,
    "textureAlignment": 14,
    "multiProcessorCount": 16,
    "canMapHostMemory": 19,
    "concurrentKernels": 31,
    "ECCEnabled": 32,
    "pciBusID": 33,
    "memoryClockRate": 36,
    "memoryBusWidth": 37,
    "l2CacheSize": 38,
    "maxThreadsPerMultiProcessor": 39,
    "asyncEngineCount": 40,
    "unifiedAddressing": 41,
    "managedMemory": 83,
    "cooperativeLaunch": 95,
    "sharedMemPerBlockOptin": 97,
}


def _properties(runtime: ModuleType) -> Callable[[int], dict[str, Any]]:
    library = ctypes.CDLL(build.DRIVER)

    def properties(device: int) -> dict[str, Any]:
        name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
        total = ctypes.c_size_t()
        runtime.getDeviceCount()
        status = library.cuDeviceGetName(name, 256, device)
        if status:
            raise runtime.CUDARuntimeError(status)
        library.cuDeviceGetUuid_v2(uuid, device)
        library.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        value = {
            key: runtime.deviceGetAttribute(number, device) for key, number in _PROPERTIES.items()
        }
        return {
            **value,
            "name": name.value,
            "uuid": uuid.raw,
            "totalGlobalMem": total.value,
            "maxThreadsDim": (1024, 1024, 64),
            "maxGridSize": (2147483647, 65535, 65535),
        }

    return properties
