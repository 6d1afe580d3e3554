"""What compiles a kernel's source and calls it: plain Python, numba, and numba-cuda."""
