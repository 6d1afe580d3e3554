"""Tasks of one form -> one program, found by what the tasks are, not by what they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusched.adapters.tasks import DataNode, Task, TaskRef
from gpusched.graph.partials import Guard
from gpusched.graph.program import Program
from gpusched.graph.signature import Signatures

Translate = Callable[[Any], Any]


class Templates:
    """Rewrites tasks as the first of their form was rewritten.

    Parameters
    ----------
    translate
        Returns a task as a program, or itself.
    constant
        Returns what makes two literals the same, if a program depends on them; None for those that
        are its inputs.

    Notes
    -----
    Belongs to one thread, for as long as the graph lives.
    """

    def __init__(self, translate: Translate, constant: Callable[[Any], Any]) -> None:
        self._translate = translate
        self._constant = constant
        self._signatures = Signatures()
        self._known: dict[Any, tuple[Program, tuple[int | DataNode, ...]] | None] = {}

    def rewrite(self, node: Task) -> Any:
        """Return a task as a program, or itself, as `translate` does it."""
        signature, inputs = self._signatures.of(node)
        constant = self._constant
        fixed = tuple([None if type(i) is TaskRef else constant(i) for i in inputs])
        form = signature, fixed
        try:
            found = self._known[form]
        except KeyError:
            return self._first(node, form, inputs)
        if found is None:
            return node
        program, places = found
        args = [_argument(place, inputs) for place in places]
        return Task(node.key, program, *args, _data_producer=node.data_producer)

    def _first(self, node: Task, form: Any, inputs: list[Any]) -> Any:
        task = self._translate(node)
        if task is node:
            self._known[form] = None
            return node
        places = _places(task.args, inputs)
        if places is not None:
            self._known[form] = task.func, places
        return task


def _argument(place: int | DataNode, inputs: list[Any]) -> Any:
    if type(place) is not int:
        return place
    value = inputs[place]
    return value if type(value) is TaskRef else DataNode(None, value)


def _places(args: tuple[Any, ...], inputs: list[Any]) -> tuple[int | DataNode, ...] | None:
    """Return which of a task's inputs its program's are; None if that is not known.

    Literals are found by their identity: one that is given twice may be two in the next task.
    Guards belong to functions, which are the same ones for all tasks of a form.
    """
    refs: dict[Any, int] = {}
    literals: dict[int, int] = {}
    for k, value in enumerate(inputs):
        if type(value) is TaskRef:
            refs.setdefault(value.key, k)
        elif id(value) in literals:
            literals[id(value)] = -1
        else:
            literals[id(value)] = k

    def place(arg: Any) -> int | DataNode:
        if type(arg) is TaskRef:
            return refs.get(arg.key, -1)
        return arg if type(arg.value) is Guard else literals.get(id(arg.value), -1)

    found = [place(arg) for arg in args]
    return None if any([type(k) is int and k < 0 for k in found]) else tuple(found)
