"""Kernels as the user wants them: versions of their own, and the fastest choices per device."""

from gpusched.tuning.override import override

__all__ = ["override"]
