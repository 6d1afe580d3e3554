"""Tasks that dask leaves apart are put together, by passes over one table of nodes.

`table` holds the nodes, with their `sizes`; `joins` make results of chunks. In the order of calls:
`drawing` has GPUs draw random numbers; `chains`, `unsplitting` (of the `families` that `alike`
finds, by `shownshapes` and `taking`), `reducefirst` (both of `reductiontrees`), `merging` (after
`recomputing`, by which later stages compute cheap results again) and `cutting` put tasks together,
and `fitting` refuses those that cannot have the memory that they need (`certain` says what that is
in any case).
Once they are programs, `batching` puts tiny tasks side by side (`grouping` says which), `items`
takes results apart, and `assembling` has chunks of a whole result written to their places.
"""
