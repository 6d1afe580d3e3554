"""JAX: functions of its arrays, jitted or not, and exported ones.

Chunks share their memory with JAX on the CPU where their first byte is at a multiple of 64, as
JAX wants it, and are copied otherwise; results are always shared, and read-only.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import cloudpickle
import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.views import is_cupy, lendable, placed, to_array

LIBRARY = "jax"


def recognises(value: Any) -> bool:
    """Return whether a value is a jitted or an exported function, or a partial of one."""
    while hasattr(value, "func") and hasattr(value, "keywords"):
        value = value.func
    return type(value).__name__ == "PjitFunction" or _is_exported(value)


def _is_exported(value: Any) -> bool:
    return type(value).__name__ == "Exported" and type(value).__module__.startswith("jax")


def pack(value: Any) -> Packed:
    """Return a function pickled, or as JAX exports it."""
    if _is_exported(value):
        return Packed("jax", "exported", value.fun_name, bytes(value.serialize()))
    name = getattr(getattr(value, "func", value), "__name__", "function")
    versions = (("jax", version("jax")),)
    return Packed("jax", "function", name, cloudpickle.dumps(value), versions=versions)


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return a function ready to be called."""
    import jax.export

    if packed.form == "exported":
        return adopt(jax.export.deserialize(bytearray(packed.content)), device)
    return adopt(cloudpickle.loads(packed.content), device)


def adopt(value: Any, device: str | None) -> Model:
    """Return a function of JAX's arrays ready to be called."""
    return JaxModel(value, device)


class JaxModel(Plain):
    """A function of JAX's arrays.

    Notes
    -----
    Thread-safe: JAX compiles and runs functions in any number of threads.
    """

    policy = "jax"

    def __init__(self, value: Any, device: str | None) -> None:
        import jax

        if _is_exported(value):
            first = value.in_avals[0].shape if value.in_avals else ()
            self.rows = first[0] if first and type(first[0]) is int else None
        self._value = value.call if _is_exported(value) else value
        self._device = jax.devices(device)[0] if device else None
        self.on_gpu = (self._device or jax.devices()[0]).platform == "gpu"

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return what JAX would make of 64 bits without a word, if they are not switched on.

        See https://docs.jax.dev/en/latest/default_dtypes.html.
        """
        import jax

        found = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        return "" if found == dtype.newbyteorder("=") else found.name

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what the function gives."""
        import jax

        target = self._value if method is None else getattr(self._value, method)
        return jax.block_until_ready(target(*map(self._given, arrays), **kwargs))

    def _given(self, array: Any) -> Any:
        import jax

        if is_cupy(array):
            return jax.dlpack.from_dlpack(lendable(array))
        return jax.device_put(lendable(array), self._device, may_alias=True)

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return an array over the same memory, if that is on the right side."""
        import jax

        if isinstance(value, jax.Array) and is_cupy(like):
            return placed(to_array(value), like)
        found = np.asarray(value) if isinstance(value, jax.Array) else to_array(value)
        if dtype is None and found.dtype.kind == "V" and found.dtype.names is None:
            raise TypeError(f"{found.dtype.name}, which NumPy lacks: pass dtype='float32'")
        return placed(found, like)
