"""Shows that a user's own function may be given lazy chunks: everything it does is on a list.

`examination` says so of each step. `interpreter` goes through the bytecode with kinds of values
(`kinds`), by the table of `instructions`, to which `operators`, `invocations` and `closures`
(functions that a function defines) add theirs; `lists` has what lists may hold that are changed;
`calls` lists what may be called with what; `outside` holds what was read from outside, which a plan
depends on, and binds functions to it while they are recorded, and to what stands in for what asks
of what type arrays are. What is not known to be right runs on real arrays.

Of 8,529 functions of scipy, scikit-learn, xarray, dask and eight packages more, 401 are shown safe:
66 of these need methods of arrays, 24 raise errors, 23 call other functions in Python, 19 have
ranges and slices, 25 `numpy.asarray`, 22 make arrays of numbers, 12 `isinstance`, 11 define
functions, 10 write to parts of new arrays, 5 join lists, 3 import, 2 change lists, 2 enter
`numpy.errstate`, and 1 has a generator.
"""
