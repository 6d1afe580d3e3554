"""Expressions whose graphs gpusched optimises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dask
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

from gpusched.graph.frontends.adapter import (
    Expr,
    ExprSequence,
    HLGExpr,
    HLGFinalizeCompute,
    HLGSequence,
)
from gpusched.graph.frontends.layered import has_arrays, layered

Optimiser = Callable[..., Any]
"""gpusched's hook."""


def fused(expression: Expr, hook: Optimiser) -> Expr:
    """Return an expression whose graph is optimised by `hook`; itself if no arrays are in it."""
    if isinstance(expression, HLGExpr) or not has_arrays(expression):
        return expression
    if isinstance(expression, ExprSequence):
        return _with_hook(FusedSequence(*expression.operands), hook)
    return Fused(_Held(expression, hook))


def graph_of(expression: Expr, hook: Optimiser) -> dict[Any, Any]:
    """Return the tasks of an expression, optimised by `hook`."""
    return dict(ensure_dict(hook(layered(expression), expression.__dask_keys__())))


def _with_hook(sequence: FusedSequence, hook: Optimiser) -> FusedSequence:
    sequence.__dict__["hook"] = hook
    return sequence


class FusedSequence(ExprSequence):
    """Expressions that are computed together, some of them of arrays.

    Notes
    -----
    The hook is no operand, since dask counts them. It is the configuration's where the sequence is
    rewritten, and goes with the sequence to a scheduler, where nothing is configured.
    """

    @property
    def _hook(self) -> Optimiser:
        found: Optimiser = self.__dict__.get("hook") or dask.config.get("array_optimize")
        return found

    def __reduce__(self) -> Any:
        return _rebuilt, (self._hook, *self.operands)

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

    def __dask_graph__(self) -> dict[Any, Any]:
        return graph_of(self, self._hook)


def _rebuilt(hook: Optimiser, *operands: Expr) -> FusedSequence:
    return _with_hook(FusedSequence(*operands), hook)


def _one_layer(expression: Expr) -> HighLevelGraph:
    graph = expression.__dask_graph__()
    return HighLevelGraph.from_collections(expression._name, graph, dependencies=())


class _Held:
    """An expression and its hook, which dask's rewriting leaves as they are."""

    def __init__(self, expression: Expr, hook: Optimiser) -> None:
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
