"""Whether functions may be given lazy chunks, and which of a program's may not and why."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import dask
import numpy as np

from gpusched.adapters.tasks import GraphNode, TaskRef, Tuple
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.graph.functions.known import called_for_place, known
from gpusched.graph.functions.libraries import FUNCTIONS, NAMED, OBJECTS, is_in, package
from gpusched.graph.functions.partials import applied, bare, name_of
from gpusched.graph.safety.kinds import Items, Kind, Known, is_constant, is_format
from gpusched.graph.safety.objects import method_of
from gpusched.graph.safety.outside import Outside, is_little
from gpusched.newest import Newest
from gpusched.plan.plan import Register
from gpusched.record.catalogue import has, own_traits

LIBRARY = GraphBreak.LIBRARY("a library's own function")
"""The reason given for functions of packages, which are not the user's to change."""
OBSCURE = GraphBreak.UNCOMPARABLE("an object, or a dictionary of arrays, among the arguments")
INSTEAD = ("gpusched.graph",)
"""Modules with functions that programs call instead of a library's."""
COMPILED = GraphBreak.LIBRARY("a function that numba has compiled, which no kernel holds")


@dataclass(frozen=True)
class Verdict:
    """Whether a function may be given lazy chunks in one call."""

    reason: Reason | None
    """Why not; None if it may."""
    outside: Outside = field(default_factory=Outside)
    """What it reads from outside, as far as it was looked at."""
    is_little: bool = False
    """Whether neither it nor an argument that is known holds arrays: the verdict is kept."""


VERDICTS = 256
"""Verdicts that are kept between graphs. A graph that comes again asks for the same ones, and a
function of ten operations takes a millisecond."""

_verdicts: Newest[Any, tuple[Any, Verdict]] = Newest(VERDICTS)


def remembered(function: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> Verdict:
    """Return what `examined` does, or has returned, if what the function reads is the same."""
    key = id(function), args, tuple(names.items())
    of, verdict = _verdicts.get(key, (None, None))
    if verdict is None or of is not function or not verdict.outside.holds():
        verdict = examined(function, args, names)
        if verdict.is_little:
            _verdicts[key] = function, verdict
    return verdict


def examined(function: Any, args: Iterable[Any], names: Mapping[str, Any]) -> Verdict:
    """Return whether a function is safe for lazy chunks, called in that way.

    Parameters
    ----------
    function
        The function, or a partial application of it.
    args, names
        Kinds of its arguments, as `kind_of` returns them.
    """
    settled = of_any_call(function)
    if settled is not None:
        return settled
    called = function
    function, args, names = _spread(called, args, names)
    if not any(map(_may_be_chunk, (*args, *names.values()))):
        return Verdict(GraphBreak.NO_ARRAY("is given no chunk"))
    # Programs that call no functions of the user's do without.
    from gpusched.graph.safety.check import examine
    from gpusched.graph.safety.listed import Unsafe

    outside, reason = Outside(), None
    try:
        examine(function, args, names, outside)
    except Unsafe as error:
        reason = error.reason
    except Exception as error:
        if dask.config.get("gpusched.fusion.strict", False):
            raise
        told = f"could not be examined: {type(error).__name__}: {error}"
        return Verdict(GraphBreak.RECORDING(told))
    little = called is function and outside.is_little and is_little(function)
    return Verdict(reason, outside, little and all(map(_is_little, (*args, *names.values()))))


def of_any_call(function: Any) -> Verdict | None:
    """Return the verdict that a function has however it is called; None if that depends on it."""
    function = applied(function, (), {})[0]
    if not isinstance(function, types.FunctionType):
        said = _said_of_object(function)
        method = function if isinstance(function, types.MethodType) else method_of(function)
        of_python = type(method) is types.MethodType and type(method.__func__) is types.FunctionType
        return None if of_python and said.kind is not GraphBreak.LIBRARY else Verdict(said)
    instead = is_in(function, INSTEAD) and not has(function, "examined")
    is_theirs = instead or package(function) in FUNCTIONS
    return Verdict(LIBRARY) if is_theirs else None


def _spread(
    function: Any, args: Iterable[Any], names: Mapping[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return what partial applications call in the end, and the kinds of all of its arguments."""
    function, given, keywords = applied(function, (), {})
    kinds = {name: kind_of(value) for name, value in keywords.items()}
    return function, [*map(kind_of, given), *args], {**kinds, **names}


def kind_of(value: Any) -> Any:
    """Return the kind of an argument of a task's or of a program's call."""
    if isinstance(value, TaskRef | np.ndarray) or (type(value) is Register and value.item is None):
        return Kind.CHUNK
    if isinstance(value, Tuple):
        return Items(tuple(map(kind_of, value.args)))
    if isinstance(value, GraphNode | Register):
        return Kind.OTHER
    if type(value) is tuple:
        return Items(tuple(map(kind_of, value)))
    if type(value) in (list, dict) and _is_harmless(value):
        return Kind.OTHER
    return Known(value, "an argument")


def _is_little(kind: Any) -> bool:
    """Return whether no value is known of an argument that holds more than constants do."""
    if isinstance(kind, Items):
        return all(map(_is_little, kind.items))
    return is_little(kind.value) if isinstance(kind, Known) else isinstance(kind, Kind)


def _may_be_chunk(kind: Any) -> bool:
    if isinstance(kind, Items):
        return any(map(_may_be_chunk, kind.items))
    return kind in (Kind.CHUNK, Kind.OTHER)


def _is_harmless(value: Any) -> bool:
    """Return whether arguments may hold a value: a chunk, a number, or a structure of such."""
    if type(value) in (list, tuple):
        return all(map(_is_harmless, value))
    if type(value) is dict:
        return all(map(_is_harmless, (*value, *value.values())))
    if kind_of(value) in (Kind.CHUNK, Kind.OTHER):
        return True
    return is_constant(value) and not is_format(value)


def _said_of_object(function: Any) -> Reason:
    """Return why something that is not a Python function is not given lazy chunks."""
    if isinstance(function, types.MethodType):
        if package(function.__func__) in FUNCTIONS:
            return LIBRARY
        told = f"is a method of a {type(function.__self__).__name__}, which may change"
        return GraphBreak.OWN_OBJECTS(told)
    kind = type(function)
    if package(kind) == "numba":
        return COMPILED
    if package(kind) in OBJECTS:
        return LIBRARY
    return GraphBreak.OWN_OBJECTS(f"is a {kind.__name__}, an object that may change")


@dataclass(frozen=True)
class Examination:
    """Whether functions may be given lazy chunks, for what they read from outside now."""

    outsides: tuple[Outside, ...]
    """What was read."""
    arrays: tuple[np.ndarray, ...] = field(default=(), compare=False)
    """Arrays among it."""
    refused: tuple[str, Reason] | None = None
    """The name of the first function that may not, with the reason; None if all may."""
    is_little: bool = field(default=False, compare=False)
    """Whether neither the functions nor what they read holds arrays."""

    @classmethod
    def of(cls, steps: Iterable[Any]) -> Examination:
        """Examine the functions of some steps, as these call them."""
        outsides, little = [], True
        for step in steps:
            verdict = verdict_of(step)
            outsides.append(verdict.outside)
            little &= verdict.is_little
            if verdict.reason is not None:
                said = said_of(step.function, verdict.reason)
                return cls(tuple(outsides), refused=(name_of(step.function), said))
        arrays = {key: array for each in outsides for key, array in each.arrays.items()}
        return cls(tuple(outsides), tuple(arrays.values()), is_little=little)

    @property
    def identity(self) -> Any:
        """Equal for functions of equal code that read the same; None if that is not known."""
        if self.refused is not None or not self.is_little:
            return None
        return tuple([outside.identity for outside in self.outsides])

    @property
    def handles(self) -> bool:
        """Whether one of the functions handles exceptions."""
        return any([outside.handles for outside in self.outsides])

    @property
    def between(self) -> bool:
        """Whether one of the functions calls what no kernel computes."""
        return any([outside.between for outside in self.outsides])

    @property
    def chunks(self) -> bool:
        """Whether it is assumed that they are given arrays, and no lists of these."""
        return any([outside.chunks for outside in self.outsides])

    @property
    def is_code(self) -> bool:
        """Whether none may be given anything but code: each copy of the functions does the same."""
        return self.refused is None and all([outside.is_code for outside in self.outsides])

    def holds(self) -> bool:
        """Return whether everything that was read is as it was."""
        return all([outside.holds() for outside in self.outsides])


NOTHING = Examination(())
"""For steps that call libraries' functions only."""


def verdict_of(step: Any) -> Verdict:
    """Return whether a step's function may be given lazy chunks, as the step calls it."""
    names = {name: kind_of(value) for name, value in step.kwargs.items()}
    return remembered(step.function, tuple(map(kind_of, step.args)), names)


def is_own(step: Any) -> bool:
    """Return whether a step calls a function of the user's that was shown to be safe."""
    return step.replayed and not known(step.function)


PLACED = GraphBreak.OWN_ARGUMENTS("your function is given where its chunk is")


def reasons(steps: Iterable[Any]) -> list[tuple[str, Reason]]:
    """Return (name, reason) for each function of the user's own that is not recorded.

    And for others that are not since they have an argument on which no plan can depend.
    """
    found = []
    for step in steps:
        if "quick" in own_traits(bare(step.function)):
            continue
        called = called_for_place(step.function, step.args)
        if called is not step.function:
            found += [(name_of(called), PLACED)] if not known(called) else []
            continue
        reason = verdict_of(step).reason
        if not (step.recorded or step.replayed) and (reason is None or known(step.function)):
            found.append((name_of(step.function), OBSCURE))
        elif reason and reason.kind is not GraphBreak.LIBRARY:
            found.append((name_of(step.function), said_of(step.function, reason)))
    return found


def said_of(function: Any, reason: Reason) -> Reason:
    """Return the reason as it is reported of a function, the user's own or one of a library."""
    owner = package(bare(function))
    if owner in NAMED:
        return GraphBreak.LIBRARY(f"a function of {owner}, which {reason}")
    return reason.told(f"your function {reason}")
