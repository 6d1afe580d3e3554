"""dask graphs -> programs, and what a chunk task does with one.

In the order of calls, where a graph is optimised: `hook` is what dask calls (and `frontends`, for
array expressions), `callsites` notes the user's lines; `optimisation` runs the passes. `direct`
makes dask's own tasks; `table` holds them, with their `sizes`; `chains`, `unsplitting` (by
`independence` and `taking`), `merging` (with what `recomputing` has tasks compute again) and
`cutting` put tasks together, and `fitting` refuses those that cannot have the memory that they need (`certain` says what that is in any case);
`drawing` has GPUs draw random numbers; `rewrite` translates each into a program, by what `known`,
`grouped`, `moments`, `unrecorded` (what calls that are not recorded may change or see) and `safety`
say about its functions, and `templates` once for all tasks of a form (`lanes` has what they call
for functions that xarray gives to dask);
`batching` puts tiny tasks side by side (`grouping`, `batch`), `items` takes results apart, and
`assembling` has chunks of a whole result written to their places.

Where a task runs: `program` is its function, found by name by `program_tokens`, packed by
`payload`; `segment` is a group of its calls, with its `decisions` by what its `inputs` are, and the
`results` of a recording; pieces of chunks are cut off before (`cutfirst`). Calls without kernels
run by tiles (`tiled`), those that users' functions make too (`inlined`), and where memory is short
in `pieces`. On a GPU, `placing` runs what `devicechoice` decides, by `cupycalls`, on what `moved`
holds.

What both need is imported `early`, in processes that wait for their first graph.

What these share: `subgraph`, which goes through dask's tasks for all who ask what their calls would
return; `partials`, `libraries`, and `renaming`.
"""

from gpusched.graph.hook import disable, enable, optimize
from gpusched.record.catalogue import fusible

__all__ = ["disable", "enable", "fusible", "optimize"]
