"""Kernels that users write themselves, in plain Python."""

from gpusched.kernels.decorator import kernel
from gpusched.kernels.errors import KernelError

__all__ = ["KernelError", "kernel"]
