"""The private names of dask and of dask-array that array expressions are reached by; no others.

dask has no hook for the graph that an expression becomes: ``__dask_optimize__`` of array
expressions is the identity. Where a new version of dask or dask-array has other names,
tests/frontends/test_adapter.py says which have moved.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from dask._expr import Expr as Expr
from dask._expr import FinalizeCompute as FinalizeCompute
from dask._expr import HLGExpr as HLGExpr
from dask._expr import HLGFinalizeCompute as HLGFinalizeCompute
from dask._expr import _ExprSequence, _HLGExprSequence
from dask.blockwise import blockwise as blockwise
from dask.delayed import unpack_collections as unpack_collections
from dask.layers import ArrayBlockwiseDep as ArrayBlockwiseDep

from gpusched.dataclass import dataclass
from gpusched.emit.parsing import source_of

ExprSequence = _ExprSequence
HLGSequence = _HLGExprSequence

ENTRY = "collections_to_expr"
"""What dask and distributed make one expression of all collections with that are computed."""

OPTIMISER = "low_level_optimizer"
"""The operand of an expression of a graph that says which function optimises it."""

ENTERED_FROM = ("dask.base", "dask.delayed", "dask.dataframe.dask_expr._expr", "distributed.client")
"""Modules that have `ENTRY` as a name of their own."""

IN_TREE = ("dask.array._array_expr._expr", "dask.array._array_expr._blockwise",
           "dask.array._array_expr._io", "dask.array._array_expr._collection")  # fmt: skip
PACKAGE = ("dask_array._expr", "dask_array._blockwise", "dask_array.io._from_array",
           "dask_array._collection")  # fmt: skip

INSIDE = ".<locals>."
"""What stands in a name before that of a function that is made inside another one."""

QUANTILES = "dask_array.reductions._common._custom_quantile"
"""What reduces chunks to quantiles of what is not NaN in dask-array."""

REWRITTEN = {
    "dask_array._chunk.arange":
        ("dask.array.chunk.arange", "685b4810ad010b4f"),
    "dask_array._chunk.linspace":
        ("dask.array.chunk.linspace", "d95f705dafaafd1a"),
    "dask_array._core_utils._concatenate2":
        ("dask.array.core._concatenate2", "af3d1144b953b56d"),
    "dask_array._core_utils.concatenate3":
        ("dask.array.core.concatenate3", "7bbd5b190da80c9d"),
    "dask_array._dispatch._divide":
        ("dask.array.numpy_compat.divide", "4b8e4de68cf3c11e"),
    "dask_array._dispatch._nannumel":
        ("dask.array.backends._nannumel", "0b4445dd31085e41"),
    "dask_array._dispatch._numel":
        ("dask.array.backends._numel_ndarray", "96898160d8322a80"),
    "dask_array._histogram._block_hist":
        ("dask.array.routines._block_hist", "227a0304fa201489"),
    "dask_array._histogram._block_histogramdd_multiarg":
        ("dask.array.routines._block_histogramdd_multiarg", "fd73f62720dfcb66"),
    "dask_array._overlap._sliding_window_reduce_block":
        ("gpusched.graph.frontends.daskarray.window_reduced", "475dc52d5f7a5d4a"),
    "dask_array._utils.array_safe":
        ("dask.array.utils.array_safe", "1e0f7dd05ea4f512"),
    "dask_array._utils.asarray_safe":
        ("dask.array.utils.asarray_safe", "76ae39a93200d8f4"),
    "dask_array._utils.meta_from_array":
        ("dask.array.utils.meta_from_array", "4bb15decfce5904a"),
    "dask_array.io._store.load_store_chunk":
        ("dask.array.core.load_store_chunk", "c66eac0c302d1ea1"),
    "dask_array.linalg._tensordot._matmul":
        ("dask.array.routines._matmul", "d478f9fa484d7059"),
    "dask_array.linalg._tensordot._sum_wo_cat.<locals>._chunk_sum":
        ("dask.array.routines._chunk_sum", "235048c42c8f96ae"),
    QUANTILES:
        ("gpusched.graph.frontends.daskarray.nanquantile", "8cd2baa57a88fb8b"),
    "dask_array.reductions._common.mean_chunk":
        ("dask.array.reductions.mean_chunk", "4ef7d58a2d3b644e"),
    "dask_array.reductions._common.moment_chunk":
        ("dask.array.reductions.moment_chunk", "cfbef61c8dd39662"),
}  # fmt: skip
"""Functions of dask-array that do what one of dask does in other words, by name.

Of a function that is made inside another one, the digest is of that one's text. Dask's chunks of
histograms of several values are tuples of one array, which are summed as dask-array's are.
"""

TOGETHER = (
    ("dask_array.reductions._common.mean_chunk", "dask_array.reductions._common.mean_combine",
     "dask_array.reductions._common.mean_agg"),
    ("dask_array.reductions._common.moment_chunk", "dask_array.reductions._common.moment_combine",
     "dask_array.reductions._common.moment_agg"),
)  # fmt: skip
"""Functions that hand each other what dask's hand each other in another form: all are exchanged, or
none of them."""


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

    def is_fused(self, expression: Any) -> bool:
        """Return whether an expression is of several that are one task."""
        return self.fused is not None and isinstance(expression, self.fused)

    def contracts(self, expression: Any) -> bool:
        """Return whether a function is given all blocks along an axis that its result has not.

        It is given a list of them, but in a fused expression the only one.
        """
        if not isinstance(expression, self.blockwise):
            return False
        kept = {*expression.out_ind, *expression.new_axes}
        return any(not kept.issuperset(indices or ()) for indices in expression.args[1::2])

    def is_number(self, expression: Any) -> bool:
        """Return whether an expression is of one number, as each number in dask's own is."""
        array = expression.array if isinstance(expression, self.source) else None
        return type(array) is np.ndarray and array.ndim == 0


def front_ends() -> Iterator[FrontEnd]:
    """Yield the front ends that this process has imported."""
    for names in (IN_TREE, PACKAGE):
        array, blockwise, source, collection = map(sys.modules.get, names)
        kinds = [
            getattr(collection, "Array", None), getattr(array, "ArrayExpr", None),
            getattr(blockwise, "Blockwise", None), getattr(source, "FromArray", None),
        ]  # fmt: skip
        # A front end whose names have moved is one of unknown kind, which is warned of.
        if None not in kinds:
            fused = getattr(blockwise, "FusedBlockwise", None)
            yield FrontEnd(kinds[0], kinds[1], kinds[2], kinds[3], fused)


def optimise_by(optimise: Callable[..., Any]) -> None:
    """Have the front ends' arrays optimise their graphs where they do it themselves.

    Parameters
    ----------
    optimise
        Called with a graph, the wanted keys and, by name, the expression of the array that asks.
    """
    for end in front_ends():
        known = isinstance(vars(end.collection).get("__dask_optimize__"), _OfEach)
        end.collection.__dask_optimize__ = _OfEach(optimise)
        if sys.version_info < (3, 12) and not known:
            _without_locks(Expr)


def _without_locks(kind: type) -> None:
    """Let several threads compute cached properties of expressions, as from Python 3.12 on.

    Before, each property has one lock for all objects, and properties ask others in any order: a
    client that goes on while a scheduler in its process makes a graph may wait forever.
    """
    for value in vars(kind).values():
        if isinstance(value, functools.cached_property):
            value.lock = contextlib.nullcontext()  # type: ignore[attr-defined]
    each: type
    for each in type.__subclasses__(kind):
        _without_locks(each)


class _OfEach:
    """An attribute of a class that is what optimises graphs; of an array, it knows which one."""

    def __init__(self, optimise: Callable[..., Any]) -> None:
        self.optimise = optimise

    def __get__(self, collection: Any, kind: type) -> Callable[..., Any]:
        if collection is None:
            return self.optimise
        return functools.partial(self.optimise, expression=collection.expr)


def normalised(value: Any) -> Any:
    """Return an argument of a layer as dask.array has it."""
    from dask.array.core import normalize_arg

    return normalize_arg(value)


def entered_through() -> Callable[..., Any] | None:
    """Return what dask makes one expression of all collections with; None if that has moved."""
    return getattr(sys.modules["dask.base"], ENTRY, None)


def expression_of(collections: list[Any]) -> Expr | None:
    """Return the expression of all collections; None if there is no such thing in this dask."""
    make = entered_through()
    return None if make is None else make(collections)


def replace_entry(plain: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Have dask and distributed call `replacement` instead of `plain`.

    Modules imported later find the replacement in `dask.base`.
    """
    for name in ENTERED_FROM:
        module = sys.modules.get(name)
        if module is not None and getattr(module, ENTRY, None) is plain:
            setattr(module, ENTRY, replacement)


def optimiser(expression: Any) -> Callable[..., Any] | None:
    """Return what optimises the graph of an expression; None if nothing does, or it has none."""
    found: Callable[..., Any] | None = getattr(expression, OPTIMISER, None)
    return found


def replace_optimiser(expression: Any, plain: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Have the graphs in an expression be optimised by another function, in place.

    Parameters
    ----------
    expression
        One that nobody else has, such as one that has just been unpickled.
    plain
        The function that is replaced; graphs with any other one stay as they are.
    by
        The function that takes its place.
    """
    if not isinstance(expression, Expr):
        return
    for index, operand in enumerate(expression.operands):
        if operand is plain and expression._parameters[index] == OPTIMISER:
            expression.operands[index] = by
        else:
            replace_optimiser(operand, plain, by)


WINDOWED = ("Sum", "Prod", "Min", "Max", "Any", "All", "Mean", "Var", "NanSum", "NanProd", "NanMin",
            "NanMax", "NanMean", "NanVar")  # fmt: skip
"""Reductions of dask-array's whose sliding windows `gpusched.graph.frontends.daskarray` reduces."""

_LOOPS = (
    ("dask_array._overlap", "_sliding_window_reduce_block"),
    ("dask_array.reductions._reduction", "_sliding_window_nan_skip_reduce_block"),
)
"""What goes through chunks for them, by module."""

WINDOWS = "0d518a58cf9b2c4f"
"""Of the text of their code, and of what it calls, as it was then."""


@functools.lru_cache(maxsize=1)
def window_reductions() -> tuple[Callable[..., Any], tuple[type, ...]]:
    """Return what reduces sliding windows in dask-array, and for which reductions it is known."""
    module = importlib.import_module("dask_array.reductions._reduction")
    plain, skips = (getattr(importlib.import_module(name), inside) for name, inside in _LOOPS)
    found = tuple([getattr(module, name) for name in WINDOWED])
    parts = (plain, module.Reduction.sliding_window_reduce_block,
             module.Reduction.sliding_window_finalize, skips, *found)  # fmt: skip
    text = "".join(map(source_of, parts))
    same = hashlib.sha256(text.encode()).hexdigest()[:16] == WINDOWS
    return plain, found if same else ()
