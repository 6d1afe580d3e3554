"""What flox computes of each chunk for a group-by, as segmented reductions.

xarray's ``groupby`` and ``resample`` use flox where it is installed. It calls
`flox.core.chunk_reduce` with a chunk and the group of each element along an axis. Where a kernel
can do that, programs call `Grouped`, which computes the same dictionary.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.generate import identity_value
from gpusched.plan.expression import UnfusibleError
from gpusched.record import segments
from gpusched.record.chunk import LazyChunk

COMBINES = {"sum": "add", "nansum": "add", "prod": "multiply", "nanprod": "multiply",
            "max": "maximum", "nanmax": "maximum", "min": "minimum", "nanmin": "minimum",
            "nanlen": "add"}  # fmt: skip
"""How flox's reductions join values, by its names for them."""


@dataclass(frozen=True)
class Grouped:
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

    @cached_property
    def plain(self) -> Any:
        """flox's own function, as flox gives it to dask."""
        import pandas as pd  # type: ignore[import-untyped]
        import toolz  # type: ignore[import-untyped]
        from flox.core import chunk_reduce
        from flox.dask import _expand_dims

        reduction = partial(chunk_reduce, func=self.reductions, reindex=True,
                            fill_value=self.fill_values, dtype=self.dtypes,
                            user_dtype=None)  # fmt: skip
        groups = pd.RangeIndex(self.count)
        return partial(toolz.compose(_expand_dims, reduction), axis=self.axis,
                       expected_groups=groups, engine=self.engine, sort=self.sort)  # fmt: skip

    def __call__(self, array: Any, by: Any) -> Any:
        """Return flox's dictionary of intermediate results."""
        if not isinstance(array, LazyChunk):
            return self.plain(array, by)
        try:
            found = self._reduced(array, by)
        except UnfusibleError as error:
            array._recorder.stop(error.reason)
        from flox.dask import _expand_dims

        return _expand_dims(found)

    def _reduced(self, array: LazyChunk, by: Any) -> dict[Any, Any]:
        if getattr(by, "ndim", 0) != 1 or self.axis != (array.ndim - 1,):
            raise UnfusibleError(GraphBreak.NO_KERNEL, "groups not along the last axis")
        results = [
            self._result(array, by, *each)
            for each in zip(self.reductions, self.fill_values, self.dtypes, strict=True)
        ]
        array._recorder.flush([each._node for each in results])  # in one kernel
        groups = np.broadcast_to(np.arange(self.count), (self.count,))
        return {"groups": groups, "intermediates": results}

    def _result(self, array: LazyChunk, by: Any, func: str, fill: Any, dtype: Any) -> LazyChunk:
        combine, dtype = COMBINES[func], np.dtype(dtype)
        nothing = identity_value(combine, dtype)
        if nothing != fill:
            raise UnfusibleError(GraphBreak.NO_KERNEL, f"{func} that gives {fill!r} of nothing")
        values: Any = array
        if func == "nanlen":
            values = ~np.isnan(values)
        elif func.startswith("nan") and array.dtype.kind == "f":
            values = np.where(np.isnan(values), array.dtype.type(nothing), values)
        return segments.reduced(values, by, self.count, combine, -1, dtype)


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
    options = _options(function)
    if options is None or options.keys() != _OPTIONS:
        return function
    groups = options.pop("expected_groups")
    one = options.pop("user_dtype") is None and options.pop("reindex") is True
    if not one or not _is_range(groups) or not _is_known(options):
        return function
    return Grouped(options["func"], options["fill_value"], options["dtype"], options["axis"],
                   options["engine"], options["sort"], len(groups))  # fmt: skip


def _options(function: Any) -> dict[str, Any] | None:
    """Return the options of flox's function inside of what it gives to dask, or None."""
    composed = function.func
    flox = sys.modules["flox.dask"]
    inner = getattr(composed, "first", None)
    if getattr(composed, "funcs", None) != (flox._expand_dims,) or not isinstance(inner, partial):
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
    return several and all(type(each) is str and each in COMBINES for each in options["func"])
