"""Each library under NumPy's names, as far as the works use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Names:
    """A library's names, with some of them defined otherwise.

    Parameters
    ----------
    module
        Where names are looked up.
    **others
        What stands before the names of `module`.
    """

    def __init__(self, module: Any, **others: Any) -> None:
        self._module = module
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def numpy() -> Names:
    import numpy as np
    from scipy.special import erf

    return Names(np, erf=erf)


def dask() -> Names:
    from dask import array as da
    from scipy.special import erf

    return Names(da, erf=erf)


def jax() -> Names:
    from jax import numpy
    from jax.scipy.special import erf

    return Names(numpy, erf=erf)


def torch() -> Names:
    import torch

    def std(x: Any, axis: Any = None) -> Any:
        return torch.std(x, dim=axis, correction=0)

    def maximum(x: Any, y: Any) -> Any:
        return torch.maximum(x, torch.as_tensor(y, dtype=x.dtype, device=x.device))

    def pad(x: Any, width: int, mode: str) -> Any:
        assert mode == "edge"
        return torch.nn.functional.pad(x[None], (width,) * 4, mode="replicate")[0]

    return Names(
        torch,
        std=std,
        pad=pad,
        nan=float("nan"),
        nanmin=lambda x: torch.amin(torch.where(torch.isnan(x), torch.inf, x)),
        nanmax=lambda x: torch.amax(torch.where(torch.isnan(x), -torch.inf, x)),
        max=_over(torch.amax),
        min=_over(torch.amin),
        maximum=maximum,
        degrees=torch.rad2deg,
    )


def cubed() -> Names:
    from cubed import array_api

    return Names(array_api)


def cupy() -> Names:
    import cupy
    from cupyx.scipy.special import erf

    return Names(cupy, erf=erf)


def _over(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's reduction with NumPy's parameters."""

    def reduction(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return function(x, dim=() if axis is None else axis, keepdim=keepdims)

    return reduction
