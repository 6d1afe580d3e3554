"""What is on a device, by what arrays say of themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusched.workers.memory.sizes import device_nbytes


class Exporter:
    """Says or refuses where it lies, as torch's and JAX's arrays do."""

    nbytes = 12

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "nbytes"),
    [
        ({"shape": (3, 2), "typestr": "<f4"}, 24),
        ({"shape": (3, 2), "typestr": "<f4", "strides": (0, 4)}, 8),
        ({"shape": (3, 0), "typestr": "<f4", "strides": (0, 4)}, 0),
        (AttributeError("is on the host"), 0),
        (RuntimeError("needs a gradient"), 12),
    ],
)
def test_device_bytes_are_those_the_array_tells(answer: Any, nbytes: int) -> None:
    assert device_nbytes([Exporter(answer)]) == nbytes


def test_host_tensors_take_no_device_memory() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    assert device_nbytes(torch.ones(3, requires_grad=True)) == 0


def test_host_arrays_of_jax_take_no_device_memory() -> None:
    jax = pytest.importorskip("jax", reason="needs JAX")
    array = jax.device_put(np.ones(3), jax.devices("cpu")[0])
    assert device_nbytes({"a": array}) == 0
