"""What runs, seen from inside: kernels under a debugger, and every value on the way to one."""

from gpusched.debugging.debugger import debug
from gpusched.debugging.nonfinite import Nonfinite, find_nonfinite
from gpusched.debugging.trace import Trace, trace_element

__all__ = ["Nonfinite", "Trace", "debug", "find_nonfinite", "trace_element"]
