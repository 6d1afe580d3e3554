"""A warning that chunks on a GPU are computed without kernels, since making these has failed."""

from __future__ import annotations

import threading
import warnings


class GpuFallbackWarning(UserWarning):
    """Kernels for chunks on a GPU cannot be made: CuPy's own calls compute them."""


_warned = threading.Event()


def warn_once(reason: str, library: str = "CuPy") -> None:
    """Warn of the first such failure of this process; statistics count each of them.

    Results are right without kernels, so that only a measurement would show that there are none.

    Parameters
    ----------
    reason
        What has failed.
    library
        Whose own calls compute instead.
    """
    if _warned.is_set():
        return
    _warned.set()
    warnings.warn(
        f"chunks on the GPU are computed by {library}'s own calls, unfused: {reason}. Other such "
        "failures of this process are counted in gpusched.statistics().breaks only; "
        "'gpusched doctor' tests each GPU",
        GpuFallbackWarning,
        stacklevel=2,
    )
