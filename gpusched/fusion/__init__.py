"""NumPy calls of a chunk task, recorded and run as a few generated kernels."""
