"""Running totals of scans as source: what they start from, and how elements are joined to them."""

from __future__ import annotations

import numpy as np

from gpusched.emit.generate import expression, identity_value, literal
from gpusched.emit.kernel import Output, Statement


def start(output: Output) -> str:
    """Return what is before the first element: joined with that, it gives the element itself."""
    dtype = np.dtype(output.dtype)
    assert output.combine is not None
    found = identity_value(output.combine, dtype)
    if output.combine == "add" and dtype.kind == "f":
        found = -0.0  # A sum of negative zeros is one.
    return literal(found, output.dtype)


def joined(output: Output, total: str, element: str) -> str:
    """Return what an element joined to a total gives, rounded as NumPy rounds each one."""
    assert output.combine is not None
    statement = Statement(output.combine, 0, (), output.dtype, output.dtype)
    return expression(statement, [f if f.isidentifier() or f[-1] in ")]" else f"({f})"
                                  for f in (total, element)])  # fmt: skip


def loaded(output: Output, element: str) -> str:
    """Return an element in the dtype that is computed in."""
    return f"from_float16({element})" if output.dtype == "float16" else element


def stored(output: Output, value: str) -> str:
    """Return a value as an element of the output."""
    return f"to_float16({value})" if output.dtype == "float16" else value
