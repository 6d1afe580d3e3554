"""`gpusched.apply` with ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusched
from gpusched.models import ModelError
from tests.models.given import FEATURES, rows, values

onnx = pytest.importorskip("onnx", reason="onnx comes with the extra models-test")
pytest.importorskip("onnxruntime", reason="onnxruntime comes with the extra models-test")

FLOAT = onnx.TensorProto.FLOAT if onnx else None


def model(batch: Any = "rows", outputs: int = 1) -> Any:
    """Return a layer: x @ weights, and its signs as a second output."""
    helper = onnx.helper
    weights = np.linspace(-1, 1, FEATURES * 3, dtype="float32").reshape(FEATURES, 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sign", ["y"], ["s"])]
    results = [helper.make_tensor_value_info(n, FLOAT, [batch, 3]) for n in ("y", "s")]
    graph = helper.make_graph(
        nodes[:outputs],
        "layer",
        [helper.make_tensor_value_info("x", FLOAT, [batch, FEATURES])],
        results[:outputs],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def whole() -> Any:
    return values() @ np.linspace(-1, 1, FEATURES * 3, dtype="float32").reshape(FEATURES, 3)


@pytest.mark.parametrize("batch", ["rows", 1, 7, 64])
def test_result_is_that_of_the_whole_array(batch: Any) -> None:
    y = gpusched.apply(model(batch), rows())
    assert (y.shape, y.dtype) == ((100, 3), np.float32)
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-6)


def test_bytes_and_files(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(model(), path)
    for given in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        y = gpusched.apply(given, rows())
        np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-6)


def test_a_file_that_is_gone_by_then(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(model(), path)
    y = gpusched.apply(path, rows())
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"layer.onnx is not there for .*: put it where"):
        y.compute()
    path.write_bytes(b"another")
    with pytest.raises(ModelError, match=r"has 7 bytes for .* give all machines the same file"):
        y.compute()


def test_a_file_that_only_workers_see(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    with pytest.raises(FileNotFoundError) as caught:
        gpusched.apply(path, rows())
    assert "pass meta=" in "".join(caught.value.__notes__)
    y = gpusched.apply(path, rows(), dtype="float32", shape=3)
    onnx.save(model(), path)
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-6)


def test_several_results_have_names() -> None:
    found = gpusched.apply(model(outputs=2), rows())
    assert list(found) == ["y", "s"]
    np.testing.assert_array_equal(found["s"].compute(), np.sign(whole()))


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_dtypes(dtype: str) -> None:
    with pytest.raises(TypeError, match=f"takes float32, and was given {dtype}: pass cast=True"):
        gpusched.apply(model(), rows(dtype))
    assert gpusched.apply(model(), rows(dtype), cast=True).compute().dtype == np.float32


def test_wrong_inputs() -> None:
    with pytest.raises(ModelError, match=r"has the inputs \['x'\], and was given 2 arrays"):
        gpusched.apply(model(), rows(), rows())
    with pytest.raises(ModelError, match="has no methods"):
        gpusched.apply(model(), rows(), method="predict")
    with pytest.raises(Exception, match="INVALID_PROTOBUF"):
        gpusched.apply(b"no model", rows())
