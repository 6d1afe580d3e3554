"""`gpusched.apply` with TensorFlow, where it is installed: it is too large for the extras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusched
from gpusched.models.tensorflow import adopt
from tests.models.given import FEATURES, address, rows, values

tf = pytest.importorskip("tensorflow", reason="TensorFlow is in no extra: it is too large")

WEIGHTS = np.linspace(-1, 1, FEATURES * 3, dtype="float32").reshape(FEATURES, 3)
ANY_ROWS = tf.TensorSpec((None, FEATURES), tf.float32) if tf else None


def whole() -> np.ndarray:
    return np.maximum(values() @ WEIGHTS, 0)


def function() -> Any:
    return tf.function(lambda x: tf.nn.relu(x @ WEIGHTS), input_signature=[ANY_ROWS])


class Module(tf.Module):  # type: ignore[misc, name-defined]
    @tf.function(input_signature=[ANY_ROWS])  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        return tf.nn.relu(x @ WEIGHTS)


def keras() -> Any:
    model = tf.keras.Sequential([tf.keras.Input((FEATURES,)),
                                 tf.keras.layers.Dense(3, "relu", use_bias=False)])  # fmt: skip
    model.set_weights([WEIGHTS])
    return model


@pytest.mark.parametrize("make", [function, Module, keras])
def test_result_is_that_of_the_whole_array(make: Any) -> None:
    y = gpusched.apply(make(), rows())
    assert (y.shape, y.dtype) == ((100, 3), np.float32)
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-5)


def test_files(tmp_path: Path) -> None:
    tf.saved_model.save(Module(), str(tmp_path / "saved"))
    keras().save(tmp_path / "model.keras")
    for path in (tmp_path / "saved", tmp_path / "model.keras"):
        y = gpusched.apply(path, rows())
        np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-5)


def test_functions_of_tensors() -> None:
    y = gpusched.apply(lambda x: tf.nn.relu(x @ WEIGHTS), rows(), library="tensorflow")
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-5)


def test_a_function_without_a_signature_is_pickled() -> None:
    y = gpusched.apply(tf.function(lambda x: tf.nn.relu(x @ WEIGHTS)), rows())
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-5)


def test_dtypes_of_keras() -> None:
    with pytest.raises(TypeError, match="takes float32, and was given float64: pass cast=True"):
        gpusched.apply(keras(), rows("float64"))
    y = gpusched.apply(keras(), rows("float64"), cast=True)
    assert y.compute().dtype == np.float32


def test_a_result_shares_the_tensor_s_memory() -> None:
    model = adopt(function(), None)
    result = model.run(None, [values()], {}, False, False)
    assert address(model.array(result, values(), None)) == address(np.from_dlpack(result))


def test_keras_is_called_under_the_registry_s_policy() -> None:
    assert adopt(keras(), None).policy == "keras"
    assert adopt(function(), None).policy == ""
