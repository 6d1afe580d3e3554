"""What flox computes of each chunk for a group-by, as segmented reductions.

xarray's ``groupby`` and ``resample`` use flox where it is installed. It calls
`flox.core.chunk_reduce` with a chunk and the group of each element along an axis. Where a kernel
can do that, programs call `Grouped`, which computes the same dictionary.
"""

from __future__ import annotations

import sys
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpusched.adapters import flox
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.generate import identity_value
from gpusched.graph.grouped_whole import COMBINES, joined_by, whole_for
from gpusched.plan.expression import UnfusibleError
from gpusched.record import segments
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, lazies
from gpusched.record.recorded import StandIn

VARIANCES = {"var": False, "nanvar": True}
"""Whether NaN is left out of variances, by flox's names for them without the chunks."""


@dataclass(frozen=True)
class Grouped(StandIn):
    """flox's function of a chunk and its groups, where these are ``range(count)``.

    Equal ones compute the same, so that plans hold from graph to graph.
    """

    reductions: tuple[str, ...]
    """Their names."""
    fill_values: tuple[Any, ...]
    """What groups without elements get, for each reduction."""
    dtypes: tuple[Any, ...]
    """Of the results."""
    axis: tuple[int, ...]
    engine: str
    sort: bool
    count: int
    """How many groups there are."""

    __name__ = "chunk_reduce"

    @property
    def finish(self) -> Any:
        """What is done with the dictionary of a lazy chunk in the end; None for nothing."""
        return finished if VARIANCES.keys() & set(self.reductions) else None

    @cached_property
    def plain(self) -> Any:
        """flox's own function, as flox gives it to dask."""
        import pandas as pd  # type: ignore[import-untyped]
        import toolz  # type: ignore[import-untyped]
        from flox.core import chunk_reduce

        functions = tuple(map(_function, self.reductions))
        reduction = partial(chunk_reduce, func=functions, reindex=True,
                            fill_value=self.fill_values, dtype=self.dtypes,
                            user_dtype=None)  # fmt: skip
        groups = pd.RangeIndex(self.count)
        return partial(toolz.compose(flox.expand_dims(), reduction), axis=self.axis,
                       expected_groups=groups, engine=self.engine, sort=self.sort)  # fmt: skip

    def __call__(self, array: Any, by: Any) -> Any:
        """Return flox's dictionary of intermediate results."""
        if not isinstance(array, LazyChunk):
            return self.plain(array, by)
        try:
            found = self._reduced(array, by)
        except UnfusibleError as error:
            array._recorder.stop(error.reason)
        return found | {"intermediates": tuple(map(_expanded, found["intermediates"]))}

    def _reduced(self, array: LazyChunk, by: Any) -> dict[Any, Any]:
        if getattr(by, "ndim", 0) != 1 or self.axis != (array.ndim - 1,):
            raise UnfusibleError(GraphBreak.NO_KERNEL, "groups not along the last axis")
        results = [
            self._result(array, by, *each)
            for each in zip(self.reductions, self.fill_values, self.dtypes, strict=True)
        ]
        array._recorder.flush(lazies(results))  # in one kernel
        groups = np.broadcast_to(np.arange(self.count), (self.count,))
        return {"groups": groups, "intermediates": results}

    def _result(self, array: LazyChunk, by: Any, func: str, fill: Any, dtype: Any) -> Any:
        if func in VARIANCES:
            found = segments.moments(array, by, self.count, -1, VARIANCES[func])
            parts = found.squares, found.total, found.number
            return tuple(part.astype(dtype) for part in parts)
        combine, dtype = COMBINES[func], np.dtype(dtype)
        nothing = identity_value(combine, dtype)
        if nothing != fill:
            raise UnfusibleError(GraphBreak.NO_KERNEL, f"{func} that gives {fill!r} of nothing")
        values = joined_by(func, array, nothing)
        return segments.reduced(values, by, self.count, combine, -1, dtype)


def _expanded(result: Any) -> Any:
    """Return a result with the axis along which flox puts those of chunks side by side."""
    from flox.core import DUMMY_AXIS

    several = type(result) is tuple
    return tuple(map(_expanded, result)) if several else np.expand_dims(result, DUMMY_AXIS)


@own("quick")
def finished(found: Any) -> Any:
    """Return a dictionary of intermediate results in which variances are as flox has them."""
    from flox.multiarray import MultiArray

    results = [MultiArray(each) if type(each) is tuple else each for each in found["intermediates"]]
    return found | {"intermediates": tuple(results)}


def _function(name: str) -> Any:
    """Return the function that flox calls for a reduction, or the reduction's name."""
    from flox.aggregations import var_chunk

    return partial(var_chunk, skipna=VARIANCES[name]) if name in VARIANCES else name


def _named(function: Any) -> Any:
    """Return the name of a reduction, or what is not one of those that are known."""
    variance = getattr(sys.modules.get("flox.aggregations"), "var_chunk", None)
    if not isinstance(function, partial) or function.func is not variance or function.args:
        return function
    names = (name for name, skip in VARIANCES.items() if function.keywords == {"skipna": skip})
    return next(names, function)


_OPTIONS = {"func", "fill_value", "dtype", "axis", "engine", "sort", "reindex", "user_dtype",
            "expected_groups"}  # fmt: skip


def grouped_for(function: Any) -> Any:
    """Return what programs call for flox's function of a chunk, or `function` itself.

    Examples
    --------
    >>> from gpusched.graph.grouped import grouped_for
    >>> grouped_for(max) is max
    True
    """
    if "flox.dask" not in sys.modules or not isinstance(function, partial):
        return function
    whole = whole_for(function)
    if whole is not function:
        return whole
    options = _options(function)
    if options is None or options.keys() != _OPTIONS:
        return function
    if type(options["func"]) is tuple:
        options["func"] = tuple(map(_named, options["func"]))
    groups = options.pop("expected_groups")
    one = options.pop("user_dtype") is None and options.pop("reindex") is True
    if not one or not _is_range(groups) or not _is_known(options):
        return function
    return Grouped(options["func"], options["fill_value"], options["dtype"], options["axis"],
                   options["engine"], options["sort"], len(groups))  # fmt: skip


def _options(function: Any) -> dict[str, Any] | None:
    """Return the options of flox's function inside of what it gives to dask, or None."""
    composed = function.func
    inner: Any = getattr(composed, "first", None)
    others: Any = getattr(composed, "funcs", ())
    if len(others) != 1 or not flox.is_expand_dims(others[0]) or not isinstance(inner, partial):
        return None
    if inner.func is not sys.modules["flox.core"].chunk_reduce or inner.args or function.args:
        return None
    return inner.keywords | function.keywords


def _is_range(groups: Any) -> bool:
    """Return whether groups are numbers from 0 on."""
    import pandas as pd

    return isinstance(groups, pd.RangeIndex) and (groups.start, groups.step) == (0, 1)


def _is_known(options: dict[str, Any]) -> bool:
    """Return whether all reductions are in the table, and all options are as `Grouped` has them."""
    several = all(type(options[name]) is tuple for name in ("func", "fill_value", "dtype", "axis"))
    names = COMBINES | VARIANCES
    return several and all(type(each) is str and each in names for each in options["func"])
