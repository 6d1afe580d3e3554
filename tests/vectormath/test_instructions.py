"""Instructions of AVX-512 in loops, and functions on processors that have none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from gpusched.backends.cpu import Tuned, pipeline
from gpusched.vectormath import avx512
from gpusched.vectormath.avx512 import reciprocal_f32, reciprocal_f64
from gpusched.vectormath.bits import device

NUMBERS = [0.75, 1.0, 1.5, 3.0, 1e-42, 1e30, 0.0, -0.0, np.inf, -np.inf, np.nan, -3.0]


def loop(function: Any, dtype: str, pipeline_class: Any = Tuned) -> Callable[..., np.ndarray]:
    """Return a function of arrays that calls `function` in a loop."""
    array = types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")

    def over(values: Any, out: Any) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    options = {"error_model": "numpy", "pipeline_class": pipeline_class}
    compiled = numba.njit(types.void(array, array), **options)(over)

    def call(values: np.ndarray) -> np.ndarray:
        out = np.empty_like(values)
        compiled(values, out)
        return out

    call.text = compiled.inspect_llvm(compiled.signatures[0])  # type: ignore[attr-defined]
    return call


def many(dtype: str) -> np.ndarray:
    """Return the numbers where vectors have them, and where single ones do."""
    return np.array(NUMBERS * 11, dtype)


needs_instructions = pytest.mark.skipif(not avx512.HAS_AVX512, reason="no AVX-512 here")


@needs_instructions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_number_is_taken_apart_and_put_together(dtype: str) -> None:
    exponent, mantissa, scale = avx512.exponent, avx512.mantissa, avx512.scale

    @device
    def together(x: Any) -> Any:
        return scale(mantissa(x), exponent(x))

    values = many(dtype)
    found = loop(together, dtype)(values)
    # Infinitely many times what is not a number is infinite, as IEEE 754 has it.
    expected = np.where((values < 0) & (values > -np.inf), np.nan, np.abs(values))
    np.testing.assert_array_equal(found, expected)
    with np.errstate(all="ignore"):
        exponents = np.where(np.isinf(values), np.inf, np.frexp(values)[1] - 1.0)
    exponents[values == 0], exponents[np.isnan(values)] = -np.inf, np.nan
    np.testing.assert_array_equal(loop(device(lambda x: exponent(x)), dtype)(values), exponents)


@needs_instructions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_estimates_have_fourteen_bits(dtype: str) -> None:
    reciprocal, root = avx512.reciprocal_estimate, avx512.root_estimate
    values = np.random.default_rng(0).uniform(1e-6, 1e6, 1003).astype(dtype)
    found = loop(device(lambda x: reciprocal(x)), dtype)(values)
    assert np.max(np.abs(found * values - 1)) < 2**-13.9
    found = loop(device(lambda x: root(x)), dtype)(values)
    assert np.max(np.abs(found * np.sqrt(values) - 1)) < 2**-13.9


@pytest.mark.parametrize(
    ("function", "dtype"), [(reciprocal_f32, "float32"), (reciprocal_f64, "float64")]
)
def test_reciprocal_is_exact_to_two_units(function: Any, dtype: str) -> None:
    values = np.random.default_rng(0).uniform(0.5, 64, 10_003).astype(dtype)
    found = loop(function, dtype)(values)
    true = np.longdouble(1) / values.astype(np.longdouble)
    assert np.max(np.abs(found - true) / np.spacing(true.astype(dtype))) < 2
    assert np.array_equal(found[:7], loop(function, dtype)(values[:7])), "not in vectors"


def test_loop_computes_as_many_vectors_at_once_as_it_is_told() -> None:
    root = device(lambda x: np.sqrt(x) * x)
    texts = {
        count: loop(root, "float64", pipeline(None, count)).text  # type: ignore[attr-defined]
        for count in (1, 4)
    }
    for count, text in texts.items():
        body = text[text.index("vector.body:") : text.index("middle.block:")]
        assert body.count("call <") == count


OTHER_PROCESSOR = """
import numpy as np
from gpusched.vectormath import FUNCTIONS, avx512
from tests.vectormath.test_vectormath import apply
assert not avx512.HAS_AVX512
for name in ("exp_f32", "exp_f64", "log_f32", "log_f64", "log2_f32", "tanh_f64"):
    dtype = np.float32 if name.endswith("f32") else np.float64
    values = np.array([0.3, 2.5, 30.0, 1e-40, 0.0, np.inf, np.nan] * 5, dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name[:-4])(values)
    np.testing.assert_allclose(apply(name, values), expected, rtol=4 * np.finfo(dtype).eps)
"""


@pytest.mark.processes
def test_functions_are_right_on_a_processor_without_them() -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", OTHER_PROCESSOR], env=environment, check=True)
