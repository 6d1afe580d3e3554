"""ONNX models, run by onnxruntime: files, bytes, or `onnx.ModelProto`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.errors import ModelError
from gpusched.models.views import is_cupy, placed, to_array

LIBRARY = "onnx"
SUFFIXES = (".onnx",)

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bool": "bool",
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
}  # fmt: skip
"""NumPy's names of ONNX's dtypes; strings and others are left to onnxruntime."""


def recognises(value: Any) -> bool:
    """Return whether a value is a model of the package onnx."""
    return type(value).__name__ == "ModelProto" and type(value).__module__.startswith("onnx")


def pack(value: Any) -> Packed:
    """Return a model's bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return Packed("onnx", "bytes", "ONNX model", bytes(value))
    name = value.graph.name or "ONNX model"
    return Packed("onnx", "bytes", name, value.SerializeToString())


def pack_file(path: Path) -> Packed:
    """Return a file that workers read by themselves."""
    return Packed("onnx", "file", path.name, path=str(path))


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return a session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit():
        # Workers share the cores, as this variable tells; onnxruntime does not look at it.
        options.intra_op_num_threads = int(threads)
    source = packed.path or bytes(packed.content)
    session = onnxruntime.InferenceSession(source, options, providers=_providers(device))
    return OnnxModel(session)


def adopt(value: Any, device: str | None) -> Model:
    """Return a session that exists as a model, or make one of a model."""
    if hasattr(value, "get_inputs"):
        return OnnxModel(value)
    return load(pack(value), device, None)


def _providers(device: str | None) -> list[Any]:
    """Return the GPU's provider, where there is one, and the CPU's."""
    import onnxruntime

    has_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    kind, _, number = (device or ("cuda" if has_gpu else "cpu")).partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if kind != "cuda" or not has_gpu:
        raise ModelError(
            f"onnxruntime has no device {device!r} here: its providers are "
            f"{onnxruntime.get_available_providers()}"
        )
    chosen = {"device_id": int(number)} if number else {}
    return [("CUDAExecutionProvider", chosen), "CPUExecutionProvider"]


class OnnxModel(Plain):
    """A session of onnxruntime.

    Notes
    -----
    Thread-safe: sessions have no state that a run changes.
    """

    policy = "onnxruntime"

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs = [(one.name, one.type) for one in session.get_inputs()]
        self._outputs = [one.name for one in session.get_outputs()]
        shape = session.get_inputs()[0].shape if self._inputs else []
        self.rows = shape[0] if shape and isinstance(shape[0], int) else None

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return the dtype that the model's input has."""
        if number >= len(self._inputs):
            return ""
        wanted = _DTYPES.get(self._inputs[number][1].removeprefix("tensor(").removesuffix(")"), "")
        return "" if wanted in ("", dtype.name) else wanted

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what the session gives: one array, or several by their names."""
        if method is not None:
            raise ModelError(f"an ONNX model has no methods: leave out method={method!r}")
        names = [name for name, _ in self._inputs]
        given = dict(zip(names, map(_on_host, arrays), strict=False))
        given |= {name: np.asarray(value) for name, value in kwargs.items()}
        if len(arrays) > len(names) or set(given) != set(names):
            raise ModelError(
                f"the model has the inputs {names}, and was given {len(arrays)} arrays"
                + (f" and {sorted(kwargs)}" if kwargs else "")
            )
        if cast:
            for number, name in enumerate(names):
                wanted = self.mismatch(number, given[name].dtype)
                given[name] = given[name].astype(wanted or given[name].dtype, copy=False)
        found = self._session.run(None, given)
        return found[0] if len(found) == 1 else dict(zip(self._outputs, found, strict=True))

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a result as it is, or on the GPU."""
        if isinstance(value, list):
            raise TypeError("a list of maps: export the model with zipmap=False")
        return placed(to_array(value), like)


def _on_host(array: Any) -> Any:
    return array.get() if is_cupy(array) else array
