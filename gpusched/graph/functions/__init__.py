"""Functions that dask's and xarray's graphs call, and what is known of each.

`partials` are what partial applications and compositions are made of, and `libraries` which
packages are libraries. `known` are the functions that are recorded, some as functions of ours:
`grouped` (xarray's and flox's reductions by group), `moments` (of variances), `extremes` (where the
largest and the least are), `accumulations` (sums of all before), `lanes` (what xarray gives to
dask), `lonejoins` (joins of a single part). `reductionsteps` are those of dask's reductions, whose
results can be joined, however many. `independence` says which calls compute each position of an
array alone, and `unrecorded` what calls that are not recorded may change or see.
"""
