"""The compile service: one process per user and machine that compiles kernels for all others."""

from gpusched.fusion.service.client import compiled, here, status, stop, urge, wishing

__all__ = ["compiled", "here", "status", "stop", "urge", "wishing"]
