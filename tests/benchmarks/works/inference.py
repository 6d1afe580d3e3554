"""A small torch network on many rows: `gpusched.apply`, against `map_blocks` with dask."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, seeded

SIZES = 64, 128, 10


@cache
def parameters() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights and bias of each layer."""
    random = seeded()
    return [
        (
            random.standard_normal((n, m), dtype="f4") / np.float32(n**0.5),
            random.standard_normal(m, dtype="f4"),
        )
        for n, m in pairwise(SIZES)
    ]


def network(xp: Any, x: Any) -> Any:
    """Return the scores: a layer with ReLU, and one without."""
    (first, bias), (second, other) = (
        [xp.asarray(v).astype(x.dtype) for v in layer] for layer in parameters()
    )
    return xp.matmul(xp.maximum(xp.matmul(x, first) + bias, 0), second) + other


@cache
def module(dtype: str) -> Any:
    """Return the network as a torch module."""
    import torch

    layers: list[Any] = []
    for weights, bias in parameters():
        layer = torch.nn.Linear(*weights.shape, dtype=getattr(torch, dtype))
        layer.weight.data.copy_(torch.from_numpy(weights.T))
        layer.bias.data.copy_(torch.from_numpy(bias))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval().requires_grad_(False)


def torch_program(xp: Any, x: Any) -> Any:
    return module(str(x.dtype).removeprefix("torch."))(x)


def on_blocks(xp: Any, x: Any) -> Any:
    """Call the module in `map_blocks`, as one does without gpusched."""
    model = module(str(x.dtype))

    def call(block: np.ndarray) -> np.ndarray:
        import torch

        with torch.inference_mode():
            result: np.ndarray = model(torch.from_numpy(block)).numpy()
        return result

    return xp.map_blocks(call, x, chunks=(x.chunks[0], SIZES[-1:]), dtype=x.dtype)


def applied(xp: Any, x: Any) -> Any:
    import gpusched

    return gpusched.apply(module(str(x.dtype)), x)


def rows(count: int, dtype: str) -> list[np.ndarray]:
    shape = count // SIZES[0], SIZES[0]
    return [seeded().standard_normal(shape, dtype="f4").astype(dtype)]


NO_PRODUCTS = "numexpr has no matrix products"

WORK = Work(
    "inference",
    "neural network inference",
    "W13 a torch network (64-128-10) on rows, by `gpusched.apply`",
    rows,
    network,
    programs={"dask": on_blocks, "gpusched": applied, "torch": torch_program},
    absent={
        "numexpr": NO_PRODUCTS,
        "dask-numexpr": NO_PRODUCTS,
        "numba": "its matrix products are NumPy's",
        "cubed": "map_blocks would run the same torch as dask's",
    },
    tolerance=256,
    fused=False,
)
