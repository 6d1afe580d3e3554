"""`gpusched.trace_element`: every value that leads to one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusched.debugging.follow import Follower
from gpusched.debugging.graph import Graph
from gpusched.debugging.subject import Subject
from gpusched.debugging.traced_values import Index, Traced


@dataclass(frozen=True)
class Trace:
    """The values that lead to one element: printed as text, shown by Jupyter, or taken as data."""

    array: str
    """The user's variable, or dask's name."""
    index: Index
    """Of the element, in the array."""
    chunk: Index
    """Position of its chunk."""
    value: Any
    """Of the element: a NumPy scalar."""
    steps: tuple[Traced, ...]
    """In the order in which they are computed."""

    @property
    def first_nonfinite(self) -> Traced | None:
        """The first value that is NaN or infinite."""
        return next((step for step in self.steps if not step.finite), None)

    def text(self, width: int = 100) -> str:
        """Return it as text.

        Parameters
        ----------
        width : int
            Columns.
        """
        from gpusched.debugging.show import trace_text

        return trace_text(self, width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()


def trace_element(x: Any, index: Any, *, depth: int = 8) -> Trace:
    """Return every value that leads to an element, in order, as for finding where a NaN comes from.

    The chunk's real inputs are computed, and the kernels' source runs in plain Python for this
    element, as `debug` runs it. Where a chunk comes from a task that works on elements, that one is
    gone through, too; results of reductions and of functions that are not fused are inputs.

    Parameters
    ----------
    x : dask.array.Array or xarray.DataArray
        A dask array, or an xarray DataArray of one.
    index : tuple of int
        Position of the element, counted from the end where negative.
    depth : int
        How many tasks are gone back; each has its inputs computed.

    Returns
    -------
    Trace
        The values, with their operations, dtypes and the user's lines, for `print`; the first that
        is not finite is marked.

    Raises
    ------
    TypeError, IndexError, ValueError
        If `x` is not such an array, or has no such element.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.arange(10_000, chunks=5_000)
    ...     y = da.log((x - 7_000) * 2)
    >>> found = gpusched.trace_element(y, 7_000)
    >>> [(step.operation, float(step.value)) for step in found.steps[-2:]]
    [('astype', 0.0), ('log', -inf)]
    """
    subject = Subject(x)
    spot = subject.at(index)
    if depth < 0:
        raise ValueError(f"depth={depth!r}: a number of tasks to go back is needed, 0 or more")
    follower = Follower(Graph(subject.array), depth, into_reductions=True)
    assert spot.local is not None and spot.index is not None
    value = follower.value_of(spot.key, spot.local)
    return Trace(subject.name, spot.index, spot.chunk, value, tuple(follower.steps))
