"""Templates that are kept between graphs: a graph that comes again has its tasks translated before.

That holds for forms whose signature has all that their program depends on: functions that processes
find by their names, partial applications and compositions of these, numbers and names, and what is
an input of the program whatever it is, such as arrays. Optimising a graph again takes 0.93 to
1.00 of the time so (three graphs of 4 to 12 ms, medians of 100). With functions of the user's,
which may read other values in the next graph, tasks are translated again by each graph.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.graph.functions.libraries import found_by_name
from gpusched.graph.functions.partials import COMPOSED, levels
from gpusched.graph.programs.program import Program, keep, lasts
from gpusched.graph.programs.templates import (
    Signatures,
    Template,
    frozen,
    identity_of,
    is_constant,
)
from gpusched.graph.safety.kinds import SCALARS
from gpusched.newest import Newest
from gpusched.record.catalogue import FUSIBLE
from gpusched.record.recorded import RecordedFunction, StandIn

if TYPE_CHECKING:
    from gpusched.graph.programs.functiontraits import Functions

FORMS = 1024
"""Forms of tasks whose templates are kept."""

Given = int | tuple[int, ...]
"""Which of a task's inputs a program is given; or which of its partial applications a guard has."""

_kept: Newest[Any, tuple[weakref.ref[Program], list[Given]] | None] = Newest(FORMS)
"""By form, programs for as long as they are kept, and what they are given; None for tasks that are
left as they are."""


class Passing(Exception):
    """A form that holds for its own graph only."""


class LastingForm(Signatures):
    """What a task is, in whichever graph.

    Parameters
    ----------
    node
        The task.
    functions
        What is known of functions while its graph is rewritten.

    Raises
    ------
    Passing
        If that is not known.
    """

    def __init__(self, node: Any, functions: Functions) -> None:
        super().__init__()
        self._functions = functions
        self._partials: list[partial[Any]] = []
        form, _ = self.of(node)
        self._key = functions.key, form

    def template(self) -> Template | None:
        """Return the template that another graph has left, with guards of this task's functions.

        None if tasks of this form are left as they are.

        Raises
        ------
        KeyError
            If no graph has left any.
        """
        found = _kept[self._key]
        _kept[self._key] = found
        if found is None:
            return None
        made, given = found
        program = made()
        if program is None:
            raise KeyError(self._key)
        keep(program)
        return program, tuple([p if isinstance(p, int) else self._guard(p) for p in given])

    def keep(self, template: Template | None) -> None:
        """Leave a template for other graphs, if its program is kept, too."""
        if template is None:
            _kept[self._key] = None
            return
        program, places = template
        numbers = {id(each): k for k, each in enumerate(self._partials)}
        guarded = [place.value.functions for place in places if not isinstance(place, int)]
        # What else holds partial applications would be called as this graph has left it.
        if numbers.keys() != {id(level) for each in guarded for f in each for level in levels(f)}:
            return
        given: list[Given] = [
            p if isinstance(p, int) else tuple([numbers[id(f)] for f in p.value.functions])
            for p in places
        ]
        if program.lasts:
            _kept[self._key] = weakref.ref(program), given

    def _guard(self, numbers: tuple[int, ...]) -> Any:
        return self._functions.guard(tuple([self._partials[k] for k in numbers]))

    # What tasks are made of ---------------------------------------------------------------

    def function(self, function: Any) -> Any:
        """Return what makes a function the same as that of a task of another graph."""
        if type(function) is partial:
            self._partials.append(function)
            named = tuple([(k, self._constant(v)) for k, v in function.keywords.items()])
            args = tuple(map(self._constant, function.args))
            return partial, self.function(function.func), args, named
        if isinstance(function, COMPOSED):
            return type(function), *map(self.function, (function.first, *function.funcs))
        if isinstance(function, RecordedFunction | StandIn) and lasts(function):
            return identity_of(function)
        if not found_by_name(function):
            raise Passing
        return (function, FUSIBLE) if hasattr(function, FUSIBLE) else function

    def inside(self, signature: Any) -> Any:
        """Return the signature of the graph inside a fused task: numbers are of one graph."""
        return signature

    def held(self, value: Any, inputs: list[Any]) -> Any:
        """Return what stands for a literal; what is an input of any program is listed as one."""
        if is_constant(value):
            return self._constant(value)
        if type(value) is np.ndarray or type(value) in SCALARS or _is_index(value):
            inputs.append(value)
            return type(value)
        raise Passing

    def _constant(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value), tuple(map(self._constant, value))
        if not is_constant(value):
            raise Passing
        if callable(value) and not isinstance(value, type):
            return self.function(value)
        return frozen(value)


def _is_index(value: Any) -> bool:
    """Return whether a literal is a slice, or some, of whole numbers."""
    if type(value) is tuple:
        return bool(value) and all(map(_is_index, value))
    parts = (value.start, value.stop, value.step) if type(value) is slice else (value,)
    return type(value) is slice and all(part is None or type(part) is int for part in parts)


def lasting_form(node: Any, functions: Functions) -> LastingForm | None:
    """Return what a task is in whichever graph; None if it is that in its own graph only."""
    try:
        return LastingForm(node, functions)
    except Passing:
        return None
