"""A dense layer: matrix product, bias, GELU, and the sum of each row.

D. Hendrycks and K. Gimpel, "Gaussian error linear units", arXiv:1606.08415 (2016): the tanh form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Chunks, Work, seeded

INNER, OUTER = 256, 1000
ROOT, CUBIC = 0.7978845608028654, 0.044715


def layer(xp: Any, x: Any, weights: Any, bias: Any) -> Any:
    """Return the sums of the rows after the activation."""
    y = xp.matmul(x, weights) + bias
    return xp.sum(0.5 * y * (1 + xp.tanh(ROOT * (y + CUBIC * y * y * y))), axis=1)


def tensors(count: int, dtype: str) -> list[np.ndarray]:
    """Return rows, weights and bias that make a product of so many elements."""
    random = seeded()
    shapes = ((count // OUTER, INNER), (INNER, OUTER), (OUTER,))
    x, weights, bias = (random.standard_normal(s, dtype="f4").astype(dtype) for s in shapes)
    return [x, weights / np.asarray(INNER**0.5, dtype), bias]


def split(arrays: list[np.ndarray], elements: int) -> Chunks:
    """Split the rows so that a chunk of the product has about so many elements."""
    return [(max(1, elements // OUTER), INNER), arrays[1].shape, arrays[2].shape]


def numexpr_program(evaluate: Callable[..., Any], x: Any, weights: Any, bias: Any) -> Any:
    """Return the same: the product and the sums by NumPy, the rest by a string."""
    y = evaluate("y + bias", y=x @ weights, bias=bias)
    text = "half * y * (one + tanh(root * (y + cubic * y * y * y)))"
    return evaluate(text, y=y, half=0.5, one=1.0, root=ROOT, cubic=CUBIC).sum(axis=1)


WORK = Work(
    "dense",
    "dense layer",
    "W9 matrix product, bias, GELU, row sum",
    tensors,
    layer,
    chunks=split,
    programs={"numexpr": numexpr_program},
    absent={"dask-numexpr": "product and sum would be dask's, the rest one string"},
    tolerance=4096,
)
