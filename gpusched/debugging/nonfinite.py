"""`gpusched.find_nonfinite`: the chunk, element, operation and line where a NaN or inf arose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.core import flatten

from gpusched.adapters.tasks import DataNode
from gpusched.debugging.check import Bad, nonfinite
from gpusched.debugging.follow import Follower
from gpusched.debugging.graph import Graph
from gpusched.debugging.sources import reads, told_of
from gpusched.debugging.subject import Subject
from gpusched.debugging.traced_values import Index, Traced, Where, is_finite
from gpusched.inspection.places import Place
from gpusched.inspection.standins import arrays_in
from gpusched.quantities import count


@dataclass(frozen=True)
class Nonfinite:
    """Where the first NaN or inf arose: printed as text, shown by Jupyter, or taken as data."""

    array: str
    """The array whose chunk it arose in: the user's variable, or dask's name."""
    chunk: Index
    """Position of that chunk."""
    index: Index | None
    """Of the element, in the array that `element` names; None where dask does not know it."""
    element: str
    """The element, with the name of its array."""
    value: Any
    """NaN, or an infinity: a NumPy scalar."""
    operation: str
    """NumPy's name of the operation, or the function's; empty where it was in the input."""
    place: Place | None
    """The user's line."""
    already_in_input: bool
    """Whether it is in data that the graph holds or reads, rather than computed."""
    steps: tuple[Traced, ...]
    """The values that lead to it."""
    chunks: int
    """Chunks of the result that have such values."""
    nans: int
    """In the result."""
    infs: int
    """In the result."""

    @property
    def step(self) -> Traced | None:
        """The first value that is not finite."""
        return next((step for step in self.steps if not step.finite), None)

    @property
    def summary(self) -> str:
        """Where it arose, in sentences."""
        where = f"in chunk {self.chunk} of {self.array}"
        if self.already_in_input:
            told = f"The first {self.value} was already in the input: {self.element}, {where}."
        else:
            line = f" at {self.place}" if self.place else ""
            told = (
                f"The first {self.value} arose in {self.operation}{line}: for {self.element}, "
                f"{where}."
            )
        return (
            f"{told} The result has {self.nans:,} NaN and {self.infs:,} inf, in "
            f"{count(self.chunks, 'chunk')}."
        )

    def text(self, width: int = 100) -> str:
        """Return it as text.

        Parameters
        ----------
        width : int
            Columns.
        """
        from gpusched.debugging.show import finding_text

        return finding_text(self, width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()


def find_nonfinite(x: Any) -> Nonfinite | None:
    """Return where the first NaN or inf of an array arose, or None if all of it is finite.

    The chunks of the result are looked at where they are computed; then, for the first that has
    such a value, those that it is computed from, in the order of the graph. Only counts and
    positions come back, and the inputs of the one task in which it arose.

    Parameters
    ----------
    x : dask.array.Array or xarray.DataArray
        A dask array, or an xarray DataArray of one.

    Returns
    -------
    Nonfinite or None
        What is not finite in an intermediate result but does not reach `x`, as under `nanmean`, is
        not looked for.

    Raises
    ------
    TypeError
        If `x` is not such an array.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.arange(10_000, chunks=5_000)
    ...     y = 1 / (x - 7_000)
    ...     found = gpusched.find_nonfinite((y * 2).sum())
    >>> found.operation, found.index, float(found.value)
    ('divide', (7000,), inf)
    """
    subject = Subject(x)
    graph = Graph(subject.array)
    keys = list(flatten([subject.array.__dask_keys__()]))
    found = {key: bad for key, bad in _checked(graph, keys).items() if bad is not None}
    if not found:
        return None
    first = next(key for key in keys if key in found)
    behind = [key for key in graph.ancestors([first]) if key != first]
    every = {**_checked(graph, behind), **found}
    born = _born(graph, first, every)
    bad = every[born]
    assert bad is not None
    return _located(graph, born, bad, found)


def _checked(graph: Graph, keys: list[Any]) -> dict[Any, Bad | None]:
    return dict(zip(keys, graph.apply(nonfinite, keys), strict=True))


def _born(graph: Graph, first: Any, every: dict[Any, Bad | None]) -> Any:
    """Return the first chunk, in the order of the graph, that is not finite but made of such."""
    reached, work = {first}, [first]
    while work:
        bad = [key for key in graph.needs(work.pop()) if every.get(key) is not None]
        work += [key for key in bad if key not in reached]
        reached.update(bad)
    return next(
        key
        for key in graph.ancestors([first])
        if key in reached and all(every.get(other) is None for other in graph.needs(key))
    )


def _check_again(where: Where, value: Any) -> None:
    if is_finite(value):
        raise RuntimeError(
            f"{where} was not finite, and is {value} when it is computed again: what computes it "
            "gives other values each time; persist() the array before"
        )


def _located(graph: Graph, key: Any, bad: Bad, found: dict[Any, Bad]) -> Nonfinite:
    """Return where in a task it arose, by going through that one here."""
    follower = Follower(graph, 0, into_reductions=True)
    run = follower.run_of(key)
    array = arrays_in(run.result)[bad.array]
    local = bad.local if np.ndim(array) else ()
    where = graph.where(key, local)
    follower.element(run, array, local, where, 0)
    node = graph.node(key)
    held, named = isinstance(node, DataNode), graph.named(key)
    first = next((step for step in follower.steps if not step.finite), None)
    if first is None:
        _check_again(where, array[local])
        first = Traced("input" if held else "call", "", str(where), "" if held else told_of(node),
                     str(array.dtype), array[local], where.place, where)  # fmt: skip
        follower.steps.append(first)
    element = first.where if first.where and first.where.index is not None else where
    block = named[1:] if isinstance(named, tuple) else ()
    return Nonfinite(
        array=element.array,
        chunk=block if element.chunk is None else element.chunk,
        index=element.index,
        element=str(element),
        value=first.value,
        operation=first.operation,
        place=first.place,
        already_in_input=first.kind == "input" or reads(node),
        steps=tuple(follower.steps),
        chunks=len(found),
        nans=sum(each.nans for each in found.values()),
        infs=sum(each.infs for each in found.values()),
    )
