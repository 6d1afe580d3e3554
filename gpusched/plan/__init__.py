"""Expressions -> kernels (what is computed) and steps (in which order): nothing runs here yet.

In the order of calls: `expression` has the nodes; `schedule` divides them into groups, each of
which `kernelbuilder` makes a kernel of, with the loops over strided arrays of `layout`, and with
the floating-point errors that it looks for (`watching`); `plan` is the list of steps that comes of
it. `grids` and `unjoined` let kernels read arrays that dask would join, and `tiles` runs kernels
tile by tile. How a computation wants to be run, and users' versions of kernels, are `overrides`;
`tiers` decides whether a plan runs as kernels or as NumPy's calls, `shortage` in how many pieces,
and `timing` notes launches for profiles.
"""
