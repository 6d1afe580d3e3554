"""Where a debugger stops: in which kernels, and at which of their elements."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gpusched.debugging.readable import ReadableKernel

When = Literal["first", "every", "never"]


class Stops:
    """Decides where to stop.

    Raises `ValueError` or `SyntaxError` if `when` is something else, or `condition` is not an
    expression.

    Parameters
    ----------
    when
        ``"first"``: once in each kernel; ``"every"``: at each element; ``"never"``.
    condition
        A Python expression of a kernel's variables, and of NumPy's functions, which must hold.
    """

    def __init__(self, when: When, condition: str | None) -> None:
        if when not in ("first", "every", "never"):
            raise ValueError(f'stop={when!r}; it can be "first", "every" or "never"')
        if condition is not None and not isinstance(condition, str):
            raise TypeError(
                f"condition={condition!r}; write an expression of a kernel's variables, as text"
            )
        self._when = when
        self._text = condition or ""
        self._condition = compile(condition, "<condition>", "eval") if condition else None
        self._known: set[str] = set()
        self._fits = False
        self.offered = 0
        """Kernels and functions that could be stopped in."""

    def in_kernel(self, kernel: ReadableKernel) -> Callable[..., bool]:
        """Return what says for the arguments of a kernel's `point` whether to stop there."""
        if self._condition is None:
            return self._limited(lambda *arguments: True)
        condition = self._condition
        given, names = kernel.parameters, [name for name, _ in kernel.statements]
        known = {*given, *names}
        self._known |= known
        if not self._read() <= known:
            self.offered += 1
            return lambda *arguments: False
        self._fits = True

        def holds(*arguments: Any) -> bool:
            values = dict(zip(given, arguments, strict=True))
            values |= zip(names, kernel.values_of(*arguments), strict=True)
            return bool(eval(condition, dict(_NAMES), values))

        return self._limited(holds)

    def check(self) -> None:
        """Raise `NameError` if the condition reads what none of the kernels has."""
        if self._condition is not None and not self._fits:
            missing = ", ".join(sorted(self._read() - self._known)) or "variables"
            raise NameError(
                f"condition={self._text!r} reads {missing}, which no kernel that ran has; "
                f"they have {', '.join(sorted(self._known)) or 'none: nothing here is fused'}"
            )

    def _read(self) -> set[str]:
        tree = ast.parse(self._text, mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return names - _NAMES.keys() - vars(builtins).keys()

    def in_call(self) -> Callable[..., bool]:
        """Return the same for a function that is called on whole arrays."""
        return self._limited(lambda *arguments: self._condition is None)

    def _limited(self, holds: Callable[..., bool]) -> Callable[..., bool]:
        stopped = False
        self.offered += 1

        def wanted(*arguments: Any) -> bool:
            nonlocal stopped
            if self._when == "never" or (stopped and self._when == "first"):
                return False
            if not holds(*arguments):
                return False
            stopped = True
            return True

        return wanted


_NAMES: dict[str, Any] = {f: getattr(np, f) for f in ("abs", "isfinite", "isinf", "isnan", "sign")}
_NAMES |= {"np": np, "inf": np.inf, "nan": np.nan}
"""What a condition can use besides a kernel's variables."""
