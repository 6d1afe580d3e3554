"""dask graphs -> programs: the hook, the rewriting, and what a chunk task becomes."""

from gpusched.graph.hook import disable, enable, optimize
from gpusched.graph.marking import fusible

__all__ = ["disable", "enable", "fusible", "optimize"]
