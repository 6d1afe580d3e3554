"""What a task of several neighbouring chunks does: the work of each, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpusched import events, placed
from gpusched.adapters.tasks import GraphNode, Task, execute_subgraph, is_container
from gpusched.graph.subgraph import layer_of
from gpusched.placed import TAKES_PLACED
from gpusched.plan.plan import Registers
from gpusched.record.catalogue import own
from gpusched.record.steps import ProgramStep


class Batch:
    """Runs chunk tasks one after the other, and returns the results that others need.

    Parameters
    ----------
    steps
        The tasks, operands before their users. Register ``k`` is what step ``k`` returns; after
        those come the inputs.
    outputs
        Numbers of the steps whose results are needed.

    Notes
    -----
    Immutable, and shared by threads and by all batches of a graph that have the same form.

    Examples
    --------
    >>> import operator
    >>> from gpusched.graph.running.batch import Batch
    >>> from gpusched.record.steps import ProgramStep
    >>> from gpusched.plan.plan import Register
    >>> double = ProgramStep(operator.add, (Register(2), Register(2)))
    >>> batch = Batch((double, ProgramStep(operator.neg, (Register(0),))), (1,))
    >>> batch(("a", "b"), 4)
    -8
    """

    def __init__(self, steps: tuple[ProgramStep, ...], outputs: tuple[int, ...]) -> None:
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
             mover: placed.Mover | None) -> Registers:  # fmt: skip
        registers: Registers = [*[None] * len(self.steps), *inputs]
        for number, (key, step) in enumerate(zip(keys, self.steps, strict=True)):
            if events.active:
                events.thread.task = key
            try:
                if mover is None:
                    registers[number] = step.call(step.function, registers)
                else:
                    with placed.lent(mover):
                        registers[number] = step.call(step.function, registers)
            except Exception as error:
                error.add_note(f"gpusched: for chunk {key}, one of {len(keys)} tasks in a batch")
                raise
        return registers


class Parts:
    """Chunks of one dtype in one piece of memory, which is sent and spilled as one.

    To write 256 of 10 float64 for another worker takes 0.1 ms so, and as a tuple 7.

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
    >>> from gpusched.graph.running.batch import Parts
    >>> Parts(np.arange(5), ((2,), (1, 3)))[1]
    array([[2, 3, 4]])
    """

    def __init__(self, buffer: np.ndarray, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.buffer = buffer
        self.shapes = shapes
        # Not NumPy's: programs may have put functions of their own in the place of its.
        by_shape = {shape: math.prod(shape) for shape in shapes}
        starts, start = [], 0
        for shape in shapes:
            starts.append(start)
            start += by_shape[shape]
        self._starts = starts
        self._sizes = by_shape

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int | slice) -> Any:
        if type(index) is slice:
            return [self[k] for k in range(*index.indices(len(self)))]
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


@own("moves", shown="")
def part(results: Any, index: int) -> Any:
    """Return one of a batch's results."""
    return results[index]


def calls_in(node: Any, layer: str = "") -> Iterator[tuple[Any, Sequence[Any], str]]:
    """Yield the functions that a task of dask's calls, those inside of it included.

    Each comes with its positional arguments as dask has them, or as a batch has, and with its
    layer.

    Examples
    --------
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.running.batch import calls_in
    >>> task = Task("x", max, List(TaskRef("a"), Task(None, abs, TaskRef("b"))))
    >>> [function for function, *_ in calls_in(task)] == [abs, max]
    True
    >>> list(calls_in(Task("x", max, 1, 2))) == [(max, (1, 2), "x")]
    True
    """
    if not isinstance(node, Task):
        return
    layer = layer if node.key is None else layer_of(node.key)
    values: list[Any] = [*node.args, *node.kwargs.values()]
    if node.func is execute_subgraph:
        inner, _, _, *values = node.args
        values += inner.values()
    for value in values:
        if isinstance(value, GraphNode):
            yield from calls_in(value, layer)
    if type(node.func) is Batch:
        yield from ((step.function, step.args, layer) for step in node.func.steps)
    elif node.func is not execute_subgraph and not is_container(node):
        yield node.func, node.args, layer
