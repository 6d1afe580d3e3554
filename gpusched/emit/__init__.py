"""Kernel -> readable Python source, one text per kind of target.

In the order of calls: `kernel` is the definition, `policy` has the sizes of its
loops, and `choices` what can be chosen instead for one; `dtypes` is the table of dtypes, and of the
numbers that stand for each in a kernel; `operations` is the table
of NumPy's functions with their expressions, `scalars` the functions that these call,
`floatingpoint` the errors that NumPy reports of them; `generate` writes the scalar function
`point`, with `parsing` for syntax trees; `hostloops` (CPU, plain Python)
and `skeleton` (CUDA) write the `lines` of the loops around it, with those of moments and firsts,
which take several `accumulators` each; `editions` are users' sources instead of generated ones.
"""
