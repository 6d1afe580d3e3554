"""Where a task runs: groups of calls, with what is remembered of chunks of each kind.

`segment` is a group of a program's calls, which keeps in `remembered` its `decisions` by what its
`inputs` are. For others a `recording` is made: what is `traced` with lazy chunks has `results`, and
`layouts` that are compared with NumPy's. Pieces of chunks are cut off before (`cutfirst`).
`calling` runs calls without kernels: in an order of their own, on `blocks` if there is a
`division`, and those that users' functions make, too (`inlined`); where memory is short, a
segment runs in `pieces`. `moved` are chunks that a GPU's worker has copied there, and a `batch` is
several tasks that run one after the other.
"""
