"""Where an array in a task comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.array import core

from gpusched.adapters.tasks import DataNode, Task, execute_subgraph
from gpusched.graph.functions.known import enforced, owned
from gpusched.graph.functions.partials import bare, parts
from gpusched.inspection.places import Place
from gpusched.inspection.standins import arrays_in, is_cupy, is_getter
from gpusched.inspection.variant import KernelUse
from gpusched.plan.plan import PartLaunch
from gpusched.record.catalogue import has


@dataclass(frozen=True)
class FromTask:
    """It is what another task has given."""

    key: Any


@dataclass(frozen=True)
class Held:
    """It is data that the task itself holds."""

    key: Any
    """Of the chunk that it is."""


@dataclass(frozen=True)
class FromKernel:
    """A kernel of this task has written it."""

    use: KernelUse
    number: int
    """Of the kernel's output."""

    @property
    def array(self) -> Any:
        """What the kernel has written: of an array that several have, its part."""
        launch = self.use.launch
        found = self.use.recorder.registers()[launch.outputs[self.number].register]
        return found[launch.index] if isinstance(launch, PartLaunch) else found


@dataclass(frozen=True)
class FromParts:
    """Kernels of this task have each written a part of it."""

    parts: list[FromKernel]

    def at(
        self, index: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[FromKernel, tuple[int, ...]]:
        """Return which kernel has written an element, and where that is in its part."""
        for each in self.parts:
            launch = each.use.launch
            assert isinstance(launch, PartLaunch)
            ends = [along.indices(n)[:2] for along, n in zip(launch.index, shape, strict=True)]
            if all(a <= k < b for k, (a, b) in zip(index, ends, strict=True)):
                return each, tuple(k - a for k, (a, _) in zip(index, ends, strict=True))
        raise IndexError(index)


@dataclass(eq=False)
class Called:
    """A function that is called as it is, on whole arrays."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    key: Any
    """dask's, of the task that it was; of a chunk where that is known."""
    place: Place | None
    """The user's line."""
    reason: str
    """Why no kernel does it."""
    names: dict[int, str] = field(default_factory=dict)
    """The users' names of arguments, by their identity."""
    result: Any = None
    direct: bool = False
    """Whether it is a call of the task's own, rather than one on behalf of a recording."""

    def arrays(self) -> list[Any]:
        """Return the arrays among the arguments."""
        return arrays_in([*self.args, *self.kwargs.values()])


@dataclass(frozen=True)
class FromCall:
    """A function has returned it."""

    called: Called = field(repr=False)


Origin = FromTask | Held | FromKernel | FromParts | FromCall


_MOVES = (np.copy, np.ascontiguousarray, core.finalize, owned)
"""Functions that move elements and change none, besides those that the catalogue has."""

_COPIES = frozenset(("array", "asarray", "ascontiguousarray", "asnumpy"))


def moves(called: Called) -> bool:
    """Return whether a call moves elements about, and computes nothing."""
    made = [a for a in arrays_in(called.result) if isinstance(a, np.ndarray)]
    given = [a for a in arrays_in([*called.args[:1]]) if isinstance(a, np.ndarray)]
    if not made or not given or any(m.dtype != given[0].dtype for m in made):
        return False
    if moves_by_name(called.function):
        return True
    return all(any(np.may_share_memory(m, g) for g in given) for m in made)


def moves_by_name(function: Any) -> bool:
    """Return whether a function is one that moves elements about, whatever it is given."""
    return all(_moves(part) or _copies_to_gpu(part) for part in parts(function))


def _moves(function: Any) -> bool:
    if function is enforced:
        return False  # It may convert them.
    known = has(function, "moves") or has(function, "view") or has(function, "reads")
    return known or any(function is each for each in _MOVES)


def _copies_to_gpu(function: Any) -> bool:
    """Return whether a function is one of CuPy's that copy an array as it is."""
    module = (getattr(function, "__module__", None) or "").partition(".")[0]
    return module == "cupy" and getattr(function, "__name__", "") in _COPIES


def is_elementwise(function: Any) -> bool:
    """Return whether a function's value at a place depends on its arguments there only.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.debugging.origins import is_elementwise
    >>> is_elementwise(np.exp), is_elementwise(np.sum)
    (True, False)
    """
    plain = bare(function)
    if isinstance(plain, np.ufunc):
        return plain.signature is None
    if type(plain).__name__ == "ufunc" and type(plain).__module__.partition(".")[0] == "cupy":
        return True
    if bool(getattr(plain, "elementwise", False)) or getattr(plain, "__name__", "") == "astype":
        return True
    return has(plain, "elementwise")


def shown_elements(called: Called, result: Any, index: tuple[int, ...]) -> tuple[Any, Any] | None:
    """Return which array among a moving call's arguments, and where in it, an element is from.

    The call is made on the arguments' positions instead of their values. None if it is not
    from there, such as the value that an array is filled up with.
    """
    # What is moved is the first argument of all such functions; others may be positions.
    arrays = [a for a in arrays_in([*called.args[:1]]) if isinstance(a, np.ndarray)]
    starts = np.cumsum([0, *(a.size for a in arrays)])
    numbered = {
        id(a): np.arange(start, start + a.size).reshape(a.shape)
        for a, start in zip(arrays, starts, strict=False)
    }
    first = _replaced(called.args[0], numbered)
    moved = called.function(first, *called.args[1:], **called.kwargs)
    found = [moved.get()] if is_cupy(moved) else arrays_in(moved)
    which = next(k for k, a in enumerate(arrays_in(called.result)) if a is result)
    number = int(np.asarray(found[which])[index])
    source = int(np.searchsorted(starts, number, side="right")) - 1
    if not 0 <= source < len(arrays):
        return None
    array = arrays[source]
    place = np.unravel_index(number - int(starts[source]), array.shape)
    return array, tuple(map(int, place))


def read_at(called: Called, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return where an element is in the source that a call reads a part of; None for others.

    Examples
    --------
    >>> from dask.array.core import getter
    >>> from gpusched.debugging.origins import Called, read_at
    >>> part = (slice(20, 40), slice(0, 10))
    >>> read_at(Called(getter, ("a file", part), {}, "getter", None, None, ""), (3, 4))
    (23, 4)
    """
    part = called.args[1] if len(called.args) > 1 else None
    if not is_getter(called.function) or type(part) is not tuple:
        return None
    plain = all(type(s) is slice and s.step in (None, 1) for s in part)
    if not plain or len(part) != len(index):
        return None
    return tuple((s.start or 0) + k for s, k in zip(part, index, strict=True))


def _replaced(structure: Any, numbered: dict[int, Any]) -> Any:
    if isinstance(structure, np.ndarray):
        return numbered.get(id(structure), structure)
    if type(structure) in (list, tuple):
        return type(structure)(_replaced(item, numbered) for item in structure)
    if type(structure) is dict:
        return {name: _replaced(item, numbered) for name, item in structure.items()}
    return structure


def broadcast(index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return where an array of that shape is read for an element of what it broadcasts to.

    Examples
    --------
    >>> from gpusched.debugging.origins import broadcast
    >>> broadcast((4, 7), (1, 10)), broadcast((4, 7), (10,)), broadcast((4, 7), ())
    ((0, 7), (7,), ())
    """
    last = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else k for k, n in zip(last, shape, strict=True))


def held(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield key and value of the chunks that a fused task holds."""
    if isinstance(node, Task) and node.func is execute_subgraph:
        for key, inner in node.args[0].items():
            if isinstance(inner, DataNode):
                yield key, inner.value
            else:
                yield from held(inner)


def same_part(value: Any, array: Any, other: Any) -> Any:
    """Return what is in a value's copy where an array is in the value; None if there is none."""
    places = [k for k, each in enumerate(arrays_in(value)) if each is array]
    return arrays_in(other)[places[0]] if places else None


def pairs(structure: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what stands in the same places of two structures."""
    if type(structure) in (list, tuple):
        for inner, item in zip(structure, value, strict=True):
            yield from pairs(inner, item)
    elif type(structure) is dict:
        for name, inner in structure.items():
            yield from pairs(inner, value[name])
    else:
        yield structure, value
