"""How chunks, kernels and functions move between processes and to disk.

The folder lies at the repository's root and is installed as ``gpusched.serialization``.
"""

if __name__ != "gpusched.serialization":
    raise ImportError("import this package as gpusched.serialization, not as serialization")
