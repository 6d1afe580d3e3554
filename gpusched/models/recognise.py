"""Which library a model is of, and the model as it travels."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusched.models import onnx, sklearn, tensorflow, torch
from gpusched.models.base import Model, Packed
from gpusched.models.errors import ModelError

_KINDS = ("torch", "jax", "tensorflow", "onnx", "sklearn")
_LIBRARIES = ("torch", "jax", "tensorflow")
"""Those whose arrays plain functions can ask for."""


def kind_of(value: Any) -> str:
    """Return the name of the file that knows a model.

    Examples
    --------
    >>> from gpusched.models.recognise import kind_of
    >>> kind_of(abs)
    'function_models'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "onnx"
    for kind in _KINDS:
        # A model of a library that is not imported does not exist.
        if kind in sys.modules and importlib.import_module(f"gpusched.models.{kind}").recognises(
            value
        ):
            return kind
    return "function_models"


def check(value: Any) -> None:
    """Raise `TypeError` if a value is not a model: a class, or a number for example."""
    if isinstance(value, type):
        raise TypeError(
            f"{value.__name__} is a class: pass an object, or a function that makes one, as in "
            f"gpusched.apply(lambda: {value.__name__}(), x)"
        )
    unknown = not isinstance(value, str | os.PathLike) and kind_of(value) == "function_models"
    if unknown and not callable(value) and type(value).__module__ == "builtins":
        raise TypeError(f"a model or a function is wanted, not {value!r:.100}")


def pack(value: Any) -> Packed:
    """Return a model as it travels.

    Raises `ModelError` if it cannot be pickled; `TypeError` if it is not a model.
    """
    check(value)
    if isinstance(value, str | os.PathLike):
        return _pack_file(Path(value))
    kind = kind_of(value)
    try:
        packed: Packed = importlib.import_module(f"gpusched.models.{kind}").pack(value)
    except ModelError:
        raise
    except Exception as error:  # whatever an object raises as it is pickled
        raise ModelError(
            f"the model {getattr(value, '__name__', type(value).__name__)} cannot be sent to "
            f"workers ({type(error).__name__}: {error}): save it to a file and pass the path, or "
            "pass a function that loads it there, as in gpusched.apply(lambda: load(), x)"
        ) from error
    return packed


def _pack_file(path: Path) -> Packed:
    path = path.expanduser().absolute()
    for one in (torch, onnx, sklearn, tensorflow):
        if path.suffix in one.SUFFIXES or (one is tensorflow and path.is_dir()):
            packed = one.pack_file(path)
            return replace(packed, size=path.stat().st_size) if path.is_file() else packed
    known = [suffix for one in (torch, onnx, sklearn, tensorflow) for suffix in one.SUFFIXES]
    raise ModelError(
        f"{path} is not a model: files end with {', '.join(known)}, and a folder is a SavedModel"
    )


def library(name: str) -> Any:
    """Return the file of a library whose arrays a function takes.

    Raises `ValueError` if there is none.
    """
    if name not in _LIBRARIES:
        raise ValueError(f"library={name!r}: functions can take arrays of {', '.join(_LIBRARIES)}")
    return importlib.import_module(f"gpusched.models.{name}")


def adopt(value: Any, device: str | None, wanted: str | None) -> Model:
    """Return what a function has loaded, ready to be called."""
    if isinstance(value, str | os.PathLike):
        packed = pack(value)
        found: Model = importlib.import_module(f"gpusched.models.{packed.kind}").load(
            packed, device, wanted
        )
        return found
    kind = kind_of(value)
    reader = library(wanted) if wanted and kind == "function_models" else None
    found = (reader or importlib.import_module(f"gpusched.models.{kind}")).adopt(value, device)
    return found
