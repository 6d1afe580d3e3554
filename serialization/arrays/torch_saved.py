"""torch's modules and its tensors without plain bytes, as ``torch.save`` writes them."""

from __future__ import annotations

import io
from typing import Any

import cloudpickle

from gpusched.serialization.arrays import messages, without_gpu
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal

KIND = "torch"
"""The reader of all of torch's."""
_KEY = "saved"


def pack(value: Any) -> Message:
    """Return a tensor or module as a header and a frame.

    Examples
    --------
    >>> import torch
    >>> from gpusched.serialization.arrays import torch_saved
    >>> module = torch_saved.unpack(*torch_saved.pack(torch.nn.Linear(2, 3)))
    >>> module.weight.shape
    torch.Size([3, 2])
    """
    import torch

    buffer = io.BytesIO()
    # Modules that were defined in a script or a notebook are pickled by value.
    torch.save(value, buffer, pickle_module=cloudpickle)
    frames = [buffer.getbuffer()]
    return {"gpusched": seal({"kind": KIND}, frames), messages.KEY: KIND, _KEY: True}, frames


def is_saved(header: dict[str, Any]) -> bool:
    """Return whether a header is of this file's making."""
    return _KEY in header


def unpack(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor or module; what was on a GPU lands on the current one.

    Raises
    ------
    CorruptFrameError
        If the message is damaged.
    WithoutGpuError
        If it was on a GPU, there is none here, and no tensor on the CPU is wanted instead.
    """
    import torch

    messages.check(KIND, unseal(header.get("gpusched"), frames))
    if len(frames) != 1:
        raise CorruptFrameError(f"frames: expected 1, found {len(frames)}")
    return torch.load(io.BytesIO(frames[0]), map_location=_location, weights_only=False)


def has_gpu() -> bool:
    """Return whether torch has a GPU here, or False if tensors on the CPU are wanted instead.

    Raises
    ------
    WithoutGpuError
        If it has none, and they are not.
    """
    import torch

    if torch.cuda.is_available():
        return True
    without_gpu.allow_host("torch tensor of a GPU", "torch finds no GPU", "a tensor on the CPU")
    return False


def _location(storage: Any, location: str) -> Any:
    import torch

    if not location.startswith("cuda"):
        return None
    return storage.cuda(torch.cuda.current_device()) if has_gpu() else storage
