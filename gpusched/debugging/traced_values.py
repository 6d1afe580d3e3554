"""What is shown of one value on the way to an element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gpusched.inspection.places import Place

Index = tuple[int, ...]
Kind = Literal["input", "operation", "reduction", "call"]


@dataclass(frozen=True)
class Where:
    """An element of an array that has a name."""

    array: str
    """The user's variable, or dask's name."""
    index: Index | None
    """In the whole array; None where that is not known."""
    chunk: Index | None = None
    """Position of its chunk among the array's; None where that is not known."""
    note: str = ""
    """What the value comes from, where it is not followed further."""
    place: Place | None = None
    """Where the array is made."""

    def __str__(self) -> str:
        if self.index is None:
            return self.array
        return f"{self.array}[{', '.join(map(str, self.index)) or '()'}]"


@dataclass(frozen=True)
class Traced:
    """One value."""

    kind: Kind
    """What makes it: it is read, or an operation's, a reduction's or a function's result."""
    name: str
    """The variable in the kernel: the user's name where it is known."""
    expression: str
    """What it is computed by, or which element it is."""
    operation: str
    """NumPy's name of the operation; empty for an input."""
    dtype: str
    value: Any
    """A NumPy scalar."""
    place: Place | None
    """The user's line."""
    where: Where | None
    """The element that is being computed, or read."""
    note: str = ""

    @property
    def finite(self) -> bool:
        """Whether it is neither NaN nor infinite."""
        return is_finite(self.value)


def is_finite(value: Any) -> bool:
    """Return whether a number is neither NaN nor infinite; True for what is not such a number.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.debugging.traced_values import is_finite
    >>> is_finite(np.float32("nan")), is_finite(np.int8(3)), is_finite(np.str_("a"))
    (False, True, True)
    """
    return np.asarray(value).dtype.kind not in "fc" or bool(np.isfinite(value))
