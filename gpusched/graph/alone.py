"""Which operations gain from a kernel though there is nothing to fuse them with."""

from __future__ import annotations

import math

import numpy as np
from dask.utils import parse_bytes

from gpusched import config
from gpusched.fusion.choices import ChoiceError
from gpusched.fusion.expression import Apply
from gpusched.fusion.operations import FAST_IN_NUMPY
from gpusched.fusion.record import Recorder

_TOLD = frozenset(["warn", "ignore"])
"""What `numpy.errstate` may say of floating-point errors: of a function that is not arithmetic,
kernels tell none."""


def gains_alone(recorder: Recorder) -> bool:
    """Return whether what has been recorded is one operation that is faster as a kernel.

    NumPy takes memory from the system for every large result, which costs more than most
    operations do, and has no vectors for some functions. Its reductions are as good as kernels,
    and so are CuPy's. A float that no integer is equal to becomes what NumPy makes of it.

    Raises
    ------
    ChoiceError
        If ``gpusched.fusion.single-operation-bytes`` is no number of bytes.
    """
    least = _least()
    nodes = recorder.recorded()
    if recorder.device.name != "cpu" or len(nodes) != 1 or not least:
        return False
    (node,) = nodes
    if not isinstance(node, Apply) or node.operation in FAST_IN_NUMPY:
        return False
    to_integers = node.dtype.kind in "iu" and node.arguments[0].dtype.kind == "f"
    large = math.prod(node.shape) * node.dtype.itemsize >= least
    return large and not to_integers and _TOLD.issuperset(np.geterr().values())


def _least() -> int:
    setting = config.get("fusion.single-operation-bytes")
    try:
        return int(parse_bytes(setting or 0))
    except (TypeError, ValueError, AttributeError):
        raise ChoiceError(
            f"gpusched.fusion.single-operation-bytes is {setting!r}: it takes a number of bytes, "
            f"such as 4 MiB, or null"
        ) from None
