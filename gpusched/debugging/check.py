"""What a worker says of a chunk: where in it NaN and inf are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched.debugging.host_copies import every_array


@dataclass(frozen=True)
class Bad:
    """What is not finite in one chunk."""

    nans: int
    infs: int
    array: int
    """Which of the arrays in it, where a partial result has several, is the first."""
    local: tuple[int, ...]
    """Where in that array the first element is."""


def nonfinite(value: Any) -> Bad | None:
    """Return what is not finite in a chunk, and None if all is.

    Parameters
    ----------
    value
        An array of NumPy's or CuPy's, a number, or a list, tuple or dictionary of them. Masked
        elements, and what is neither floating nor complex, count as finite.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.debugging.check import nonfinite
    >>> nonfinite(np.array([[1.0, 2.0], [np.inf, np.nan]]))
    Bad(nans=1, infs=1, array=0, local=(1, 0))
    """
    nans = infs = 0
    first: tuple[int, tuple[int, ...]] | None = None
    for number, array in enumerate(every_array(value)):
        wrong = _wrong(array)
        if wrong is None or not wrong.any():
            continue
        count, missing = int(wrong.sum()), int((np.isnan(array) & wrong).sum())
        nans, infs = nans + missing, infs + count - missing
        if first is None:
            place = np.unravel_index(int(wrong.argmax()), wrong.shape)
            first = number, tuple(map(int, place))
    return None if first is None else Bad(nans, infs, *first)


def _wrong(array: Any) -> Any:
    """Return where an array is not finite; None for one that cannot be but finite."""
    if array.dtype.kind not in "fc":
        return None
    if isinstance(array, np.ma.MaskedArray):
        return ~np.isfinite(array.data) & ~np.ma.getmaskarray(array)
    return ~np.isfinite(array)
