"""`gpusched.apply` with JAX: jitted functions, plain ones, exported ones."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpusched
from gpusched.models import ModelError
from gpusched.models.jax import adopt
from tests.models.given import FEATURES, address, only_chunk, rows, values, watched
from tests.tiers import in_host_memory

jax = pytest.importorskip("jax", reason="JAX comes with the extra models-test")

on_the_host = in_host_memory(jax.default_backend() == "gpu")

WEIGHTS = np.linspace(-1, 1, FEATURES * 3, dtype="float32").reshape(FEATURES, 3)


def layer(weights: Any, x: Any) -> Any:
    with jax.default_matmul_precision("highest"):  # GPUs would multiply TensorFloat-32.
        return jax.nn.relu(x @ weights)


def whole() -> np.ndarray:
    return np.maximum(values() @ WEIGHTS, 0)


@pytest.mark.parametrize(
    ("function", "library"),
    [
        (jax.jit(partial(layer, WEIGHTS)), None),
        (partial(jax.jit(layer), jax.numpy.asarray(WEIGHTS)), None),
        (jax.jit(jax.vmap(partial(layer, WEIGHTS))), None),
        (partial(layer, WEIGHTS), "jax"),
        (partial(layer, WEIGHTS), None),
        (lambda: jax.jit(partial(layer, WEIGHTS)), None),
    ],
    ids=["jitted", "partial of jitted", "vmapped", "plain", "plain on NumPy", "loaded"],
)
def test_result_is_that_of_the_whole_array(function: Any, library: Any) -> None:
    y = gpusched.apply(function, rows(), library=library)
    assert (y.shape, y.dtype) == ((100, 3), np.float32)
    found = y.compute()
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, whole(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", ["n", "7"])
def test_exported(batch: str) -> None:
    (shape,) = (jax.export.symbolic_shape(f"{batch}, {FEATURES}"),)
    given = jax.ShapeDtypeStruct(shape, "float32")
    program = jax.export.export(jax.jit(partial(layer, WEIGHTS)))(given)
    y = gpusched.apply(program, rows())
    np.testing.assert_allclose(y.compute(), whole(), rtol=1e-5, atol=1e-6)


def test_several_results() -> None:
    y = gpusched.apply(jax.jit(lambda x: {"sum": x.sum(1), "x": x}), rows())
    np.testing.assert_array_equal(y["x"].compute(), values())


POINTERS: list[int] = []


def note(x: Any) -> Any:
    POINTERS.append(x.unsafe_buffer_pointer())
    return x


@on_the_host
@pytest.mark.parametrize("read_only", [False, True])
def test_arrays_share_the_chunks_memory_where_it_is_aligned(read_only: bool) -> None:
    x, chunks = watched(read_only, aligned=64)
    y = gpusched.apply(note, x, library="jax", meta=np.empty((0, FEATURES), "float32"))
    POINTERS.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = only_chunk(y)
    assert POINTERS == [address(chunks[0])] == [address(found)]


@on_the_host
def test_a_result_shares_the_array_s_memory() -> None:
    model = adopt(jax.jit(lambda x: x + 1), None)
    result = model.run(None, [values()], {}, False, False)
    assert address(model.array(result, values(), None)) == result.unsafe_buffer_pointer()


class TestDtypes:
    @pytest.mark.parametrize(("dtype", "told"), [("float64", "float32"), ("int64", "int32")])
    def test_jax_would_halve_these_without_a_word(self, dtype: str, told: str) -> None:
        with pytest.raises(TypeError, match=f"takes {told}, and was given {dtype}: pass cast=True"):
            gpusched.apply(jax.jit(lambda x: x * 2), rows(dtype))
        y = gpusched.apply(jax.jit(lambda x: x * 2), rows(dtype), cast=True)
        assert y.compute().dtype == told

    def test_64_bits_where_they_are_on(self) -> None:
        with jax.enable_x64(True):
            y = gpusched.apply(jax.jit(lambda x: x * 2), rows("float64"))
            found = y.compute(scheduler="synchronous")
        np.testing.assert_array_equal(found, values("float64") * 2)

    def test_bfloat16_is_none_of_numpy_s(self) -> None:
        half = jax.jit(lambda x: x.astype("bfloat16"))
        with pytest.raises(ModelError, match="bfloat16, which NumPy lacks: pass dtype='float32'"):
            gpusched.apply(half, rows())
        y = gpusched.apply(half, rows(), dtype="float32")
        np.testing.assert_allclose(y.compute(), values(), rtol=0.01)


def test_text_is_refused() -> None:
    with pytest.raises(TypeError, match="none that DLPack has"):
        gpusched.apply(jax.jit(lambda x: x), rows("float32").astype("U3"))
