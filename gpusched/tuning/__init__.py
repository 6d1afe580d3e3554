"""Kernels as the user wants them: versions of their own, and the fastest choices per device."""

from gpusched.tuning.choosing import tune
from gpusched.tuning.overriding import override

__all__ = ["override", "tune"]
