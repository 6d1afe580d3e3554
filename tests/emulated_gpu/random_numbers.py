"""Random numbers by NumPy: CuPy's generators are machine code, with a CUDA runtime of their own.

They are other numbers than a GPU's, with the same distributions; equal seeds give equal ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

_generators: dict[int, np.random.Generator] = {}
"""By the address of a bit generator's state in device memory."""


def install(module: ModuleType) -> None:
    """Exchange the functions and methods of `cupy.random._generator_api` that launch kernels."""
    module.init_curand = _begin
    module.random_raw = _raw
    for name, method in vars(module.Generator).items():
        if not name.startswith("_"):
            setattr(module.Generator, name, _by_numpy(name, method))


def _begin(kind: int, state: int, seed: Any, size: int) -> None:
    _generators[int(state)] = np.random.default_rng([int(kind), int(seed)])


def _raw(kind: int, state: int, output: int, size: int, *_: Any) -> None:
    raise NotImplementedError("the emulated GPU gives no raw random bits")


def _by_numpy(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return what does as a method of CuPy's generator, with numbers from NumPy's."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        import cupy

        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        options = {k: _host(v) for k, v in bound.arguments.items() if k != "self"}
        out, dtype = bound.arguments.get("out"), options.pop("dtype", None)
        options.pop("out", None)
        if options.get("size") is None and out is not None:
            options["size"] = out.shape
        if name == "integers":
            options["dtype"] = dtype
        numpys = _generators[int(self.bit_generator.state())]
        found = cupy.asarray(getattr(numpys, name)(**options), dtype)
        if out is None:
            return found
        out[...] = found
        return out

    return call


def _host(value: Any) -> Any:
    return value.get() if hasattr(value, "__cuda_array_interface__") else value
