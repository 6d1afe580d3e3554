"""Functions of NumPy arrays, functions of another library's arrays, and functions that load."""

from __future__ import annotations

import inspect
from typing import Any

import cloudpickle
import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.errors import ModelError
from gpusched.models.views import placed, to_array


def pack(value: Any) -> Packed:
    """Return a function pickled: by value, if it is none of an installed module."""
    name = str(getattr(getattr(value, "func", value), "__name__", type(value).__name__))
    form = "loader" if loads(value) else "function"
    return Packed("function_models", form, name, cloudpickle.dumps(value))


def loads(value: Any) -> bool:
    """Return whether a function takes no arguments, and so can only return a model.

    Examples
    --------
    >>> from gpusched.models.function_models import loads
    >>> loads(lambda: 1), loads(lambda x: x), loads(abs)
    (True, False, False)
    """
    if not callable(value):
        return False
    try:
        return not inspect.signature(value).parameters
    except (TypeError, ValueError):
        # Written in C, and does not tell.
        return False


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return a function ready to be called, or the model that it loads."""
    from gpusched.models import recognise

    value = cloudpickle.loads(packed.content)
    if packed.form == "function":
        return recognise.library(library).adopt(value, device) if library else adopt(value, device)
    found = value()
    if found is None:
        raise ModelError(
            f"{packed.name} takes no arguments, so it should return a model; it returned None"
        )
    return recognise.adopt(found, device, library)


def adopt(value: Any, device: str | None) -> Model:
    """Return a function, or an object with methods, ready to be called."""
    if device is not None:
        raise ModelError(
            f"device={device!r} is of no use to a function of NumPy arrays: pass library= with it"
        )
    return Function(value)


class Function(Plain):
    """Called on the chunks as they are.

    Notes
    -----
    Called by several threads at once.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what the function gives."""
        if method is None and not callable(self._value):
            raise ModelError(f"a {type(self._value).__name__} cannot be called: pass method=")
        target = self._value if method is None else getattr(self._value, method)
        return target(*arrays, **kwargs)

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a result as an array where the chunk is."""
        detached = value.detach() if getattr(value, "requires_grad", False) else value
        return placed(to_array(detached), like)
