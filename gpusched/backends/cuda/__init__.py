"""Kernels on NVIDIA GPUs, compiled by numba-cuda to machine code and launched by cuda.core.

From kernel to launch, one file each: `skeleton` (source text), `bindings` and `vectorload` (the
names it uses), `compiler` (text to cubin, on any machine), `geometry` (blocks and threads),
`kernel_launch` (one or two launches), `runtime` (the GPU, and cubins on disk).  Importing this
package imports none of the optional libraries.
"""
