"""Private names of dask and distributed: one file for each part of them, and no others.

Where a new version of dask or distributed has other names, tests/test_private_names.py says which
have moved, and counts those that are used outside of this folder.
"""
