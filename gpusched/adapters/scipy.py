"""What SciPy's releases do differently."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def weighs_neighbours() -> bool:
    """Return whether `scipy.interpolate.interp1d` adds up weighted neighbours.

    Before SciPy 1.18 it went along the slope, and did not quite arrive at the next neighbour.
    """
    from packaging.version import Version

    return Version(version("scipy")) >= Version("1.18")
