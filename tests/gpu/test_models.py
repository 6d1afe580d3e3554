"""Chunks on a GPU as models of other libraries are lent them.

The libraries' builds for CPUs take no memory of a GPU: with those for GPUs, the step `models` of
`make gpu-report` calls each on chunks of every layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.models.views import lendable

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "reversed": lambda x: x[:, ::-1],
    "every other": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "broadcast": lambda x: np.broadcast_to(x[:1], (5, *x[0].shape)),
    "a part": lambda x: x[2:5, 1:3],
    "rows": lambda x: x[2:5],
    "scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "c8", "?"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_lent_is_compact_and_has_the_values(name: str, dtype: str) -> None:
    values = (np.arange(64).reshape(8, 8) % 7).astype(dtype)
    chunk = LAYOUTS[name](cupy.asarray(values))
    lent = lendable(chunk)
    assert lent.flags.c_contiguous
    taken = cupy.from_dlpack(lent)
    assert np.array_equal(taken.get(), LAYOUTS[name](values))
    assert (lent is chunk) == chunk.flags.c_contiguous


def test_dtypes_that_dlpack_lacks_are_refused() -> None:
    with pytest.raises(TypeError, match="DLPack"):
        lendable(np.array(["a"]))
