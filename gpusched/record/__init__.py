"""A program runs on lazy chunks, and what it computes becomes expressions (NEP 13, NEP 18).

In the order of calls: `chunk` is the lazy chunk, whose NumPy functions are those of `functions`,
`moments`, `segments`, `scans`, `searches` (places among sorted numbers), `selection` (medians and
quantiles), `gathers` (elements chosen by integers) and `windows` (that slide), and of `recorded`,
which is how users' kernels and our own functions record themselves; `foreign` has the ufuncs of
other libraries; `complexes` are NumPy's functions of complex numbers, on their `parts`; `pure`
lists the calls that leave their arguments as they are; `record` makes nodes of what they do, and
has them planned.
"""
