"""What a recording puts off, what stands in for it, and what it may not put off.

Steps that are recorded have not run: something stands in for their results. A recording needs the
shapes and layouts of arrays, not what is in them: it is the plan that copies, or the functions
themselves where no plan is there yet. Without what functions that copy return before they have
copied anything (`FORMS`), a first call copied twice: a quantile of 300 MB took 2.0 instead of 1.2
seconds.

So that a program takes no more memory than NumPy's run, some values are to be computed early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from gpusched.backends.buffer_pool import owner
from gpusched.emit.policy import LEAST_FREED
from gpusched.plan.expression import Gather, Node, Segments, postorder
from gpusched.plan.plan import Registers, Step, written
from gpusched.record.views import copied


class Postponed:
    """The steps of a recording that have not run.

    Parameters
    ----------
    contents
        The recorder's registers: each that one of these steps is to write holds an uninitialised
        array of its shape, dtype and strides, or a view of such a one.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, contents: Registers) -> None:
        self._contents = contents
        self._steps: list[Step] = []
        self._written: set[int] = set()
        """Registers that these write."""

    @property
    def steps(self) -> list[Step]:
        """The steps, in order."""
        return list(self._steps)

    def add(self, step: Step) -> None:
        """Add a step to the end."""
        self._steps.append(step)
        self._written |= written(step)

    def writes(self, registers: Iterable[int]) -> bool:
        """Return whether some of these registers are still to be written."""
        return not self._written.isdisjoint(registers)

    def run(self, steps: list[Step]) -> None:
        """Run all of them, as these steps do what they do."""
        for step in steps:
            self._let_go(written(self._steps.pop(0)) & self._written)
            step(self._contents)
        self._written.clear()

    def discard(self) -> None:
        """Let go of all that stands in for results: none of the steps is to run here."""
        self._let_go(self._written)

    def _let_go(self, registers: set[int]) -> None:
        for register in registers:
            self._contents[register] = None


def early(nodes: Sequence[Node], done: Mapping[int, int], arrays: Sequence[Any],
          kept: Set[int]) -> Node | None:  # fmt: skip
    """Return what to compute first, as values take less memory than what they are computed from.

    NumPy has these values at this point of the program. Where they are left for later, the arrays
    that only they are computed from are there as long. If these take no more than the values, and
    each no more than the ones that it alone is computed from, NumPy holds no less.

    Parameters
    ----------
    nodes
        Of all chunks that the program still holds.
    done
        The registers of nodes that are computed.
    arrays
        By register: what stands in for them.
    kept
        Registers that are there to the end, such as the program's inputs.
    """
    held = {id(owner(arrays[k])) for k in kept}
    held |= {id(owner(arrays[done[id(node)]])) for node in nodes if id(node) in done}
    waiting: list[tuple[Node, dict[int, int]]] = []
    for node in nodes:
        if id(node) not in done:
            read = map(owner, (arrays[k] for k in _read(node, done)))
            waiting.append((node, {id(a): a.nbytes for a in read if id(a) not in held}))
    times = Counter(which for _, freed in waiting for which in freed)

    def gain(node: Node, freed: dict[int, int]) -> int:
        return sum(n for which, n in freed.items() if times[which] == 1) - node.nbytes

    waiting = sorted((each for each in waiting if each[1]), key=lambda each: gain(*each))
    freed = {which: n for _, each in waiting for which, n in each.items()}
    more = sum(freed.values()) - sum(node.nbytes for node, _ in waiting)
    pays = more >= LEAST_FREED or (waiting and gain(*waiting[-1]) >= LEAST_FREED)
    # One by one, so that what is let go of makes room for the next.
    return waiting[-1][0] if pays else None


def _read(node: Node, done: Mapping[int, int]) -> set[int]:
    """Return the registers that a node is computed from."""
    found: set[int] = set()
    for each in postorder([node], lambda node: id(node) in done):
        if id(each) in done:
            found.add(done[id(each)])
        elif isinstance(each, Gather):
            found |= {each.register, each.labels.register}
        elif isinstance(each, Segments):
            found.add(each.labels.register)
    return found


# Copies that are not made yet ----------------------------------------------------------------


Function = Callable[..., Any]

FORMS: dict[Function, Function] = {}
"""By function, what returns an array of the same layout; filled while modules are imported."""


def form_of(*functions: Function) -> Callable[[Function], Function]:
    """Return a decorator of a function that returns uninitialised what `functions` return.

    It returns None for what it does not know: all but NumPy's own arrays, and errors.
    """

    def decorate(form: Function) -> Function:
        FORMS.update(dict.fromkeys(functions, form))
        return form

    return decorate


def of_numpy(*arrays: Any) -> bool:
    """Return whether these are NumPy's own arrays, of one dtype."""
    return {type(each) for each in arrays} == {np.ndarray} and len({a.dtype for a in arrays}) == 1


@form_of(copied)
def _copied(array: Any) -> Any:
    return np.empty_like(array, order="C") if of_numpy(array) else None


@form_of(np.copy)
def _copy(array: Any) -> Any:
    return np.empty_like(array) if of_numpy(array) else None


def _joined(function: Function, arrays: Any, axis: Any) -> Any:
    """Return an array of the shape, and in the order in memory, that NumPy has for joined arrays.

    That order is the one of their strides; axes of one element have none. So it is the same for
    the first two elements along each axis.
    """
    new = function is np.stack
    if not of_numpy(*arrays) or axis not in range(-(ndim := arrays[0].ndim + new), ndim):
        return None
    axis %= ndim
    around = {(e.shape[:axis], e.shape[axis + (not new) :]) for e in arrays}
    if len(around) > 1:
        return None
    (before, after), *_ = around
    shape = (*before, sum(1 if new else each.shape[axis] for each in arrays), *after)
    few = function([each[(slice(2),) * each.ndim] for each in arrays], axis=axis)
    # Of axes with the same stride, all have one element but the outermost.
    order = sorted(range(len(shape)), key=lambda k: (-few.strides[k], -few.shape[k]))
    made = np.empty([shape[k] for k in order], few.dtype)
    return made.transpose(np.argsort(order))


for _function in (np.concatenate, np.stack):
    form_of(_function)(partial(_joined, _function))
