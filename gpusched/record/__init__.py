"""A program runs on lazy chunks, and what it computes becomes expressions (NEP 13, NEP 18).

In the order of calls: `chunk` is the lazy chunk, whose NumPy functions are those of `functions`,
`moments` and `segments`, and of `recorded`, which is how users' kernels and our own functions
record themselves; `pure` lists the calls that leave their arguments as they are; `record` makes
nodes of what they do, and has them planned.

`gathers`
    Elements chosen by integers along one axis, which kernels read in place.
`windows`
    Windows that slide along axes, which kernels reduce as they are.
"""
