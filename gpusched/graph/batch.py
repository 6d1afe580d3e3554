"""What a task of several neighbouring chunks does: the work of each, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpusched import events, placed
from gpusched.placed import TAKES_PLACED
from gpusched.record.catalogue import own


class Made(NamedTuple):
    """Stands for what a step of the batch returned."""

    step: int


class Given(NamedTuple):
    """Stands for an input of the batch, or for one item of it."""

    number: int
    item: int = -1
    """The item's; -1 for the whole."""


class Run(NamedTuple):
    """Stands for several items of an input, one after the other, as items of a list."""

    number: int
    start: int
    stop: int


class Step(NamedTuple):
    """One call; its arguments may hold `Made`, `Given` and `Run`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()


class Batch:
    """Runs chunk tasks one after the other, and returns the results that others need.

    Parameters
    ----------
    steps
        The tasks, operands before their users.
    outputs
        Numbers of the steps whose results are needed.

    Notes
    -----
    Immutable, and shared by threads and by all batches of a graph that have the same form.

    Examples
    --------
    >>> import operator
    >>> from gpusched.graph.batch import Batch, Given, Made, Step
    >>> double = Step(operator.add, (Given(0), Given(0)))
    >>> batch = Batch((double, Step(operator.neg, (Made(0),))), (1,))
    >>> batch(("a", "b"), 4)
    -8
    """

    def __init__(self, steps: tuple[Step, ...], outputs: tuple[int, ...]) -> None:
        self.steps = steps
        self.outputs = outputs
        if all(hasattr(step.function, TAKES_PLACED) for step in steps):
            setattr(self, TAKES_PLACED, True)

    @property
    def __name__(self) -> str:
        return f"batch-of-{len(self.steps)}"

    def __repr__(self) -> str:
        return f"<Batch of {len(self.steps)} tasks>"

    def __reduce__(self) -> Any:
        return Batch, (self.steps, self.outputs)

    def __call__(self, keys: Sequence[Any], *inputs: Any) -> Any:
        """Return the result, or `Parts` of several.

        Parameters
        ----------
        keys
            The tasks' keys, for who asks where an error comes from.
        *inputs
            What the tasks take from outside.
        """
        outer, mover = events.thread.task, placed.take()
        try:
            made = self._run(keys, inputs, mover)
        finally:
            events.thread.task = outer
        if len(self.outputs) == 1:
            return made[self.outputs[0]]
        return packed([made[k] for k in self.outputs])

    def _run(self, keys: Sequence[Any], inputs: Sequence[Any],
             mover: placed.Mover | None) -> list[Any]:  # fmt: skip
        made: list[Any] = []
        for key, (function, args, kwargs) in zip(keys, self.steps, strict=True):
            if events.active:
                events.thread.task = key
            try:
                given = [filled(arg, inputs, made) for arg in args]
                named = {name: filled(arg, inputs, made) for name, arg in kwargs}
                if mover is None:
                    made.append(function(*given, **named))
                else:
                    with placed.lent(mover):
                        made.append(function(*given, **named))
            except Exception as error:
                error.add_note(f"gpusched: for chunk {key}, one of {len(keys)} tasks in a batch")
                raise
        return made


def filled(structure: Any, inputs: Sequence[Any], made: Sequence[Any]) -> Any:
    """Return a structure with values instead of what stands for them.

    Examples
    --------
    >>> from gpusched.graph.batch import Given, Made, Run, filled
    >>> filled([Made(0), Run(0, 0, 2), {"last": Given(0, 2)}], [(6, 7, 8)], [5])
    [5, 6, 7, {'last': 8}]
    """
    kind = type(structure)
    if kind is Made:
        return made[structure[0]]
    if kind is Given:
        number, item = structure
        return inputs[number] if item < 0 else inputs[number][item]
    if kind is list:
        return [item for entry in structure for item in _items(entry, inputs, made)]
    if kind is tuple:
        return tuple(filled(entry, inputs, made) for entry in structure)
    if kind is dict:
        return {name: filled(entry, inputs, made) for name, entry in structure.items()}
    return structure


def _items(entry: Any, inputs: Sequence[Any], made: Sequence[Any]) -> Iterator[Any]:
    if type(entry) is Run:
        source = inputs[entry.number]
        return (source[k] for k in range(entry.start, entry.stop))
    return iter((filled(entry, inputs, made),))


class Parts:
    """Chunks of one dtype in one piece of memory, which is sent and spilled as one.

    Parameters
    ----------
    buffer
        The elements, chunk after chunk, each in C order.
    shapes
        The chunks' shapes.

    Notes
    -----
    Thread-safe as an array is. Items are views; one keeps all alive.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.batch import Parts
    >>> Parts(np.arange(5), ((2,), (1, 3)))[1]
    array([[2, 3, 4]])
    """

    def __init__(self, buffer: np.ndarray, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.buffer = buffer
        self.shapes = shapes
        sizes = [int(np.prod(shape)) for shape in dict.fromkeys(shapes)]
        by_shape = dict(zip(dict.fromkeys(shapes), sizes, strict=True))
        starts, start = [], 0
        for shape in shapes:
            starts.append(start)
            start += by_shape[shape]
        self._starts = starts
        self._sizes = by_shape

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> np.ndarray:
        shape, start = self.shapes[index], self._starts[index]
        return self.buffer[start : start + self._sizes[shape]].reshape(shape)

    def __reduce__(self) -> Any:
        return Parts, (self.buffer, self.shapes)

    def __sizeof__(self) -> int:
        return self.buffer.nbytes + 100 * len(self.shapes)

    def __dask_tokenize__(self) -> Any:
        from dask.base import tokenize

        return ("gpusched.Parts", tokenize(self.buffer), self.shapes)


def packed(values: list[Any]) -> Any:
    """Return values as one `Parts` if they are plain arrays alike, and as a tuple otherwise."""
    first = values[0]
    if type(first) is not np.ndarray or first.dtype.hasobject:
        return tuple(values)
    dtype = first.dtype
    for value in values:
        # A view such as NumPy's broadcast ones has no elements of its own to be copied: it is
        # left as it is, as are chunks whose elements lie in another order.
        if type(value) is not np.ndarray or value.dtype != dtype or not value.flags.c_contiguous:
            return tuple(values)
    return Parts(np.concatenate([v.reshape(-1) for v in values], dtype=dtype),
                 tuple([v.shape for v in values]))  # fmt: skip


@own("moves")
def part(results: Any, index: int) -> Any:
    """Return one of a batch's results."""
    return results[index]
