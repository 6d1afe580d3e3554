"""What tests of passes over a graph share."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from gpusched.graph.direct import optimised
from gpusched.graph.passes.chains import without_links, without_names
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table


def table_of(*arrays: Any) -> Table:
    """Return the graph of some arrays, as passes are given it."""
    keys = list(flatten([array.__dask_keys__() for array in arrays]))
    merged = HighLevelGraph.merge(*[each.__dask_graph__() for each in arrays])
    table = Table(dict(optimised(merged, keys)), keys, Sizes(merged.layers))
    return without_links(without_names(table))


def assert_same_results(before: Table, after: Table) -> None:
    """Assert that a pass leaves results what they are, as it is and once links are gone."""
    expected = dask.get(dict(before.tasks), list(before.wanted))
    for tasks in (after.tasks, without_links(after).tasks):
        for one, other in zip(expected, dask.get(dict(tasks), list(after.wanted)), strict=True):
            kind = np.asarray(one).dtype
            assert kind == np.asarray(other).dtype
            bound = 1e-5 if kind == "f4" else 1e-12
            np.testing.assert_allclose(one, other, rtol=bound, strict=True)
