"""Kernel -> the loops around `point` on the CPU, and with them the whole of its source.

The same text runs in plain Python (the reference, and what pdb steps through) and through numba
on the CPU.  Two small functions hide pointer arithmetic: ``shift(a, k)`` is `a` starting `k`
elements further, ``element(a, k)`` its element `k`, where `k` may be negative.

Memory gives more when it is asked early, and in several places.  Where inputs are contiguous,
blocks of them are taken from `PLACES` places in turn, and a later block is asked for while one is
computed; where rows are joined, `JOINED_ROWS` are read at once (all of `gpusched.emit.policy`).
Processors that are faster in sequence (`backends.processors`) take ``spread`` and ``ahead`` for
just that.
"""

from __future__ import annotations

from gpusched.emit import editions
from gpusched.emit.generate import header, helper_source, point_source
from gpusched.emit.hostloops.joining import Joining, LabelledRows
from gpusched.emit.hostloops.lanes import Scanned, Segmented
from gpusched.emit.hostloops.nest import Elementwise, Nest, block, is_heavy
from gpusched.emit.hostloops.reduction import Reduction
from gpusched.emit.hostloops.windows import Windows
from gpusched.emit.kernel import EXACT, Kernel, unchecked

BOUND = frozenset(["shift", "element", "scratch", "stream", "drain", "spread", "ahead", "least",
                   "greatest", "number_or", "past_line", "prefetch", "compensated_add",
                   "clear_floating_point_errors", "floating_point_errors", "flush_subnormals",
                   "restore_subnormals"])  # fmt: skip
"""What loops call, and each target has a function for."""

CALLED = BOUND | {"deviation", "reopened", "settled", "join_moments", "is_above", "is_below"}
"""What loops call, besides `point` and what joins values."""


def _nest(kernel: Kernel) -> Nest:
    if LabelledRows.takes(kernel):
        return LabelledRows(kernel)
    if kernel.segmented:
        return Segmented(kernel)
    if kernel.scanned:
        return Scanned(kernel)
    if kernel.windows is not None:
        return Windows(kernel)
    if kernel.reduces_innermost:
        return Reduction(kernel)
    return Joining(kernel) if kernel.reduces else Elementwise(kernel)


def _loops(kernel: Kernel) -> str:
    """Return the source of the loops, in which subnormal numbers are zero where fast is enough."""
    text = _nest(kernel).source()
    if kernel.mathematics == EXACT:
        return text
    head, *body = text.split("\n")
    last = [body.pop()] if kernel.checked else []
    before, after = "    before = flush_subnormals()", "    restore_subnormals(before)"
    return "\n".join([head, before, *body, after, *last])


def source(kernel: Kernel, checked: bool = True) -> str:
    """Return the whole text of a kernel for the CPU and for plain Python.

    Parameters
    ----------
    kernel
        The definition.
    checked
        Whether it returns floating-point errors, if the kernel does; users read it without.
    """
    name = kernel.name
    if kernel.edition is not None:
        return editions.with_loops(kernel.edition, "cpu", _loops(kernel))
    if not checked:
        kernel = unchecked(kernel)
    point = point_source(kernel)
    loops = _loops(kernel)
    parts = [helper_source(point + loops) + point, loops]
    return "\n\n\n".join([header(kernel, name), *parts]) + "\n"


__all__ = ["BOUND", "CALLED", "block", "is_heavy", "source"]
