"""CuPy's arrays and sparse matrices, on a GPU; or emulated, as `test_emulated` runs this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.protocol.serialize import deserialize, serialize

from gpusched.serialization.codec.link import KEY, Link
from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import sent

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cupy.cuda.is_available(), reason="CuPy finds no GPU"),
]

VIEWS = {
    "plain": lambda a: a,
    "gaps": lambda a: a[::2, ::2],
    "reversed": lambda a: a[::-1, ::-1],
    "fortran": lambda a: a.transpose((2, 1, 0)),
    "scalar": lambda a: a[0, 0, 0, ...],
    "empty": lambda a: a[:0],
    "axis": lambda a: a[None, :, :1],
}
DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


def make(view: str = "plain", dtype: str = "f4") -> Any:
    return VIEWS[view](cupy.asarray((np.arange(60) % 7).astype(dtype).reshape(3, 4, 5)))


def order(array: Any) -> list[Any]:
    """Return the direction of the axes that have one, and their order in memory."""
    strides = [s for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
    return [*np.sign(strides).tolist(), *np.argsort(np.abs(strides)).tolist()]


def check_same(found: Any, expected: Any) -> None:
    """Check type, dtype, shape, order and values to the bit."""
    assert type(found) is type(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert order(found) == order(expected)
    assert cupy.asnumpy(found).tobytes() == cupy.asnumpy(expected).tobytes()


def on_device(value: Any) -> Any:
    """Return what arrives without leaving the GPU."""
    header, frames = serialize(value, ["cuda"], "raise")
    assert all(hasattr(frame, "__cuda_array_interface__") for frame in frames)
    assert header["compression"] == (False,) * len(frames)
    return deserialize(header, frames)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("way", [sent, on_device])
def test_views_come_back(way: Any, view: str) -> None:
    check_same(way(make(view)), make(view))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [sent, on_device])
def test_dtypes_come_back(way: Any, dtype: str) -> None:
    check_same(way(make("plain", dtype)), make("plain", dtype))


@pytest.mark.parametrize("way", [sent, on_device])
def test_broadcast_is_not_expanded(way: Any) -> None:
    row = cupy.asarray(np.arange(3.0))
    array = cupy.ndarray((1 << 40, 3), row.dtype, row.data, (0, 8))
    assert way(array).strides == (0, 8)


@pytest.mark.parametrize("view", ["plain", "reversed", "fortran"])
def test_bytes_are_compressed_for_a_slow_link(view: str) -> None:
    array = VIEWS[view](cupy.asarray(np.arange(60_000.0).reshape(30, 40, 50)))
    context = {"recipient": {KEY: Link(1.0)}}
    header, frames = serialize(array, ["dask"], "raise", context)
    assert all(isinstance(frame, bytes) for frame in frames)
    assert sum(map(len, frames)) < array.nbytes / 4
    check_same(deserialize(header, frames), array)


def test_dense_frames_are_not_copied() -> None:
    array = make("reversed")
    _, (frame,) = serialize(array, ["cuda"], "raise")
    first = frame.__cuda_array_interface__["data"][0]
    assert first <= array.data.ptr < first + frame.nbytes


def test_damage_is_told() -> None:
    header, frames = serialize(make(), ["cuda"], "raise")
    with pytest.raises(CorruptFrameError, match="frame"):
        deserialize(header, [frames[0][:-4]])
    told = header["sub-header"]
    lie = {**told, "gpusched": told["gpusched"][:-1] + b"?"}
    with pytest.raises(CorruptFrameError):
        deserialize({**header, "sub-header": lie}, frames)


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "dia"])
@pytest.mark.parametrize("way", [sent, on_device])
def test_sparse_matrices_come_back(way: Any, name: str) -> None:
    from cupyx.scipy import sparse

    build = getattr(sparse, f"{name}_matrix")
    data, places = cupy.asarray(np.ones(2, "f4")), cupy.asarray(np.arange(2, dtype="i4"))
    if name == "coo":
        matrix = build((data, (places, places)), shape=(2, 2))
        parts = ("data", "row", "col")
    elif name == "dia":
        matrix = build((cupy.asarray(np.ones((1, 2), "f4")), places[:1]), shape=(2, 2))
        parts = ("data", "offsets")
    else:
        ends = cupy.asarray(np.arange(3, dtype="i4"))
        try:
            matrix = build((data, places, ends), shape=(2, 2))
        except ImportError:
            pytest.skip("cuSPARSE comes with cupy-cuda13x[ctk]")
        parts = ("data", "indices", "indptr")
    found = way(matrix)
    assert type(found) is type(matrix)
    assert tuple(found.shape) == (2, 2)
    for part in parts:
        check_same(getattr(found, part), getattr(matrix, part))
