"""dask graphs -> programs, and what a chunk task does with one.

In the order of calls, where a graph is optimised: `hook` is what dask calls (and `frontends`, for
array expressions), `callsites` notes the user's lines; `optimisation` runs the rest: `direct`
makes dask's own tasks, `passes` put them together, and `programs` are made of them, by what
`functions` are known and what `safety` has shown of users' own.

Where a task runs: its program's groups of calls are `running`, on a worker with a GPU where
`placement` decides.

What both need is imported `early`, in processes that wait for their first graph. What these share:
`subgraph`, which goes through dask's tasks for all who ask what their calls would return, and
`renaming`.
"""

from gpusched.graph.hook import disable, enable, optimize
from gpusched.record.catalogue import fusible

__all__ = ["disable", "enable", "fusible", "optimize"]
