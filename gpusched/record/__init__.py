"""A program runs on lazy chunks, and what it computes becomes expressions (NEP 13, NEP 18).

In the order of calls: `chunk` is the lazy chunk, which finds in `handlers` what records a NumPy
function: `ufuncs`, `chosen` (elements that masks choose), `assignments`, `changing` (calls that
write to arrays), `functions`, `reductions`, `products` (sums of these), `moments`, `segments`,
`scans`, `gradients`, `searches` (places among sorted numbers), `selection` (medians and quantiles),
`gathers` (elements chosen by integers), sliding `windows`, `written` (functions that NumPy has in
Python, by their own code), and `recorded`, which is how users' kernels, libraries' functions
(`fills`: gaps that the last number fills) and our own record themselves; `complexes` are NumPy's
functions of complex numbers, on their `parts`; `steps` are a program's calls, and those that a
function makes; `branches` are the ways that it goes by what a chunk holds, and `callers` finds the
user's lines; `lanewise` runs functions of lanes once for all lanes of a chunk, each `lane` by
`lanerules`, and elements `picked` of each; `catalogue` is what is known of functions, also which
calls leave their arguments as they are, and `bytecode` shows what users' functions do.

`record` makes nodes of all that, and steps of nodes: `accumulation` those that join values along
axes, `views` those of what is seen in another way, `compound` arrays that are computed part by
part. `postponed` are the steps that have not run, with what stands in for their results, and says
what has to be computed early, for want of memory.
"""
