"""The compile service: one process per user and machine that compiles kernels for all others."""

from gpusched.store.service.client import (
    awaited,
    compiled,
    here,
    is_used,
    made,
    starting,
    status,
    stop,
    urge,
    wishing,
)

__all__ = [
    "awaited",
    "compiled",
    "here",
    "is_used",
    "made",
    "starting",
    "status",
    "stop",
    "urge",
    "wishing",
]
