"""What is not public of dask, distributed, NumPy, numba, flox and xarray: a file each.

Where a new version of dask or distributed has other names, tests/adapters/test_upstream.py says
which have moved; `tested_releases` has the releases that were tested, which errors and ``gpusched
doctor`` name. tests/test_private_names.py finds private names outside of this folder.
"""
