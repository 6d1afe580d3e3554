"""scikit-learn's estimators, and those of other libraries that derive from them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gpusched.models.base import Model, Packed, Plain
from gpusched.models.errors import ModelError
from gpusched.models.views import placed, to_array

LIBRARY = "sklearn"
SUFFIXES = (".joblib", ".pkl", ".pickle")

_METHODS = ("predict", "transform")
"""What is called if nothing else is said: the first that the estimator has."""


def recognises(value: Any) -> bool:
    """Return whether a value is an estimator."""
    import sklearn.base

    return isinstance(value, sklearn.base.BaseEstimator)


def pack(value: Any) -> Packed:
    """Return an estimator pickled, which other versions of scikit-learn must not read."""
    versions = (("scikit-learn", version("scikit-learn")),)
    name = type(value).__name__
    return Packed("sklearn", "pickled", name, cloudpickle.dumps(value), versions=versions)


def pack_file(path: Path) -> Packed:
    """Return a file that workers read by themselves."""
    return Packed("sklearn", "file", path.name, path=str(path))


def load(packed: Packed, device: str | None, library: str | None) -> Model:
    """Return an estimator ready to be called."""
    if packed.form == "pickled":
        return adopt(cloudpickle.loads(packed.content), device)
    import joblib

    return adopt(joblib.load(packed.path), device)


def adopt(value: Any, device: str | None) -> Model:
    """Return an estimator ready to be called."""
    if device not in (None, "cpu"):
        raise ModelError(f"scikit-learn's estimators are called on the CPU, not on {device!r}")
    return SklearnModel(value)


class SklearnModel(Plain):
    """An estimator.

    Notes
    -----
    Thread-safe as far as is known: predictions and transformations read what was fitted.
    """

    policy = "sklearn"

    def __init__(self, value: Any) -> None:
        self._value = value

    def run(self, method: str | None, arrays: list[Any], kwargs: dict[str, Any], cast: bool,
            owned: bool) -> Any:  # fmt: skip
        """Return what a method of the estimator gives."""
        name = method or next((name for name in _METHODS if hasattr(self._value, name)), None)
        target = getattr(self._value, name, None) if name else None
        if target is None:
            raise ModelError(
                f"{type(self._value).__name__} has no {name or ' or '.join(_METHODS)}: "
                f"pass method=; it has {_methods(self._value)}"
            )
        return target(*arrays, **kwargs)

    def array(self, value: Any, like: Any, dtype: np.dtype | None) -> Any:
        """Return a result as it is, or on the GPU."""
        return placed(to_array(value), like)


def _methods(value: Any) -> list[str]:
    names = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform",
             "inverse_transform", "score_samples", "apply")  # fmt: skip
    return [name for name in names if hasattr(value, name)]
