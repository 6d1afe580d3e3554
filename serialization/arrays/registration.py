"""Which file serializes the arrays of which library, imported once that library is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from dask.sizeof import sizeof
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gpusched.serialization import clients
from gpusched.serialization.arrays import families

_FILES = {
    "numpy": ("numpy", "masked"),
    "cupy": ("cupy", "cupyx_sparse", "numba_cuda"),
    "gpusched": ("placed",),
    "cupyx": ("cupy", "cupyx_sparse", "numba_cuda"),
    "numba": ("numba_cuda",),
    "torch": ("torch",),
    "torchvision": ("torch",),
    "jax": ("jax",),
    "jaxlib": ("jax",),
    "tensorflow": ("tensorflow",),
}
"""Libraries, and the files of this folder that register their types. distributed's own file for
CuPy also registers numba's arrays, so ours for these must follow."""

_PROOF = {"numba": "numba.cuda"}
"""The module that has been imported if a library's arrays exist; else the library itself."""

_SIZED = ("torch", "jax", "jaxlib", "tensorflow")
"""Libraries whose arrays dask cannot size."""


def register() -> None:
    """Take the place of distributed's own functions; a second time changes nothing.

    Both sides of a connection need it: what one sends, distributed's own functions do not read.
    What distributed's own functions have sent is read. No library is imported.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed.protocol import deserialize, serialize
    >>> import gpusched.serialization
    >>> gpusched.serialization.register()
    >>> header, frames = serialize(np.arange(6.0).reshape(2, 3).T[::-1])
    >>> deserialize(header, frames).strides
    (-8, 24)
    """
    families.register()
    clients.register()
    for library in _FILES:
        function = _registration(library)
        for dispatch in (dask_serialize, dask_deserialize, cuda_serialize, cuda_deserialize):
            dispatch.register_lazy(library, function)
        if library in _SIZED:
            sizeof.register_lazy(library, function)
        # A type that was sent or sized before is noted, and asks no more who else knows it.
        if _PROOF.get(library, library) in sys.modules:
            function()


def _registration(library: str) -> Callable[[], None]:
    def function() -> None:
        for name in _FILES[library]:
            importlib.import_module(f"gpusched.serialization.arrays.{name}").register()

    return function
