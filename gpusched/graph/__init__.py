"""dask graphs -> programs, and what a chunk task does with one.

In the order of calls, where a graph is optimised: `hook` is what dask calls (and `frontends`, for
array expressions), `callsites` notes the user's lines; `optimisation` runs the passes. `direct`
makes dask's own tasks; `table` holds them, with their `sizes`, of which `sized` says which are
sure; `chains`, `unsplitting` (of `families`, by `independence` and `taking`; `joins` make results
of chunks), `reducewhole` and `reducefirst` (of `reductionsteps`), `merging` and `cutting` put tasks
together, and `fitting` refuses those that cannot have the memory that they need (`certain` says
what that is in any case);
`drawing` has GPUs draw random numbers; `rewrite` translates each into a program, by what
`functiontraits` has of `known`, `grouped`, `moments`, `unrecorded` (what calls that are not
recorded may change or see) and `safety` about its functions, and `templates` once for all tasks of
a form (`lanes` has what they call for functions that xarray gives to dask, `lonejoins` for joins of
a single part); `showing` says whose results functions may see in memory; `batching` puts tiny tasks
side by side (`grouping`, `batch`), `items` takes results apart, and `assembling` has chunks of a
whole result written to their places.

Where a task runs: `program` is its function, found by name by `program_tokens`, packed by
`payload`; `segment` is a group of its calls, which keeps in `remembered` its `decisions` by what
its `inputs` are. For others a `recording` is made: what is `traced` with lazy chunks has `results`,
and `layouts` that are compared with NumPy's. Pieces of chunks are cut off before (`cutfirst`).
`calling` runs calls without kernels, by tiles (`tiled`), those that users' functions make too
(`inlined`); where memory is short, a segment runs in `pieces`. On a GPU, `placing` runs what
`devicechoice` decides, by `cupycalls`, on what `moved` holds.

What both need is imported `early`, in processes that wait for their first graph.

What these share: `subgraph`, which goes through dask's tasks for all who ask what their calls would
return; `partials`, `libraries`, and `renaming`.
"""

from gpusched.graph.hook import disable, enable, optimize
from gpusched.record.catalogue import fusible

__all__ = ["disable", "enable", "fusible", "optimize"]
