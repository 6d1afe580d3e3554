"""What is known of kinds of processors, by LLVM's names of them."""

from __future__ import annotations

import llvmlite.binding as llvm
import numba


def name() -> str:
    """Return LLVM's name of the processor that code is made for.

    ``NUMBA_CPU_NAME`` names another kind than this machine's.
    """
    given = numba.config.CPU_NAME
    return str(llvm.get_host_cpu_name() if given is None else given)


def reads_ahead() -> bool:
    """Return whether it reads ahead by itself as fast as memory gives, if left to read in sequence.

    AMD's Zen does: of chunks of 16M elements, on two cores of a `znver4`, clip takes 62 ms in
    sequence and 88 ms from four places in turn, asked for early (float64; 43 and 61 ms in float32),
    square-sum 51 and 76 ms (37 and 54 ms). On Intel's `sapphirerapids` it is the other way round:
    four places and asking early make the whole run of clip 1.3 to 1.4 times as fast.
    """
    return name().startswith("znver")
