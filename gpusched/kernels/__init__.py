"""Kernels that users write themselves, in plain Python.

In the order of calls: `decorator` makes what users hold, `elementwise`, `stencil` (with
`neighbours`), `reduction`, `tuple_reduction`, `scan` and `raw`, shown by `notebook`; `laws` tries
whether the order of a reduction matters, `signatures` reads declared dtypes, `array_arguments` what
they are called on, and `errors` says what is wrong. Each freezes its function (`definition`) into
what tasks hold. That is called on dask's arrays by `dask_arrays` and on others by `eager`, and
recorded as an operation that `typed` makes for dtypes, with `mathematics`, `narrowing`, `unrolling`
and `trees`; `vectorized` records numba's ufuncs in the same way, and `jitted` its functions of
arrays. Raw kernels run on GPUs, on the CPU by `host`, and in the simulator of `simulation`.
"""

from gpusched.backends.cuda.errors import (
    DivergenceError,
    GuardError,
    RaceError,
    SimulationError,
    UninitialisedError,
)
from gpusched.kernels.decorator import kernel
from gpusched.kernels.errors import KernelError

__all__ = [
    "DivergenceError",
    "GuardError",
    "KernelError",
    "RaceError",
    "SimulationError",
    "UninitialisedError",
    "kernel",
]
