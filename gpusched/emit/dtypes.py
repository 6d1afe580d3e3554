"""The table of dtypes: which ones kernels read and write, and which numbers stand for each in them.

Everything that asks whether kernels have a dtype asks here, or whether two numbers are the same.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np

HALF = np.dtype(np.float16)

DECLARABLE = frozenset(np.dtype(t) for t in "?bhilqBHILQfd")
"""Dtypes that users' own scalar functions can take and return, and of tables that are looked up."""

_PARTS: dict[np.dtype, np.dtype] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}

_COMPUTED: dict[np.dtype, np.dtype] = {
    **{dtype: dtype for dtype in (*DECLARABLE, *_PARTS)},
    HALF: np.dtype(np.float32),
}
"""By dtype of an array's elements, that of the numbers which stand for them in a kernel.

NumPy computes with float16 in float32, and rounds the result of each operation. Complex numbers are
split where they are read, and joined where they are written.
"""

SUPPORTED = frozenset(_COMPUTED)
"""Dtypes of arrays that kernels read and write; everything else is handed over unfused."""


def computed(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the numbers that stand for elements of another one in a kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.emit.dtypes import computed
    >>> computed(np.dtype("float16")), computed(np.dtype("int8"))
    (dtype('float32'), dtype('int8'))
    """
    return _COMPUTED[dtype]


def part(dtype: np.dtype) -> np.dtype:
    """Return the dtype of a complex number's real and imaginary part.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.emit.dtypes import part
    >>> part(np.dtype("complex64"))
    dtype('float32')
    """
    return _PARTS[dtype]


@lru_cache(maxsize=64)
def computed_name(name: str) -> str:
    """Return the same by name.

    Examples
    --------
    >>> from gpusched.emit.dtypes import computed_name
    >>> computed_name("float16")
    'float32'
    """
    return computed(np.dtype(name)).name


def exact(number: float | complex) -> Any:
    """Return what numbers have in common only if they have the same bits: zeros and NaN have signs.

    Examples
    --------
    >>> from gpusched.emit.dtypes import exact
    >>> exact(0.0) == exact(-0.0), exact(float("nan")) == exact(float("nan"))
    (False, True)
    """
    if isinstance(number, complex):
        return exact(number.real), exact(number.imag)
    return number.hex() if number == number else struct.pack("d", number)


def is_compared_whole(dtype: np.dtype) -> bool:
    """Return whether a comparison with this dtype regards all that it has.

    Metadata is left out, and so is that of fields.
    """
    return dtype.metadata is None and dtype.fields is None and dtype.subdtype is None
