"""Which operations gain from a kernel though there is nothing to fuse them with."""

from __future__ import annotations

import math

from gpusched.emit.kernel import MOMENTS
from gpusched.emit.operations import has
from gpusched.plan.expression import Apply, Reduce, Scan
from gpusched.record.record import Recorder


def gains_alone(recorder: Recorder, least: int) -> bool:
    """Return whether what has been recorded is one operation that is faster as a kernel.

    NumPy takes memory from the system for every large result, which costs more than most
    operations do, and has no vectors for some functions. Its sums wait for memory more than kernels
    do, its products for each other; columns of any kind it joins row by row. Its scans take 4 ns
    for each element, of which kernels take 1. Its largest and least of contiguous elements are as
    good, and so are CuPy's reductions; but not of windows, each of which it reads by itself. A
    float that no integer is equal to becomes what NumPy makes of it.

    Parameters
    ----------
    recorder
        What has recorded it.
    least
        Bytes of its result, or of what it sums up, from which on it may; 0 for never.
    """
    if not recorder.device.can.single or recorder.operations != 1 or not least:
        return False
    recorded = recorder.recorded()
    if not recorded:
        return False  # A kernel of the user's own, which runs as well by itself.
    # A reduction that comes again without the axes it has reduced is one operation.
    node = recorded[-1]
    if isinstance(node, Reduce):
        gains = _reduces_faster(node) or recorder.has_windows(node.argument)
    else:
        gains = _is_faster(node)
    computed = node.argument if isinstance(node, Reduce) else node
    large = math.prod(computed.shape) * computed.dtype.itemsize >= least
    return large and gains


def _reduces_faster(node: Reduce) -> bool:
    if isinstance(node, Scan):
        return True
    return node.combine in ("add", "multiply", MOMENTS) or node.argument.ndim - 1 not in node.axes


def _is_faster(node: Apply) -> bool:
    to_integers = node.dtype.kind in "iu" and node.arguments[0].dtype.kind == "f"
    return not has(node.operation, "alone") and not to_integers
