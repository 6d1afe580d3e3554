"""How chunks, kernels and functions move between processes and to disk.

Importing it takes the place of distributed's own functions for arrays: those of NumPy, CuPy, numba,
torch, JAX and TensorFlow, and others with DLPack or ``__cuda_array_interface__``. With plain
distributed, every process that sends arrays so has to import it; those that only receive them
do that themselves, if gpusched is installed. gpusched's own workers have imported it.

The folder is at the repository's root and is installed as ``gpusched.serialization``.
"""

if __name__ != "gpusched.serialization":
    raise ImportError("import this package as gpusched.serialization, not as serialization")

from gpusched.serialization.arrays.registration import register

__all__ = ["register"]

register()
