"""The calls that a program makes, and those of NumPy that a function makes which it calls.

By the latter it can be done without the function (`gpusched.graph.running.inlined`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from weakref import ref

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import error_state
from gpusched.plan.plan import Register, Registers, changed, is_open, substitute, used_registers
from gpusched.record.chunk import LazyChunk, is_scalar


@dataclass(frozen=True)
class Taken:
    """What a step was before its partial application was taken apart."""

    register: int
    """The input that is its `gpusched.graph.functions.partials.Guard`."""
    number: int
    """Among the partial applications that this one guards."""
    held: int
    """How many of the arguments it held."""
    names: frozenset[str]
    """Keyword arguments that the call itself gives."""


@dataclass(frozen=True)
class ProgramStep:
    """One call; its arguments may hold `Register` objects."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    recorded: bool = False
    """Whether the function takes lazy chunks."""
    replayed: bool = True
    """Whether what was recorded holds for the next chunk of the same kind."""
    taken: Taken | None = None
    """Of a partial application that was taken apart."""
    shown: bool = False
    """Whether functions that are not recorded may see how its result is laid out in memory."""
    places: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Which arguments are others in each call."""
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Which keyword arguments are."""

    def __post_init__(self) -> None:
        places = tuple([k for k, value in enumerate(self.args) if is_open(value)])
        names = tuple([name for name, value in self.kwargs.items() if is_open(value)])
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "names", names)

    @property
    def registers(self) -> set[int]:
        """Return the registers that the arguments hold."""
        return used_registers(self.args) | used_registers(self.kwargs)

    def call(self, function: Callable[..., Any], registers: Registers) -> Any:
        """Call a function instead of the step's own, with its arguments."""
        args = [*self.args]
        for k in self.places:
            value = args[k]
            register = type(value) is Register  # Most are: a call less for each.
            args[k] = value.fetch(registers) if register else substitute(value, registers)
        if not self.names:
            return function(*args, **self.kwargs)
        made = {name: substitute(self.kwargs[name], registers) for name in self.names}
        return function(*args, **{**self.kwargs, **made})

    def renamed(self, names: Any) -> ProgramStep:
        """Return the same call with other registers: `Register` objects, by number."""
        return replace(
            self, args=substitute(self.args, names), kwargs=substitute(self.kwargs, names)
        )

    def as_it_is(self, inputs: Sequence[Any]) -> ProgramStep:
        """Return the call of a partial application that was changed since; else the step itself."""
        if self.taken is None or inputs[self.taken.register].holds():
            return self
        kwargs = {name: self.kwargs[name] for name in self.taken.names}
        function = inputs[self.taken.register].functions[self.taken.number]
        return ProgramStep(function, self.args[self.taken.held :], kwargs, replayed=False)


CONSTANT = (bool, int, float, complex, str, np.number, np.bool_, np.dtype, type, type(None),
            type(Ellipsis))  # fmt: skip
"""What does not change after a call, so that the call can be repeated."""


class Calls:
    """What a function has called, in order, while it was recorded.

    Parameters
    ----------
    given
        What the function is given, by register: those that are lazy chunks can be followed.
    first
        The first register for results.

    Notes
    -----
    A call is what the function itself writes: none that NumPy's, or its recording, makes of others.
    All calls of the function are there or `is_complete` is false, which does not depend on whether
    what they return is used.
    """

    def __init__(self, given: Mapping[int, Any], first: int) -> None:
        self.made: list[tuple[int, ProgramStep]] = []
        """Each with the register of its result, and with one for each lazy chunk that it takes."""
        self.is_complete = True
        """Whether these calls do all that the function does with chunks."""
        self.is_quiet = True
        """Whether NumPy reports errors of them as outside of the function."""
        self._depth = 0
        """Of calls within each other."""
        self._errors = error_state()
        self._seen = 0
        self._noted = 0
        self._first = first
        self._registers: dict[int, tuple[Any, int]] = {}
        for register, chunk in given.items():
            if isinstance(chunk, LazyChunk):
                self._keep(chunk, register)

    def begin(self) -> None:
        """Note that a call begins."""
        if self._depth == 0:
            self._seen += 1
            if error_state() != self._errors:
                self.is_complete = self.is_quiet = False  # It would not be so for repeated calls.
        self._depth += 1

    def end(self) -> None:
        """Note that it has ended; a call that nobody has noted by then cannot be repeated."""
        self._depth -= 1
        if self._depth == 0 and self._noted != self._seen:
            self.is_complete = False

    def note(self, found: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Note what a call has returned, unless another call has made it."""
        if self._depth != 1:
            return
        self._noted += 1
        if self.register_of(found) is not None:
            return  # One of its arguments.
        try:
            given = changed(args, self._reference), changed(kwargs, self._reference)
        except KeyError:
            self.is_complete = False
            return
        # Operators of NumPy's scalars are no ufuncs.
        self.is_complete &= not (isinstance(found, LazyChunk) and is_scalar(found))
        register = self._first + len(self.made)
        self.made.append((register, ProgramStep(function, *given)))
        self._keep(found, register)

    def called_again(self, other: Any, chunk: Any) -> None:
        """Note that a lazy chunk is another object for what one is."""
        register = self.register_of(chunk)
        if register is not None:
            self._keep(other, register)

    def register_of(self, chunk: Any) -> int | None:
        """Return the register of a lazy chunk; None if no call that is known has made it."""
        found = self._registers.get(id(chunk))
        return found[1] if found is not None and found[0]() is chunk else None

    def _keep(self, chunk: Any, register: int) -> None:
        if isinstance(chunk, LazyChunk):
            # Which chunks there still are is part of the plan: this keeps none.
            self._registers[id(chunk)] = ref(chunk), register
        else:
            self.is_complete = False

    def _reference(self, item: Any) -> Any:
        """Return what stands for an argument; `KeyError` for what may change after the call."""
        register = self.register_of(item)
        if register is not None:
            return Register(register)
        ends = item if type(item) is slice else slice(item)
        if not all(isinstance(end, CONSTANT) for end in (ends.start, ends.stop, ends.step)):
            raise KeyError(item)
        return item
