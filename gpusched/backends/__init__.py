"""Source -> callable: plain Python (the definition), numba on the CPU, numba-cuda on GPUs.

`devices` says which backends there are, and what each can do. Plain Python is `python`. The CPU's
kernels, in the order of calls: `cache` keeps them, and `cpu` compiles by `silent_nans` and its
`scalar_choices`, with the functions of `primitives`, `scalar_math`, `flags`, `streaming` and
`conversions`; `objectcode` makes bytes of it with `entries`, `checks` and `tiles`; `native` loads
those by `elf`. `tilecalls` is the memory that `tiles` reads, and `buffer_pool` the buffers that
results are written to. `cuda` is the same for GPUs, and `arraycalls` what CuPy is called for there
until a kernel is compiled; `libraries` are calls of CUDA's own. `compileworker` is the process of
the compile service that calls these compilers, and `complaints` what is said of a function that
they refuse.
"""
