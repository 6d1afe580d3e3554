"""GPU arrays of other libraries, on a GPU; or emulated, as `test_emulated` runs this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.protocol.serialize import deserialize, serialize

from tests.serialization.arrays.libraries import interface
from tests.serialization.arrays.sending import sent

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cupy.cuda.is_available(), reason="CuPy finds no GPU"),
]


def on_device(value: Any) -> Any:
    """Return what arrives without leaving the GPU."""
    return deserialize(*serialize(value, ["cuda"], "raise"))


@pytest.mark.parametrize("way", [sent, on_device])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_arrays_with_the_interface_come_back(way: Any, step: int) -> None:
    array = interface.Array(cupy.asarray(np.arange(12, dtype="f4").reshape(3, 4))[::step])
    assert serialize(array)[0]["sub-header"]["as"] == "dlpack"
    found = way(array)
    assert type(found) is interface.Array
    expected = np.arange(12, dtype="f4").reshape(3, 4)[::step]
    assert np.array_equal(cupy.asnumpy(cupy.asarray(found)), expected)
