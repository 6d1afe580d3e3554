"""Arrays that are not dask.array's own: dask's array expressions, and the package dask-array."""
