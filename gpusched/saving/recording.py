"""Functions as the graph of what they call, found by running them on arrays without values."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import is_dask_collection
from dask.highlevelgraph import HighLevelGraph

from gpusched.adapters.tasks import Task
from gpusched.saving.errors import UnsavableError
from gpusched.saving.structure import summary


@dataclass(frozen=True)
class Recorded:
    """What a function does with its inputs."""

    name: str
    inputs: dict[str, Any]
    """dask arrays without values, by the parameter they were given for."""
    constants: dict[str, str]
    """The other arguments, as text."""
    result: Any
    """What the function returned: dask arrays that depend on the inputs."""

    @property
    def place(self) -> str:
        """What messages call this place."""
        return f"the result of {self.name}"

    def told(self) -> dict[str, Any]:
        """Return what a person wants to know of it, as JSON."""
        inputs = {name: summary(array) for name, array in self.inputs.items()}
        return {"inputs": inputs, "constants": self.constants}


def record(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Recorded:
    """Run a function on arrays without values, which note what it calls.

    Raises `UnsavableError` if it needs the values, or was given no array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.saving.recording import record
    >>> recorded = record(lambda x, k: np.exp(x) * k, (np.ones(5), 2), {})
    >>> recorded.result.shape, recorded.constants
    ((5,), {'k': '2'})
    """
    name = getattr(function, "__name__", type(function).__name__)
    inputs: dict[str, Any] = {}
    constants: dict[str, str] = {}

    def replaced(parameter: str, value: Any) -> Any:
        if isinstance(value, np.ndarray | da.Array):
            inputs[parameter] = _unknown(len(inputs), parameter, value, name)
            return inputs[parameter].copy()  # which the function may change in place
        if _holds_arrays(value):
            told = f"argument {parameter!r} is a {type(value).__name__} of arrays"
            raise UnsavableError(f"function {name}: {told}: give each array a parameter of its own")
        constants[parameter] = repr(value)[:200]
        return value

    names = _names(function, args)
    positional = [replaced(parameter, value) for parameter, value in zip(names, args, strict=False)]
    keywords = {parameter: replaced(parameter, value) for parameter, value in kwargs.items()}
    if not inputs:
        raise UnsavableError(f"function {name}: none of the examples is a NumPy or dask array")
    try:
        result = function(*positional, **keywords)
    except Exception as error:
        error.add_note(f"gpusched: raised while {name} was recorded on dask arrays")
        raise
    return Recorded(name, inputs, constants, result)


def _names(function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[str]:
    """Yield the names of a function's parameters; those of built-in ones may be unknown."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    several = inspect.Parameter.VAR_POSITIONAL
    named = itertools.takewhile(lambda p: p.kind <= several, parameters)
    for parameter in named:
        if parameter.kind == several:
            break
        yield parameter.name
    else:
        parameter = None
    stem = parameter.name if parameter is not None else "x"
    yield from (f"{stem}{k}" for k in itertools.count())


def _unknown(number: int, parameter: str, example: Any, function: str) -> Any:
    """Return a dask array like the example, whose tasks only say that they cannot be run."""
    chunks = example.chunks if isinstance(example, da.Array) else tuple((n,) for n in example.shape)
    if any(np.isnan(n) for sizes in chunks for n in sizes):
        told = f"the example for {parameter!r} has chunks of unknown sizes: compute_chunk_sizes()"
        raise UnsavableError(f"function {function}: {told} first")
    meta = (
        meta_from_array(example)
        if isinstance(example, da.Array)
        else example[(slice(0),) * example.ndim]
    )
    name = f"input-{number}-{parameter}"
    keys = itertools.product([name], *(range(len(sizes)) for sizes in chunks))
    tasks: dict[Any, Task] = {key: Task(key, _ask_for_values, parameter, function) for key in keys}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[])
    return da.Array(graph, name, chunks, meta=meta, dtype=example.dtype)


def _ask_for_values(parameter: str, function: str) -> None:
    raise UnsavableError(
        f"function {function}: it looks at the values of {parameter!r}, and only its operations "
        "are recorded: use where() rather than if, or save it without examples, as code"
    )


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_arrays, value))
    if isinstance(value, dict):
        return any(map(_holds_arrays, value.values()))
    return isinstance(value, np.ndarray) or is_dask_collection(value)
