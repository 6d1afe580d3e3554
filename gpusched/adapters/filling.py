"""Functions that fill gaps with the last number before them, as tasks have them.

bottleneck and numbagg have public ones; those by which xarray and dask call one of the two, and
hand numbers on from chunk to chunk, are private. Nothing here imports a library: what has not been
imported has put nothing into a graph.
"""

from __future__ import annotations

import sys
from typing import Any

MODULES = {
    "bottleneck.nonreduce_axis": {"push": "bottleneck.push"},
    "numbagg.funcs": {"bfill": "numbagg.bfill", "ffill": "numbagg.ffill"},
    "dask.array.overlap": {"_fill_with_last_one": "dask join", "_push": "dask push"},
    "xarray.compat.dask_array_ops": {
        "_dtype_push": "xarray push for scan",
        "_fill_with_last_one": "xarray join",
    },
    "xarray.core.duck_array_ops": {"_push": "xarray push"},
    "xarray.core.nputils": {"nanlast": "xarray last"},
}
"""By module, the functions, and what `gpusched.record.fills` knows each by."""


def meaning(function: Any) -> str | None:
    """Return what a function is known by; None of others, and of what has taken one's place.

    Examples
    --------
    >>> from gpusched.adapters.filling import meaning
    >>> meaning(max) is None
    True
    """
    name = str(getattr(function, "__module__", None))
    module, own = sys.modules.get(name), str(getattr(function, "__name__", None))
    found = MODULES.get(name, {}).get(own)
    return found if found and getattr(module, own, None) is function else None


def fills() -> bool:
    """Return whether xarray's settings have it call a library, and that is there."""
    options = sys.modules["xarray.core.options"].OPTIONS
    available = sys.modules["xarray.core.utils"].module_available
    wanted = [name for name in ("numbagg", "bottleneck") if options.get(f"use_{name}")]
    if "numbagg" in wanted and available("numbagg"):
        return True
    # Without numbagg, xarray calls bottleneck whatever its option is.
    return bool(wanted) and bool(available("bottleneck"))
