"""torch's tensors and modules, on the CPU and on GPUs.

Strided tensors of torch's own types travel as their bytes, with their strides, gradients and need
of one. A tensor that was computed from such ones arrives as a leaf, as when it is pickled. Sparse,
quantized and nested tensors, subclasses and modules travel as ``torch.save`` writes them, which
keeps what they share. Page-locked memory arrives as ordinary memory.

A tensor on a GPU lands on the receiver's current GPU, whatever its number was.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import cloudpickle
import numpy as np
from dask.sizeof import sizeof

from gpusched.serialization.arrays import device, messages
from gpusched.serialization.arrays.registration import replace, replace_cuda
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal
from gpusched.serialization.strided import Layout, Message

_KIND = "torch"
_SAVED = "saved"
"""What only headers of `save` have."""
_OF_NUMPY = frozenset((
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
))  # fmt: skip
_OF_THEIR_SIZE = {1: "uint8", 2: "int16", 4: "int32"}
"""Dtypes that NumPy has, by their bytes, for those of torch's that it lacks."""


def cuda_serialize(tensor: Any) -> Message:
    """Return a tensor on a GPU as a header and frames there; only tensors with gaps are copied.

    Raises `NotImplementedError` if the tensor is not a plain one on a GPU; distributed then goes on
    with the next family.
    """
    import torch

    if not _is_plain(tensor) or not tensor.is_cuda:
        raise NotImplementedError("only strided tensors on a GPU have frames there")
    small = _unrepeated(_bare(tensor))
    if _reach(small) > small.numel():
        small = small.clone(memory_format=torch.preserve_format)
    # Whoever sends the frame uses another stream than the one that fills it.
    torch.cuda.current_stream().synchronize()
    flat = small.as_strided((_reach(small),), (1,)).view(torch.uint8)
    size = tensor.element_size()
    strides = tuple(stride * size for stride in _strides(tensor, small))
    layout = Layout(tuple(tensor.shape), strides, 0)
    message = device.pack(_KIND, layout, np.dtype(f"V{size}"), flat, **_about(tensor))
    return _with_gradient(tensor, message, cuda_serialize)


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor, over the frames.

    Raises `CorruptFrameError` if the header is damaged.
    """
    import torch

    if messages.is_joined(header):
        return _join_gradient(header, frames, cuda_deserialize)
    layout, held, frame, about = device.unpack(_KIND, header, frames)
    dtype = _dtype(about, held)
    flat = torch.as_tensor(frame, device="cuda").view(dtype)
    strides = [stride // held.itemsize for stride in layout.strides]
    return _finished(flat.as_strided(layout.shape, strides), about)


def serialize(tensor: Any, context: dict[str, Any] | None = None) -> Message:
    """Return a tensor as a header and frames in host memory.

    Examples
    --------
    >>> import torch
    >>> from gpusched.serialization.arrays.torch import deserialize, serialize
    >>> deserialize(*serialize(torch.ones(2, 3, dtype=torch.bfloat16).t())).stride()
    (1, 3)
    """
    if not _is_plain(tensor):
        return save(tensor)
    small = _unrepeated(_bare(tensor)).cpu()
    array = np.lib.stride_tricks.as_strided(
        small.view(_held(small.dtype)).numpy(),
        tuple(tensor.shape),
        tuple(stride * tensor.element_size() for stride in _strides(tensor, small)),
    )
    message = messages.pack(_KIND, array, context, **_about(tensor))
    return _with_gradient(tensor, message, lambda part: serialize(part, context))


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor, over the frames, or on the current GPU if it was on one.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `ModuleNotFoundError` if there is no torch here; `WithoutGpuError` if the tensor was on a GPU,
    there is none here, and no tensor on the CPU is wanted instead.
    """
    device.require("torch", "a torch tensor")
    if not messages.is_ours(header):
        from distributed.protocol.torch import deserialize_torch_Tensor

        return deserialize_torch_Tensor(header, frames)
    import torch

    if _is_saved(header):
        return _load(header, frames)
    if messages.is_joined(header):
        return _join_gradient(header, frames, deserialize)
    array, about = messages.unpack(_KIND, header, frames)
    tensor = torch.from_numpy(array).view(_dtype(about, array.dtype))
    return _finished(_moved(tensor) if about.get("device") == "cuda" else tensor, about)


def deserialize_parameter(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the parameter; as `deserialize`, but for what distributed itself has sent."""
    if messages.is_ours(header):
        return deserialize(header, frames)
    from distributed.protocol.torch import deserialize_torch_Parameters

    return deserialize_torch_Parameters(header, frames)


def deserialize_module(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the module; as `deserialize`, but for what distributed itself has sent."""
    if messages.is_ours(header):
        return deserialize(header, frames)
    from distributed.protocol.serialize import ObjectDictSerializer

    return ObjectDictSerializer("dask").deserialize(header, frames)


def _is_plain(tensor: Any) -> bool:
    """Return whether bytes, shape, strides and dtype say everything about a tensor."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not (tensor.is_quantized or tensor.is_nested or tensor.__dict__)
        and not tensor._backward_hooks
        and _held(tensor.dtype) is not None
    )


def _held(dtype: Any) -> Any:
    """Return a dtype of the same size that NumPy has too, or None if there is none."""
    import torch

    name = str(dtype).removeprefix("torch.")
    if name in _OF_NUMPY:
        return dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        return None
    return getattr(torch, _OF_THEIR_SIZE.get(dtype.itemsize, ""), None)


def _bare(tensor: Any) -> Any:
    # Conjugation and negation may be waiting to be applied.
    return tensor.detach().resolve_conj().resolve_neg()


def _unrepeated(tensor: Any) -> Any:
    """Return a tensor without what `expand` has repeated."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor[tuple(slice(1 if n > 1 and not stride else None) for n, stride in sizes)]


def _strides(tensor: Any, small: Any) -> tuple[int, ...]:
    """Return the strides of `small`, in elements, with 0 where `tensor` repeats itself."""
    sizes = zip(tensor.shape, small.shape, small.stride(), strict=True)
    return tuple(0 if n != kept else stride for n, kept, stride in sizes)


def _reach(tensor: Any) -> int:
    """Return the elements from a tensor's first to its last in memory."""
    if not tensor.numel():
        return 0
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((n - 1) * stride for n, stride in sizes)


def _about(tensor: Any) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,
        "requires_grad": tensor.requires_grad,
        "type": type(tensor).__name__,
    }


def _dtype(about: dict[str, Any], held: np.dtype) -> Any:
    import torch

    dtype = getattr(torch, str(about.get("dtype")), None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != held.itemsize:
        raise CorruptFrameError(
            f"tensor: expected a dtype of torch's as long as {held}, found {about.get('dtype')!r}"
        )
    return dtype


def _moved(tensor: Any) -> Any:
    """Return a tensor on the current GPU, in the same order."""
    if not _has_gpu():
        return tensor
    return _unrepeated(tensor).to("cuda").expand(tensor.shape)


def _finished(tensor: Any, about: dict[str, Any]) -> Any:
    import torch

    if about.get("type") == "Parameter":
        return torch.nn.Parameter(tensor, bool(about.get("requires_grad")))
    return tensor.requires_grad_() if about.get("requires_grad") else tensor


def _with_gradient(tensor: Any, message: Message, pack: Any) -> Message:
    # Only leaves keep a gradient; torch warns of those who ask others.
    gradient = tensor.grad if tensor.is_leaf else None
    return message if gradient is None else messages.join(_KIND, [message, pack(gradient)])


def _join_gradient(header: dict[str, Any], frames: list[Any], read: Any) -> Any:
    sent, _ = messages.split(_KIND, header, frames)
    if len(sent) != 2:
        raise CorruptFrameError(f"tensor: expected itself and a gradient, found {len(sent)}")
    tensor, tensor.grad = (read(*message) for message in sent)
    return tensor


def save(value: Any) -> Message:
    """Return a tensor or module as a header and a frame.

    Examples
    --------
    >>> import torch
    >>> from gpusched.serialization.arrays.torch import deserialize, save
    >>> module = deserialize(*save(torch.nn.Linear(2, 3)))
    >>> module.weight.shape
    torch.Size([3, 2])
    """
    import torch

    buffer = io.BytesIO()
    # Modules that were defined in a script or a notebook are pickled by value.
    torch.save(value, buffer, pickle_module=cloudpickle)
    frames = [buffer.getbuffer()]
    return {"gpusched": seal({"kind": _KIND}, frames), messages.KEY: _KIND, _SAVED: True}, frames


def _is_saved(header: dict[str, Any]) -> bool:
    """Return whether a header is one of `save`."""
    return _SAVED in header


def _load(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor or module; what was on a GPU lands on the current one.

    Raises `CorruptFrameError` if the message is damaged; `WithoutGpuError` if it was on a GPU,
    there is none here, and no tensor on the CPU is wanted instead.
    """
    import torch

    messages.check(_KIND, unseal(header.get("gpusched"), frames))
    if len(frames) != 1:
        raise CorruptFrameError(f"frames: expected 1, found {len(frames)}")
    return torch.load(io.BytesIO(frames[0]), map_location=_location, weights_only=False)


def _has_gpu() -> bool:
    """Return whether torch has a GPU here, or False if tensors on the CPU are wanted instead.

    Raises `WithoutGpuError` if it has none, and they are not.
    """
    import torch

    if torch.cuda.is_available():
        return True
    device.allow_host("torch tensor of a GPU", "torch finds no GPU", "a tensor on the CPU")
    return False


def _location(storage: Any, location: str) -> Any:
    import torch

    if not location.startswith("cuda"):
        return None
    return storage.cuda(torch.cuda.current_device()) if _has_gpu() else storage


def register() -> None:
    """Take the place of distributed's own functions."""
    import torch

    # Imported first, so that it does not take the place back later.
    importlib.import_module("distributed.protocol.torch")
    replace(torch.Tensor, serialize, deserialize)
    replace(torch.nn.Parameter, serialize, deserialize_parameter)
    replace(torch.nn.Module, save, deserialize_module)
    replace_cuda(torch.Tensor, cuda_serialize, cuda_deserialize)
    sizeof.register(torch.Tensor, _nbytes)


def _nbytes(tensor: Any) -> int:
    """Return the bytes of a tensor's elements, of repeated ones once."""
    import torch

    small = _unrepeated(tensor) if tensor.layout is torch.strided else tensor
    return int(small.nbytes)
