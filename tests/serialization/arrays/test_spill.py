"""Arrays of every library on their way to disk and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.workers.memory.spillfiles import SpillFiles

BIG = 1_000_000


def masked() -> Any:
    return np.ma.MaskedArray(np.arange(BIG), np.arange(BIG) % 2 == 0, fill_value=7)


def tensor() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    leaf = torch.arange(BIG, dtype=torch.float32).reshape(1000, -1).requires_grad_()
    (leaf * leaf).sum().backward()
    return leaf


def transposed() -> Any:
    return tensor().detach().t()


def module() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.nn.Linear(1000, 100)


def array() -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    return jax.numpy.arange(BIG, dtype="bfloat16").reshape(1000, -1)


def told(value: Any) -> Any:
    """Return everything that must be the same."""
    if hasattr(value, "weight"):
        return told(value.weight)
    if isinstance(value, np.ma.MaskedArray):
        return value.data.tobytes(), value.mask.tobytes(), value.fill_value
    gradient = getattr(value, "grad", None)
    plain = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
    return (
        type(value),
        value.dtype,
        plain.shape,
        plain.strides,
        plain.tobytes(),
        gradient is not None and told(gradient),
    )


@pytest.mark.parametrize("compression", [False, "auto", True])
@pytest.mark.parametrize("make", [masked, tensor, transposed, module, array])
def test_values_come_back_from_disk(
    tmp_path: Path, make: Callable[[], Any], compression: object
) -> None:
    value = make()
    with dask.config.set({"gpusched.serialization.compression": compression}):
        files = SpillFiles(tmp_path / "files")
        files["key"] = value
        assert told(files["key"]) == told(value)


def test_arrays_of_other_libraries_are_compressed(tmp_path: Path) -> None:
    # Not "auto", which leaves it on a machine that is busy enough.
    with dask.config.set({"gpusched.serialization.compression": True}):
        files = SpillFiles(tmp_path / "files")
        files["key"] = masked()
    (file,) = (path for path in (tmp_path / "files").rglob("*") if path.is_file())
    assert file.stat().st_size < BIG
