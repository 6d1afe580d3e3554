"""Why a raw kernel is not compiled for the CPU."""

from __future__ import annotations


class NotCompiledError(Exception):
    """Nothing compiled does what a kernel does; the simulator runs it. The message has no line."""
