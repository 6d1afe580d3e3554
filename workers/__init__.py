"""What makes a dask worker own its device: finding devices, pinning, memory, health.

The folder is at the repository's root and is installed as ``gpusched.workers``.
"""

if __name__ != "gpusched.workers":
    raise ImportError("import this package as gpusched.workers, not as workers")
