"""torch's tensors and modules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.protocol.serialize import deserialize, serialize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.serialization.arrays import torch as file
from gpusched.serialization.arrays.device import WithoutGpuError
from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import frames_of, nbytes_sent, received, sent

torch = pytest.importorskip("torch", reason="torch comes with the extra models-test")

DTYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


def check_same(found: Any, expected: Any) -> None:
    """Check type, dtype, shape, order, values to the bit, gradient and need of one."""
    assert type(found) is type(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.requires_grad == expected.requires_grad
    assert found.device.type == expected.device.type
    assert bytes_of(found) == bytes_of(expected)


def bytes_of(tensor: Any) -> bytes:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    plain = plain.clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """Draw views of every kind: with gaps, transposed, expanded, conjugated."""
    dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.frombuffer(bytearray(draw(st.binary(min_size=size, max_size=size))), "u1")
    if dtype is torch.bool:
        raw &= 1
    tensor = torch.from_numpy(raw).view(dtype) if size else torch.empty(shape, dtype=dtype)
    tensor = tensor.reshape(shape)
    tensor = tensor.permute(draw(st.permutations(range(tensor.ndim))))
    if tensor.ndim:
        tensor = tensor[:: draw(st.integers(1, 2))]
    if draw(st.booleans()):
        tensor = tensor.expand(draw(st.integers(0, 3)), *tensor.shape)
    return tensor.conj() if dtype.is_complex and draw(st.booleans()) else tensor


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@given(tensors())
def test_every_tensor_comes_back_as_it_was(tensor: Any) -> None:
    check_same(sent(tensor), tensor)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 1, 2)])
def test_order_in_memory_is_kept(order: tuple[int, ...]) -> None:
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(order)
    assert sent(tensor).stride() == tensor.stride()


def test_channels_last_is_kept() -> None:
    tensor = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert sent(tensor).is_contiguous(memory_format=torch.channels_last)


def test_expanded_is_sent_once() -> None:
    tensor = torch.arange(1000.0).expand(100_000, 1000)
    assert nbytes_sent(tensor) < 10_000
    assert sent(tensor).stride() == (0, 1)
    assert received([bytes(frame) for frame in frames_of(tensor)]).stride() == (0, 1)


def test_a_part_is_sent_without_the_rest() -> None:
    assert nbytes_sent(torch.zeros(1000, 1000)[::100, ::100]) < 2000


def test_gradients_arrive_with_their_leaves() -> None:
    leaf = torch.arange(3.0, requires_grad=True)
    (leaf * 2).sum().backward()
    found = sent(leaf)
    check_same(found, leaf)
    check_same(found.grad, leaf.grad)


def test_computed_tensors_arrive_as_leaves() -> None:
    found = sent(torch.ones(3, requires_grad=True) * 2)
    assert found.requires_grad
    assert found.is_leaf


def test_parameters_and_modules_come_back() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    check_same(sent(parameter), parameter)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    found = sent(module)
    assert torch.equal(found[0].weight, module[0].weight)
    assert found[0].weight.requires_grad


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # Within torch.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # torch 2.11
@pytest.mark.parametrize("kind", ["sparse", "quantized", "attribute"])
def test_tensors_without_plain_bytes_come_back(kind: str) -> None:
    if kind == "sparse":
        tensor = torch.eye(3).to_sparse()
        assert torch.equal(sent(tensor).to_dense(), torch.eye(3))
    elif kind == "quantized":
        tensor = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8)
        assert torch.equal(sent(tensor).dequantize(), torch.ones(3))
    else:
        tensor = torch.ones(3)
        tensor.unit = "m"
        assert sent(tensor).unit == "m"


def test_dense_tensors_are_not_copied() -> None:
    tensor = torch.arange(1000.0)
    assert deserialize(*serialize(tensor)).data_ptr() == tensor.data_ptr()


def test_bytes_are_counted() -> None:
    assert sizeof(torch.zeros(1000)) == 4000
    assert sizeof(torch.zeros(10).expand(1000, 10)) == 40


def test_damage_is_told() -> None:
    header, frames = serialize(torch.arange(100.0))
    frames = [bytearray(frame) for frame in frames]
    frames[0][7] ^= 1
    with pytest.raises(CorruptFrameError, match="checksum"):
        deserialize(header, frames)


@pytest.fixture
def gpu_message(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A message of a tensor that says of itself that it was on a GPU."""
    about = file._about
    monkeypatch.setattr(file, "_about", lambda tensor: {**about(tensor), "device": "cuda"})
    return frames_of(torch.arange(3.0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_tensor_without_a_gpu_is_an_error_unless_host_tensors_are_wanted(
    gpu_message: list[Any],
) -> None:
    with pytest.raises(WithoutGpuError, match=r"torch finds no GPU.*without-gpu to host"):
        received(gpu_message)
    with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
        check_same(received(gpu_message), torch.arange(3.0))
    with (
        dask.config.set({"gpusched.serialization.without-gpu": "maybe"}),
        pytest.raises(ValueError, match="expected error or host"),
    ):
        received(gpu_message)


@given(tensors())
def test_frames_of_a_gpu_hold_the_same_where_a_gpu_is_emulated(tensor: Any) -> None:
    as_tensor = torch.as_tensor
    stream = SimpleNamespace(synchronize=lambda: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.Tensor, "is_cuda", True)
        patched.setattr(torch.cuda, "current_stream", lambda: stream)
        patched.setattr(torch, "as_tensor", lambda data, device: as_tensor(data))
        header, frames = serialize(tensor, ["cuda"], "raise")
        found = deserialize(header, frames)
    check_same(found, tensor)
    assert sum(frame.nbytes for frame in frames) <= max(tensor.nbytes, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@given(tensors())
def test_gpu_tensor_comes_back_on_the_gpu(tensor: Any) -> None:
    tensor = tensor.to("cuda")
    for serializers in (["cuda"], ["dask"]):
        header, frames = serialize(tensor, serializers, "raise")
        check_same(deserialize(header, frames), tensor)
