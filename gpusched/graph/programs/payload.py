"""A program's steps as few bytes."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from functools import reduce
from types import CodeType, FunctionType
from typing import Any

import cloudpickle
from toolz import curry  # type: ignore[import-untyped]

from gpusched.graph.functions import libraries
from gpusched.graph.functions.partials import parts
from gpusched.graph.running.decisions import Remaining
from gpusched.plan.overrides import NONE, Overrides
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep


class _Compact(cloudpickle.Pickler):
    """cloudpickle, without what the other side knows by itself."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is Register:
            whole = value.item is None
            return Register, (value.number,) if whole else (value.number, value.item)
        if kind is ProgramStep:
            flags = value.recorded, value.replayed
            rest = (value.taken, True) if value.shown else (value.taken,) if value.taken else ()
            return ProgramStep, (value.function, value.args, value.kwargs, *flags, *rest)
        if kind is Remaining:
            return Remaining, ()  # What a program is says nothing of how often it runs.
        if kind is curry:
            return _reduce_curry(value)
        return super().reducer_override(value)


def _reduce_curry(value: Any) -> Any:
    # dask wraps functions such as `ones` in these; they carry NumPy's documentation with them.
    restore, (kind, function, args, kwargs, attributes, decorated) = value.__reduce__()
    plain = vars(kind(value.func, *value.args, **value.keywords))
    derived = {"__doc__", "_has_unknown_args"} | {k for k, v in attributes if plain.get(k) is v}
    kept = tuple((k, v) for k, v in attributes if k not in derived)
    return restore, (kind, function, args, kwargs, kept, decorated)


def pack(steps: tuple[ProgramStep, ...], inputs: int, overrides: Overrides = NONE) -> bytes:
    """Return a program pickled: below 2 KiB for ten of NumPy's functions.

    Functions of ``__main__``, lambdas and closures go by value, as cloudpickle has them.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.plan.plan import Register
    >>> from gpusched.graph.programs.payload import pack, unpack
    >>> from gpusched.record.steps import ProgramStep
    >>> steps = tuple(ProgramStep(np.add, (Register(k), 1)) for k in range(10))
    >>> unpack(pack(steps, 1))[:2] == (steps, 1), len(pack(steps, 1)) < 400
    (True, True)
    """
    file = io.BytesIO()
    _Compact(file, protocol=5).dump((steps, inputs, overrides))
    return file.getvalue()


def named_code(steps: tuple[ProgramStep, ...]) -> str:
    """Return what the users' functions do that are pickled by name, as text.

    A module may be another one the next time, as after ``Client.upload_file``, and the name the
    same.
    """
    found = [
        _code(part.__code__)
        for step in steps
        for part in parts(step.function)
        if isinstance(part, FunctionType) and not libraries.found_by_name(part)
    ]
    return repr(found) if found else ""


def _code(code: CodeType) -> Any:
    consts = [_code(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, consts


class _Loading(pickle.Unpickler):
    """Notes what names stand for; not those of gpusched's own parts, which nobody replaces."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(io.BytesIO(payload))
        self.found: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        if module.partition(".")[0] not in ("gpusched", "cloudpickle"):
            self.found[module, name] = value
        return value


def stand(names: Mapping[tuple[str, str], Any]) -> bool:
    """Return whether names of modules and of what is in them stand for the same as before.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.programs.payload import stand
    >>> stand({("numpy", "ndarray.sum"): np.ndarray.sum}), stand({("numpy", "add"): np.subtract})
    (True, False)
    """
    try:
        return all(
            [
                reduce(getattr, name.split("."), sys.modules[module]) is value
                for (module, name), value in names.items()
            ]
        )
    except (AttributeError, KeyError):
        return False


def unpack(
    payload: bytes, names: dict[tuple[str, str], Any] | None = None
) -> tuple[tuple[ProgramStep, ...], int, Overrides]:
    """Return what `pack` was given.

    Parameters
    ----------
    payload
        What `pack` returned.
    names
        Gets what was found by the names of modules and of what is in them.
    """
    loading = _Loading(payload)
    found: tuple[tuple[ProgramStep, ...], int, Overrides] = loading.load()
    if names is not None:
        names.update(loading.found)
    return found
