"""A program runs on lazy chunks, and what it computes becomes expressions (NEP 13, NEP 18).

In the order of calls: `chunk` is the lazy chunk, whose NumPy functions are those of `functions`,
`moments`, `segments`, `scans`, `gradients`, `searches` (places among sorted numbers), `selection`
(medians and quantiles), `gathers` (elements chosen by integers, and sliding windows), and of
`recorded`, which is how users' kernels and our own functions record themselves; `complexes` are
NumPy's functions of complex numbers, on their `parts`; `steps` are a program's calls, and `calls`
those that a function makes; `branches` are the ways that it goes by what a chunk holds;
`catalogue` is what is known of functions, also which calls leave their arguments as they are, and
`bytecode` shows what users' functions do; `record` makes nodes of what they do, and has them
planned; `held` says which of them have to be computed early, for want of memory.
"""
