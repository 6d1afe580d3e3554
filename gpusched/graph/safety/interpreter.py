"""Goes through the bytecode of a function with kinds instead of values.

Every instruction must be in the table of `instructions`, and be allowed for the kinds it meets:
what is not, or is not known, makes the function unsafe. Branches are followed both ways, unless a
constant decides; where ways meet, a place holds what the kinds on both have in common. So a loop is
gone through until nothing new comes of it.
"""

from __future__ import annotations

import dis
import functools
import operator
import types
from collections.abc import Iterable
from typing import Any

from gpusched.breaks import GraphBreak
from gpusched.graph.functions.libraries import FUNCTIONS, package
from gpusched.graph.safety import calls, closures, invocations, operators
from gpusched.graph.safety.calls import Unsafe, described, refuse
from gpusched.graph.safety.instructions import NOT_FOLLOWED, SAID, TABLE, State, loaded
from gpusched.graph.safety.kinds import (
    Generated,
    Items,
    Kind,
    Known,
    Listing,
    Made,
    Method,
    Row,
    is_known,
    is_result,
    joined,
    row_of,
)
from gpusched.graph.safety.lists import ChangedError, Lists
from gpusched.graph.safety.outside import Outside
from gpusched.record.bytecode import instructions

RULES = (operators, invocations, closures)
"""Modules that enter instructions into the table."""

_RESTORING = {"COPY", "POP_EXCEPT", "POP_TOP", "STORE_FAST", "STORE_FAST_STORE_FAST", "SWAP"}
"""What handlers that Python itself adds put the stack and the variables back with."""


class Interpreter:
    """Examines one function, for arguments of some kinds.

    Parameters
    ----------
    function
        The function.
    outside
        Where what it reads from outside is noted.
    lists
        Where what becomes of lists is noted.
    callers
        Functions that it is called by.
    outer
        What goes through the function that has defined it, if it is within a call of that.
    """

    def __init__(
        self,
        function: types.FunctionType,
        outside: Outside,
        lists: Lists,
        callers: tuple[Any, ...] = (),
        outer: Interpreter | None = None,
    ) -> None:
        self.function = function
        self.outside = outside
        self.lists = lists
        self.callers = (*callers, function)
        self.outer = outer
        self.given: Any = None
        """What it yields, as a row."""
        self.code = function.__code__
        self.instructions = instructions(self.code)
        self._places = {each.offset: k for k, each in enumerate(self.instructions)}
        self._states: dict[int, State] = {}
        self._waiting: list[int] = []
        self._result: Any = None
        self._state = State((), ())
        """Before the instruction that is gone through."""
        self._at = 0
        """Which instruction that is."""

    def run(self, arguments: dict[str, Any]) -> Any:
        """Return the kind of the function's result; `Unsafe` if it is not safe."""
        if self.code.co_flags & closures.GENERATORS and self.outer is None:
            refuse(GraphBreak.OWN_OBJECTS, "is a generator or a coroutine")
        self._check_handlers()
        self._goto(0, State((), tuple(arguments.items())))
        while self._waiting:
            place = self._waiting.pop()
            self._step(place, self._states[place])
        if self._result is None:
            refuse(GraphBreak.OWN_CODE, "does not return")
        return self._result

    def _check_handlers(self) -> None:
        """Refuse handlers of exceptions; those of a ``with`` statement only pass them on.

        So do those of comprehensions and generators, which put variables back before.
        """
        if not self.code.co_exceptiontable:
            return
        for entry in dis.Bytecode(self.code).exception_entries:  # type: ignore[attr-defined]
            place = self._place(entry.target)
            names = [i.opname for i in self.instructions[place : place + 2]]
            if names != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"] and not self._passes_on(place):
                refuse(GraphBreak.OWN_HANDLES, f"handles exceptions{self._where(place)}")

    def _passes_on(self, place: int) -> bool:
        """Return whether a handler runs nothing of the user's before it raises again."""
        for each in self.instructions[place:]:
            if each.opname == "RERAISE":
                return True
            if each.opname not in _RESTORING and "STOPITERATION" not in each.argrepr:
                break
        return False

    def _place(self, offset: int) -> int:
        """Return the number of the instruction at an offset, or after the prefixes there."""
        while offset not in self._places:
            offset += 2
        return self._places[offset]

    def _line(self, place: int) -> int:
        for instruction in reversed(self.instructions[: place + 1]):
            positions = instruction.positions
            if positions is not None and positions.lineno is not None:
                return int(positions.lineno)
        return self.code.co_firstlineno

    def _where(self, place: int) -> str:
        return f" ({self.instructions[place].opname.lower()}, line {self._line(place)})"

    # Ways through the function --------------------------------------------------------------

    def _goto(self, place: int, state: State) -> None:
        before = self._states.get(place)
        after = state if before is None else before.joined(state)
        if after != before:
            self._states[place] = after
            self._waiting.append(place)

    def _step(self, place: int, state: State) -> None:
        """Go through one instruction."""
        self._state, self._at = state, place
        instruction = self.instructions[place]
        run = TABLE.get(instruction.opname)
        try:
            if run is None:
                refuse(*SAID.get(instruction.opname, NOT_FOLLOWED))
            after = run(self, state, instruction)
        except Unsafe as error:
            if error.placed:
                raise
            told = error.reason.told(f"{error.reason}{self._where(place)}")
            raise Unsafe(told, placed=True) from None
        for target, found in after if isinstance(after, list) else [(None, after)]:
            if found is not None:
                self._goto(place + 1 if target is None else self._place(target), found)

    def returns(self, kind: Any) -> None:
        """Take a kind of the function's result into account."""
        item = kind
        if len(self.callers) > 1:  # Lists and functions may go to other ones of the same recording.
            item = row_of(kind).item if isinstance(kind, Listing | Row) else kind
            item = None if is_known(item) else item
        if item is not None and not is_result(item):
            refuse(GraphBreak.OWN_CODE, f"returns {described(kind)}")
        self._result = kind if self._result is None else joined(self._result, kind)

    # Variables of outer functions -------------------------------------------------------------

    def held(self, state: State, name: str) -> Any:
        """Return the kind of what a cell holds: of a variable here, or of an outer function's."""
        if name in self.code.co_cellvars:
            return loaded(state, name)
        if self.outer is not None:
            return self.outer.held(self.outer._state, name)
        cells = dict(zip(self.code.co_freevars, self.function.__closure__ or (), strict=True))
        try:
            return Known(self.outside.cell(cells[name], name), name)
        except ValueError:
            refuse(GraphBreak.OWN_OBJECTS, f"uses {name}, which has no value yet")

    # Lists ------------------------------------------------------------------------------------

    def made(self, kind: Listing | Row) -> Listing | Row:
        """Return the kind of a list that the instruction which is gone through makes."""
        return self.lists.made(kind, (id(self.code), self._at))

    def _changed(self, called: Method, args: list[Any], names: dict[str, Any]) -> Any:
        """Return the kind of what a list's method returns: see `OF_LISTS`."""
        name = called.name
        if names or len(args) != 1:
            refuse(GraphBreak.OWN_ARGUMENTS, f"calls .{name} of a list with other arguments")
        (given,) = args
        if isinstance(given, Generated):
            given = closures.taken(given, self.callers)
        if not (calls.is_several if name == "extend" else calls.is_item)(given):
            refuse(GraphBreak.OWN_OBJECTS, f"calls .{name} with {described(given)}")
        self.lists.change(called.owner, calls.held_by(given) if name == "extend" else [given])
        return Known(None)

    # Calls ------------------------------------------------------------------------------------

    def call(self, callee: Any, args: list[Any], names: dict[str, Any]) -> Any:
        """Return the kind of a call's result."""
        if isinstance(callee, Method):
            changes = isinstance(callee.owner, Listing | Row)
            return (self._changed if changes else calls.method)(callee, args, names)
        if isinstance(callee, Made):
            return closures.call(callee, args, names, self.callers)
        if callee is Kind.LEAVING:
            return Known(None)
        if not isinstance(callee, Known):
            refuse(GraphBreak.OWN_CALLS, f"calls {described(callee)}")
        if callee.value in (list, tuple, sum) and args and isinstance(args[0], Generated):
            args[0] = closures.taken(args[0], self.callers)
        if callee.value is operator.getitem and len(args) == 2 and not names:
            return operators.item(*args)
        if callee.value is functools.reduce and len(args) == 2 and not names:
            return self._reduced(args[0], calls.item_of(args[1]))
        if callee.value is list and len(args) < 2 and not names:
            return self.made(calls.sequence(list, args[0] if args else Items(())))
        if args and calls.converts(callee.value, args[0]):
            return calls.converted(callee.value, args, names)
        if calls.creates(callee.value):
            return calls.created(callee.value, args, names)
        if isinstance(callee.value, types.FunctionType):
            return self._own(callee.value, args, names)
        self.outside.kernel(callee.value)
        return calls.call(callee, args, names)

    def _reduced(self, function: Any, item: Any) -> Any:
        """Return what ``reduce`` gives: an item, or what a function makes of that and another."""
        found = item
        while True:
            more = joined(found, self.call(function, [found, item], {}))
            if more == found:
                return found
            found = more

    def _own(self, function: types.FunctionType, args: list[Any], names: dict[str, Any]) -> Any:
        """Return the kind of the result of another function in Python."""
        name = function.__name__
        if function in self.callers:
            refuse(GraphBreak.OWN_CALLS, f"calls {name}, which calls itself")
        if package(function) in FUNCTIONS:
            refuse(GraphBreak.OWN_CALLS, f"calls {name}, a library's own function")
        try:
            return _gone_through(function, args, names, self.outside, self.lists, self.callers)
        except Unsafe as error:
            told = error.reason.told(f"calls {name}, which {error.reason}")
            raise Unsafe(told, error.placed) from None


def examine(function: types.FunctionType, args: Iterable[Any], names: dict[str, Any],
            outside: Outside) -> Any:  # fmt: skip
    """Return the kind of a function's result.

    Parameters
    ----------
    function
        The function.
    args, names
        Kinds of its arguments.
    outside
        Where what it reads from outside is noted.

    Raises
    ------
    Unsafe
        If it is not shown to be safe for these arguments.
    """
    lists, given = Lists(), list(args)
    while True:
        try:
            return _gone_through(function, given, names, outside, lists)
        except ChangedError:  # Each time a list may hold more, and there are few kinds.
            continue


def _gone_through(
    function: types.FunctionType, args: list[Any], names: dict[str, Any], outside: Outside,
    lists: Lists, callers: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    outside.function(function)
    arguments = calls.parameters(function, args, names)
    return Interpreter(function, outside, lists, callers).run(arguments)
