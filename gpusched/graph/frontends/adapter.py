"""The private names of dask and of dask-array that array expressions are reached by; no others.

dask has no hook for the graph that an expression becomes: ``__dask_optimize__`` of array
expressions is the identity. Where a new version of dask or dask-array has other names,
tests/frontends/test_adapter.py says which have moved.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask._expr import (
    Expr,
    FinalizeCompute,
    HLGExpr,
    HLGFinalizeCompute,
    _ExprSequence,
    _HLGExprSequence,
)
from dask.blockwise import blockwise as make_blockwise
from dask.delayed import unpack_collections
from dask.layers import ArrayBlockwiseDep

__all__ = [
    "ArrayBlockwiseDep",
    "Expr",
    "ExprSequence",
    "FinalizeCompute",
    "FrontEnd",
    "HLGExpr",
    "HLGFinalizeCompute",
    "HLGSequence",
    "entered_through",
    "front_ends",
    "make_blockwise",
    "normalised",
    "optimise_by",
    "replace_entry",
    "unpack_collections",
]

ExprSequence = _ExprSequence
HLGSequence = _HLGExprSequence

ENTRY = "collections_to_expr"
"""What dask and distributed make one expression of all collections with that are computed."""

ENTERED_FROM = ("dask.base", "dask.delayed", "dask.dataframe.dask_expr._expr", "distributed.client")
"""Modules that have `ENTRY` as a name of their own."""

IN_TREE = ("dask.array._array_expr._expr", "dask.array._array_expr._blockwise",
           "dask.array._array_expr._io", "dask.array._array_expr._collection")  # fmt: skip
PACKAGE = ("dask_array._expr", "dask_array._blockwise", "dask_array.io._from_array",
           "dask_array._collection")  # fmt: skip

COUNTERPARTS = {
    "dask_array._chunk": ("dask.array.chunk",),
    "dask_array._core_utils": ("dask.array.core",),
    "dask_array._dispatch": ("dask.array.backends",),
    "dask_array._overlap": ("dask.array.overlap",),
    "dask_array._shuffle": ("dask.array._shuffle",),
    "dask_array._ufunc": ("dask.array.ufunc",),
    "dask_array._utils": ("dask.array.utils",),
    "dask_array.creation._utils": ("dask.array.creation",),
    "dask_array.io._store": ("dask.array.core",),
    "dask_array.linalg._tensordot": ("dask.array.routines",),
    "dask_array.random._expr": ("dask.array.random",),
    "dask_array.reductions._common": ("dask.array.reductions",),
    "dask_array.reductions._cumulative": ("dask.array.reductions",),
    "dask_array.slicing._utils": ("dask.array.slicing",),
}
"""Modules of dask-array, and those of dask with functions of the same names."""


@dataclass(frozen=True)
class FrontEnd:
    """The kinds of expressions of one front end."""

    collection: Any
    """Its arrays."""
    array: Any
    """Any expression of an array."""
    blockwise: Any
    """The expression whose layer is one of `dask.blockwise`."""
    source: Any
    """The expression of what `from_array` is given, in its ``array``."""
    fused: Any = None
    """The expression of several others that are one task, in its ``exprs``; None if it has none."""

    def is_blockwise(self, expression: Any) -> bool:
        """Return whether an expression's tasks are those that `dask.blockwise` makes."""
        plain = self.blockwise._layer
        return isinstance(expression, self.blockwise) and type(expression)._layer is plain

    def is_number(self, expression: Any) -> bool:
        """Return whether an expression is of one number, as each number in dask's own is."""
        array = expression.array if isinstance(expression, self.source) else None
        return type(array) is np.ndarray and array.ndim == 0


def front_ends() -> Iterator[FrontEnd]:
    """Yield the front ends that this process has imported."""
    for names in (IN_TREE, PACKAGE):
        if all(name in sys.modules for name in names):
            array, blockwise, source, collection = map(importlib.import_module, names)
            yield FrontEnd(
                collection.Array, array.ArrayExpr, blockwise.Blockwise, source.FromArray,
                getattr(blockwise, "FusedBlockwise", None),
            )  # fmt: skip


def optimise_by(optimise: Callable[..., Any]) -> None:
    """Have the front ends' arrays optimise their graphs where they do it themselves."""
    for end in front_ends():
        end.collection.__dask_optimize__ = staticmethod(optimise)


def normalised(value: Any) -> Any:
    """Return an argument of a layer as dask.array has it."""
    from dask.array.core import normalize_arg

    return normalize_arg(value)


def entered_through() -> Callable[..., Any]:
    """Return what dask makes one expression of all collections with."""
    found: Callable[..., Any] = getattr(sys.modules["dask.base"], ENTRY)
    return found


def replace_entry(plain: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Have dask and distributed call `replacement` in the place of `plain`.

    Modules imported later find the replacement in `dask.base`.
    """
    for name in ENTERED_FROM:
        module = sys.modules.get(name)
        if module is not None and getattr(module, ENTRY, None) is plain:
            setattr(module, ENTRY, replacement)
