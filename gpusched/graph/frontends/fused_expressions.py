"""Expressions whose graphs gpusched optimises, and collections whose graphs never reach it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import dask
from dask.array import Array
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

from gpusched.adapters.tasks import Alias
from gpusched.breaks import GraphBreak
from gpusched.graph.frontends.adapter import (
    Expr,
    ExprSequence,
    HLGExpr,
    HLGFinalizeCompute,
    HLGSequence,
    front_ends,
    optimiser,
    replace_optimiser,
)
from gpusched.graph.frontends.layered import has_arrays, layered
from gpusched.store.statistics import updating

if TYPE_CHECKING:
    from gpusched.graph.hook import Hook


def fused(expression: Expr, hook: Hook) -> Expr:
    """Return an expression whose graph is optimised by `hook`; itself if no arrays are in it."""
    if isinstance(expression, ExprSequence) and len({*map(optimiser, expression.operands)}) > 1:
        # dask makes one graph of all: chunks of these arrays may be inputs of others' tasks.
        replace_optimiser(expression, hook, hook.beside_others())
    if isinstance(expression, HLGExpr) or not has_arrays(expression):
        return expression
    if isinstance(expression, ExprSequence):
        return _with_hook(FusedSequence(*expression.operands), hook)
    return Fused(_Held(expression, hook))


def graph_of(expression: Expr, hook: Hook) -> dict[Any, Any]:
    """Return the tasks of an expression, optimised by `hook`."""
    return dict(ensure_dict(hook(layered(expression), expression.__dask_keys__())))


def _named(tasks: dict[Any, Any], first: Iterable[Expr], then: Iterable[Expr]) -> dict[Any, Any]:
    """Return tasks whose results have the names, too, that they had before they were optimised.

    `dask.optimize` makes collections of such a graph, and these look for chunks of their own names.
    """
    found = dict(tasks)
    for before, after in zip(first, then, strict=True):
        for key in flatten([after.__dask_keys__()]):
            name = (before._name, *key[1:]) if type(key) is tuple else before._name
            if name not in tasks:
                found[name] = Alias(name, key)
    return found


def _with_hook(sequence: FusedSequence, hook: Hook, optimised: bool = False) -> FusedSequence:
    sequence.__dict__.update(hook=hook, optimised=optimised)
    return sequence


class FusedSequence(ExprSequence):
    """Expressions that are computed together, some of them of arrays.

    Notes
    -----
    The hook is no operand, since dask counts them. It is the configuration's where the sequence is
    rewritten, and goes with the sequence to a scheduler, where nothing is configured.
    """

    @property
    def _hook(self) -> Hook:
        found: Hook = self.__dict__.get("hook") or dask.config.get("array_optimize")
        return found

    def __reduce__(self) -> Any:
        return _rebuilt, (self._hook, self._is_optimised, *self.operands)

    @property
    def _is_optimised(self) -> bool:
        return bool(self.__dict__.get("optimised"))

    def finalize_compute(self) -> FusedSequence:
        """Return the sequence of what the collections' results are made of."""
        return _with_hook(FusedSequence(*[e.finalize_compute() for e in self.operands]), self._hook)

    def _simplify_down(self) -> Any:
        if not any(isinstance(each, HLGExpr | HLGFinalizeCompute) for each in self.operands):
            return None
        return HLGSequence(*[self._as_graph(each) for each in self.operands])

    def _as_graph(self, expression: Expr) -> Expr:
        """Return an expression as a graph, as dask has all collections if one has a graph."""
        if isinstance(expression, HLGExpr):
            return expression
        expression = expression.optimize()
        arrays = has_arrays(expression)
        graph = layered(expression) if arrays else _one_layer(expression)
        return HLGExpr(graph, self._hook if arrays else None, expression.__dask_keys__())

    def optimize(self, fuse: bool = False) -> Expr:
        """Return the sequence as it runs."""
        found: Expr = super().optimize(fuse)
        return _with_hook(found, self._hook, True) if type(found) is FusedSequence else found

    def __dask_graph__(self) -> dict[Any, Any]:
        if self._is_optimised:
            return graph_of(self, self._hook)
        optimised = self.optimize()
        return _named(optimised.__dask_graph__(), self.operands, optimised.operands)


def _rebuilt(hook: Hook, optimised: bool, *operands: Expr) -> FusedSequence:
    return _with_hook(FusedSequence(*operands), hook, optimised)


def _one_layer(expression: Expr) -> HighLevelGraph:
    graph = expression.__dask_graph__()
    return HighLevelGraph.from_collections(expression._name, graph, dependencies=())


class _Held:
    """An expression and its hook, which dask's rewriting leaves as they are."""

    def __init__(self, expression: Expr, hook: Hook) -> None:
        self.expression = expression
        self.hook = hook

    def __dask_tokenize__(self) -> Any:
        return self.expression._name


class Fused(Expr):
    """One expression of arrays, as other expressions' operand: its layer is its whole graph."""

    _parameters = ["held"]  # noqa: RUF012  (dask's form)

    def finalize_compute(self) -> Fused:
        """Return the expression of what the collection's result is made of."""
        return Fused(_Held(self.held.expression.finalize_compute(), self.held.hook))

    @functools.cached_property
    def _optimised(self) -> Expr:
        return self.held.expression.optimize()

    def __dask_keys__(self) -> list[Any]:
        keys: list[Any] = self._optimised.__dask_keys__()
        return keys

    def _layer(self) -> dict[Any, Any]:
        return graph_of(self._optimised, self.held.hook)


REASON = GraphBreak.COLLECTION("a collection whose graph no hook sees")

_warned: WeakSet[type] = WeakSet()


def note_unknown(collections: Any) -> None:
    """Warn of collections that are neither arrays nor one of dask's other kinds, and count them.

    Parameters
    ----------
    collections
        What is computed: one collection, or several.
    """
    several = isinstance(collections, list | tuple | set)
    for each in collections if several else [collections]:
        kind = type(each)
        if not is_known(each):
            with updating() as counters:
                counters.breaks[kind.__name__, REASON] += 1
            if kind not in _warned:
                _warned.add(kind)
                warnings.warn(
                    f"gpusched computes {kind.__module__}.{kind.__name__} without fusion, as dask "
                    "does: its __dask_optimize__ is not dask.array's. Arrays that it is made of "
                    "are fused if they are computed by themselves.",
                    stacklevel=5,
                )


def is_known(collection: Any) -> bool:
    """Return whether a collection's arrays are fused, or it is one of dask's that has none."""
    if type(collection).__module__.partition(".")[0] == "dask" or isinstance(collection, Delayed):
        return True
    ends = tuple(end.array for end in front_ends())
    expression = getattr(collection, "expr", None)
    if isinstance(expression, Expr):
        return isinstance(expression, ends)
    composite = getattr(collection, "__dask_exprs__", None)
    parts = composite() if callable(composite) else None
    if parts:
        return all(isinstance(part, ends) for part in parts)
    return getattr(collection, "__dask_optimize__", None) is Array.__dask_optimize__
