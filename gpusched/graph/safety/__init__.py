"""Shows that a user's own function may be given lazy chunks: everything it does is on a list.

`examination` says so of each step. `interpreter` goes through the bytecode with kinds of values
(`kinds`); `calls` lists what may be called with what; `outside` holds what was read from outside,
which a plan depends on, and binds functions to it while they are recorded, and to `standins` for
what asks of what type arrays are. `imports` follows
imports of what is loaded, `closures` functions that a function defines. What is not known to be
right runs on real arrays.
"""
