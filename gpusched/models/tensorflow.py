"""TensorFlow: `tf.function`s, modules, Keras models and SavedModels.

Modules and functions travel as the SavedModel that TensorFlow writes of them, Keras models as
Keras' own file. Chunks on the CPU are copied, results are not.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.errors import ModelError
from gpusched.models.views import is_cupy, lendable, placed, to_array

LIBRARY = "tensorflow"
SUFFIXES = (".keras",)


def recognises(value: Any) -> bool:
    """Return whether a value is a module, a Keras model or a `tf.function`."""
    import tensorflow as tf

    return isinstance(value, tf.Module | tf.types.experimental.PolymorphicFunction) or _is_keras(
        value
    )


def _is_keras(value: Any) -> bool:
    import sys

    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Model)


def pack(value: Any) -> Packed:
    """Return a model's files as one."""
    import tensorflow as tf

    name = getattr(value, "name", "") or getattr(value, "__name__", type(value).__name__)
    if _is_bare(value):
        # A SavedModel of it would hold nothing.
        content = cloudpickle.dumps(value.python_function)
        return Packed("tensorflow", "function", name, content)
    with tempfile.TemporaryDirectory() as folder:
        if _is_keras(value):
            path = Path(folder) / "model.keras"
            value.save(path)
            return Packed("tensorflow", "keras", name, path.read_bytes())
        if not isinstance(value, tf.Module):
            function, value = value, tf.Module()
            value.__call__ = function
        tf.saved_model.save(value, folder)
        return Packed("tensorflow", "saved", name, _zipped(Path(folder)))


def _is_bare(value: Any) -> bool:
    """Return whether a value is a `tf.function` that has neither a signature nor been called."""
    listed = getattr(value, "_list_all_concrete_functions", None)
    return hasattr(value, "python_function") and not (
        value.input_signature or (listed is not None and listed())
    )


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def pack_file(path: Path) -> Packed:
    """Return a file or folder that workers read by themselves."""
    form = "keras" if path.suffix in SUFFIXES else "saved"
    return Packed("tensorflow", form, path.name, path=str(path))


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return a model ready to be called."""
    if packed.form == "function":
        import tensorflow as tf

        return adopt(tf.function(cloudpickle.loads(packed.content)), device)
    if packed.path:
        return adopt(_read(packed.form, Path(packed.path)), device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if packed.form == "keras":
            path = path / "model.keras"
            path.write_bytes(packed.content)
        else:
            with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
                archive.extractall(path)
        return adopt(_read(packed.form, path), device)


def _read(form: str, path: Path) -> Any:
    if form == "keras":
        import keras

        return keras.models.load_model(path)
    import tensorflow as tf

    return tf.saved_model.load(str(path))


def adopt(value: Any, device: str | None) -> Model:
    """Return a model, or a function of tensors, ready to be called."""
    return TensorflowModel(value, device)


class TensorflowModel(Plain):
    """A callable of TensorFlow's, or what a SavedModel holds.

    Notes
    -----
    Thread-safe but for Keras models, which the registry of `gpusched.threadsafe` has a policy for.
    """

    def __init__(self, value: Any, device: str | None) -> None:
        self._value = value
        self._device = device
        self._options = {"training": False} if _is_keras(value) else {}
        self.policy = "keras" if _is_keras(value) else ""

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return the dtype of a Keras model's layers, to which Keras would convert silently."""
        wanted = getattr(self._value, "compute_dtype", None) if self._options else None
        return wanted if wanted and dtype.kind == "f" and wanted != dtype.name else ""

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what the model gives, without gradients."""
        import tensorflow as tf

        with tf.device(self._device):
            given = [self._tensor(number, array, cast) for number, array in enumerate(arrays)]
            return self._target(method)(*given, **self._options, **kwargs)

    def _target(self, method: str | None) -> Any:
        if method is not None:
            signatures = getattr(self._value, "signatures", {})
            return signatures[method] if method in signatures else getattr(self._value, method)
        if callable(self._value):
            return self._value
        signatures = getattr(self._value, "signatures", {})
        if len(signatures) != 1:
            raise ModelError(
                f"the SavedModel has no function of its own: pass method=, one of "
                f"{sorted(signatures)}"
            )
        return next(iter(signatures.values()))

    def _tensor(self, number: int, array: Any, cast: bool) -> Any:
        import tensorflow as tf

        if is_cupy(array):
            tensor = tf.experimental.dlpack.from_dlpack(lendable(array).__dlpack__())
        else:
            # A copy. TensorFlow takes memory by DLPack too, and crashes where it is not aligned.
            tensor = tf.convert_to_tensor(lendable(array))
        wanted = self.mismatch(number, array.dtype) if cast else ""
        return tf.cast(tensor, wanted) if wanted else tensor

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a tensor as an array over the same memory, if that is on the right side."""
        import tensorflow as tf

        if not isinstance(value, tf.Tensor) or is_cupy(like):
            return placed(to_array(value), like)
        numbers = value.dtype.as_numpy_dtype in (np.float16, np.float32, np.float64)
        if numbers and "GPU" not in value.device:
            return np.from_dlpack(value)
        return np.asarray(value.numpy())
