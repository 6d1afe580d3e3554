"""torch: modules, TorchScript, exported programs, and functions of tensors.

Tensors share the chunks' memory on the CPU; no graph for gradients is kept.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.errors import ModelError, WritesInputError
from gpusched.models.torch_threads import shared
from gpusched.models.views import is_cupy, lendable, placed

LIBRARY = "torch"
SUFFIXES = (".pt", ".pth", ".pt2", ".ts")

PIECE = 1024 * 1024
"""Bytes of rows that a module is given at a time on the CPU, unless its parameters are more.

A smaller piece would read those too often.
"""


def recognises(value: Any) -> bool:
    """Return whether a value is a module, a TorchScript function or an exported program."""
    import torch

    kinds = (torch.nn.Module, torch.jit.ScriptFunction, torch.export.ExportedProgram)
    return isinstance(value, kinds)


def pack(value: Any) -> Packed:
    """Return a model as its own format has it; plain modules are pickled."""
    import torch

    buffer = io.BytesIO()
    name = getattr(value, "original_name", type(value).__name__)
    if isinstance(value, torch.export.ExportedProgram):
        torch.export.save(value, buffer)
        return Packed("torch", "exported", name, buffer.getvalue())
    _refuse_training(value, name)
    if isinstance(value, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        torch.jit.save(value, buffer)
        return Packed("torch", "script", name, buffer.getvalue())
    torch.save(value, buffer, pickle_module=cloudpickle)
    versions = (("torch", version("torch")),)
    return Packed("torch", "module", name, buffer.getvalue(), versions=versions)


def pack_file(path: Path) -> Packed:
    """Return a file that workers read by themselves."""
    form = "exported" if path.suffix == ".pt2" else "file"
    return Packed("torch", form, path.name, path=str(path))


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return a model ready to be called."""
    import torch

    source = packed.path or io.BytesIO(packed.content)
    if packed.form == "exported":
        return adopt(torch.export.load(source), device)
    if packed.form == "script":
        return adopt(torch.jit.load(source, map_location="cpu"), device)
    if packed.form == "file" and _is_script(packed.path):
        return adopt(torch.jit.load(source, map_location="cpu"), device)
    value = torch.load(source, map_location="cpu", weights_only=False)
    if not callable(value):
        raise ModelError(
            f"{packed.path} holds a {type(value).__name__}, which is not a model but its weights: "
            "pass a function that makes the model and loads them"
        )
    return adopt(value, device)


def adopt(value: Any, device: str | None) -> Model:
    """Return a model, or a function of tensors, ready to be called."""
    return TorchModel(value, device)


class TorchModel(Plain):
    """A module, a program, or a function of tensors.

    Notes
    -----
    Thread-safe in evaluation mode: calls only read the module. Modules with a part in training
    mode run under the registry's policy for torch, which is a lock.
    """

    def __init__(self, value: Any, device: str | None) -> None:
        import torch

        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if isinstance(value, torch.export.ExportedProgram):
            # Has no modes any more.
            self.rows = _fixed_rows(value)
            value = value.module()
        else:
            _refuse_training(value, type(value).__name__)
            self.policy = "torch" if _partly_training(value) else ""
            if self._device.type == "cpu" and not self.policy:
                self.piece = _piece(value)
        self.on_gpu = self._device.type == "cuda"
        self._value = value.to(self._device) if hasattr(value, "to") else value
        self._dtype = _floating(value)
        self._name = str(getattr(value, "__name__", type(value).__name__))

    def mismatch(self, number: int, dtype: np.dtype) -> str:
        """Return the dtype of the model's weights, for an array of other floating numbers."""
        if self._dtype is None or dtype.kind != "f":
            return ""
        wanted = str(self._dtype).removeprefix("torch.")
        return "" if wanted == dtype.name else wanted

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what the model gives, without a graph for gradients."""
        import torch

        given = [self._tensor(array, cast) for array in arrays]
        # Counted by torch for these, which are made outside of inference mode.
        before = [tensor._version for tensor in given]
        target = self._value if method is None else getattr(self._value, method)
        with torch.inference_mode():
            found = target(*given, **kwargs)
        if not owned and before != [tensor._version for tensor in given]:
            raise WritesInputError(self._name)
        return found

    def _tensor(self, array: Any, cast: bool) -> Any:
        import torch

        tensor = torch.from_dlpack(lendable(array))
        if cast and self._dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor.to(self._device)

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a tensor as an array over the same memory, if that is on the right side."""
        import torch

        if not isinstance(value, torch.Tensor):
            from gpusched.models.views import to_array

            return placed(to_array(value), like)
        value = value.detach().resolve_conj().resolve_neg()
        if value.layout is not torch.strided:
            raise TypeError(f"a tensor with layout {value.layout}: have the model give dense ones")
        if value.dtype is torch.bfloat16:
            if dtype is None:
                raise TypeError("bfloat16, which NumPy lacks: pass dtype='float32'")
            value = value.float()
        if is_cupy(like):
            import cupy

            return cupy.from_dlpack(value) if value.is_cuda else cupy.asarray(value.numpy())
        return value.cpu().numpy()

    def sharing(self, tasks: int) -> AbstractContextManager[None]:
        """Return what limits torch's own threads on the CPU."""
        return shared(tasks) if self._device.type == "cpu" else super().sharing(tasks)

    def afterwards(self) -> Callable[[], None]:
        """Return what gives torch's free blocks back to the GPU, for a model that was there."""
        import torch

        return torch.cuda.empty_cache if self._device.type == "cuda" else super().afterwards()


def _refuse_training(value: Any, name: str) -> None:
    if getattr(value, "training", False):
        raise ModelError(
            f"{name} is in training mode, where dropout is random and batch normalisation mixes "
            "rows and changes the model, so that results depend on chunks and threads: call "
            "model.eval() first"
        )


def _partly_training(value: Any) -> bool:
    import torch

    modules = value.modules() if isinstance(value, torch.nn.Module) else ()
    return any(getattr(module, "training", False) for module in modules)


def _piece(value: Any) -> int | None:
    """Return the bytes of rows that a module is best given at a time; None where it has no say.

    Functions may do anything, and what was traced may have taken the number of rows as a constant.
    """
    import torch

    if not isinstance(value, torch.nn.Module) or isinstance(value, torch.jit.ScriptModule):
        return None
    return max(PIECE, sum(p.numel() * p.element_size() for p in value.parameters()))


def _floating(value: Any) -> Any:
    """Return the one floating dtype of a module's weights; None if it has none or several."""
    if not hasattr(value, "parameters"):
        return None
    found = {p.dtype for p in value.parameters() if p.is_floating_point()}
    return found.pop() if len(found) == 1 else None


def _fixed_rows(program: Any) -> int | None:
    """Return the rows that a program was exported for, unless it takes any number."""
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    shape = list(getattr(nodes[names[0]].meta.get("val"), "shape", ())) if names else []
    return shape[0] if shape and type(shape[0]) is int else None


def _is_script(path: str) -> bool:
    import zipfile

    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") for name in archive.namelist())
