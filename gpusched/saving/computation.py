"""What a file holds, ready to be used: arrays as they were, or a function to be called."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.array.optimization import optimize as dask_optimize
from dask.base import get_scheduler
from dask.highlevelgraph import HighLevelGraph
from dask.optimization import cull
from dask.tokenize import tokenize

from gpusched import config
from gpusched.graph import optimize
from gpusched.saving import structure
from gpusched.saving.rebuild import Names, SavedTask, rebuild
from gpusched.saving.structure import Described
from gpusched.saving.values import Decoder


@dataclass(frozen=True)
class Computation:
    """A graph with a place for each input.

    Notes
    -----
    Immutable.
    """

    inputs: dict[str, Described]
    """By parameter."""
    outputs: list[Described]
    tasks: list[SavedTask]
    structure: Any
    """How the outputs make up the result, as JSON."""
    stored: list[np.ndarray]
    """Arrays that are part of the result."""
    code: list[Any]
    """What was pickled."""
    token: str
    """What no other file has."""

    def result(self, given: list[Any]) -> Any:
        """Return what was saved, of dask arrays for the inputs."""
        return self.assembled(self.arrays(given))

    def arrays(self, given: list[Any]) -> list[Any]:
        """Return the outputs, of dask arrays for the inputs."""
        token = tokenize(self.token, [array.name for array in given]) if given else self.token
        named = {d.name: a.name for d, a in zip(self.inputs.values(), given, strict=True)}
        names = Names(token, named)
        graph = rebuild(self.tasks, names)
        return [self._array(output, names, graph, given) for output in self.outputs]

    def _array(self, output: Described, names: Names, graph: Any, given: list[Any]) -> Any:
        name = names.name(output.name)
        for array in given:
            if array.name == name:
                return array
        keys = [key for key in graph if isinstance(key, tuple) and key[0] == name]
        needed, _ = cull(graph, keys)
        layers = HighLevelGraph.from_collections(name, needed, dependencies=given)
        return da.Array(layers, name, output.chunks, dtype=output.dtype, meta=output.empty())

    def assembled(self, outputs: list[Any]) -> Any:
        """Return what was saved, of its arrays."""
        return structure.decode(self.structure, outputs, Decoder(self.stored, self.code))


class SavedFunction:
    """A function that was recorded; called with arrays like those it was recorded with.

    Called with NumPy arrays only, it computes, with fused kernels and on dask's present scheduler.
    Called with a dask array, it returns dask arrays, which fuse where `gpusched.enable` is on.

    Attributes
    ----------
    inputs : dict
        Shape, dtype and chunks of each input, by its name.

    Notes
    -----
    Thread-safe, and can be pickled.
    """

    def __init__(self, name: str, computation: Computation) -> None:
        self.__name__ = self.__qualname__ = name
        self._computation = computation
        self.inputs = {
            parameter: {"shape": array.shape, "dtype": array.dtype, "chunks": array.chunks}
            for parameter, array in computation.inputs.items()
        }
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in self.inputs])

    def __repr__(self) -> str:
        told = [f"{name}: {i['dtype']} {i['shape']}" for name, i in self.inputs.items()]
        return f"<SavedFunction {self.__name__}({', '.join(told)})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result for these inputs.

        Raises
        ------
        TypeError
            If an input is missing, or has another shape or dtype than when it was recorded.
        """
        bound = self.__signature__.bind(*args, **kwargs).arguments
        lazy = any(isinstance(value, da.Array) for value in bound.values())
        given = [self._input(name, value) for name, value in bound.items()]
        outputs = self._computation.arrays(given)
        return self._computation.assembled(outputs if lazy else _computed(outputs))

    def _input(self, name: str, value: Any) -> Any:
        expected = self._computation.inputs[name]
        array = value if isinstance(value, da.Array) else np.asarray(value)
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise TypeError(
                f"{self.__name__} was saved for {name!r} of shape {expected.shape} and dtype "
                f"{expected.dtype}, and was given shape {array.shape} and dtype {array.dtype}: "
                "convert it, or save the function again with an example like it"
            )
        if isinstance(array, da.Array):
            return array.rechunk(expected.chunks)
        return da.from_array(array, chunks=expected.chunks, name=False)


def _computed(arrays: list[Any]) -> list[Any]:
    """Return the values of arrays, computed with fused kernels."""
    lazy = [array for array in arrays if isinstance(array, da.Array)]
    if not lazy:
        return arrays
    keys = [array.__dask_keys__() for array in lazy]
    optimised = optimize if config.get("fusion.enabled") else dask_optimize
    graph = optimised(HighLevelGraph.merge(*(a.__dask_graph__() for a in lazy)), keys)
    found = get_scheduler(collections=lazy)(graph, keys)
    finish = [array.__dask_postcompute__() for array in lazy]
    return [f(chunks, *args) for (f, args), chunks in zip(finish, found, strict=True)]
