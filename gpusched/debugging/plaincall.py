"""A function that no kernel does, called from a line of source that a debugger can stop at."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

from gpusched.debugging.origins import Called
from gpusched.debugging.readable import STOP, insert_stop, shown
from gpusched.graph.functions.partials import applied

_SIMPLE = (bool, int, float, complex, str, type(None))


class PlainCall:
    """One call of a function, as source.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.debugging.origins import Called
    >>> from gpusched.debugging.plaincall import PlainCall
    >>> called = Called(np.sort, (np.array([3, 1]),), {"axis": 0}, "sort", None, None, "no kernel")
    >>> print(PlainCall(called).text)
    # sort, called as it is: no kernel
    def chunk(a):
        result = sort(a, axis=0)
        return result
    <BLANKLINE>
    """

    def __init__(self, called: Called) -> None:
        self.called = called
        function, args, kwargs = applied(called.function, called.args, called.kwargs)
        self._function = function
        self._given: dict[str, Any] = {}
        self._function_name = _identifier(called.name, {"chunk", "result"})
        shown_args = [self._argument(a) for a in args]
        shown_args += [f"{name}={self._argument(a)}" for name, a in kwargs.items()]
        place = f"  # {called.place}" if called.place else ""
        self.text = (
            f"# {called.name}, called as it is: {called.reason}\n"
            f"def chunk({', '.join(self._given)}):\n"
            f"    result = {self._function_name}({', '.join(shown_args)}){place}\n"
            "    return result\n"
        )

    @property
    def filename(self) -> str:
        """A file with the source, or a made-up name where nothing is kept on disk."""
        return shown(self.text, self._function_name)

    def run(self, wanted: Callable[..., bool]) -> Any:
        """Call the function, stopping before it where that is wanted."""
        tree = ast.parse(self.text)
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        insert_stop(function)
        found: dict[str, Any] = {self._function_name: self._function, STOP: wanted}
        exec(compile(tree, self.filename, "exec"), found)
        return found["chunk"](**self._given)

    def _argument(self, value: Any) -> str:
        """Return an argument as source: as it is written, or a parameter's name."""
        if type(value) in _SIMPLE or (
            type(value) is tuple and all(type(item) in _SIMPLE for item in value)
        ):
            text = repr(value)
            if "inf" not in text and "nan" not in text:
                return text
        for name, given in self._given.items():
            if given is value:
                return name
        taken = {*self._given, self._function_name, "chunk", "result"}
        name = _identifier(self.called.names.get(id(value)) or _letter(len(self._given)), taken)
        self._given[name] = value
        return name


def _letter(number: int) -> str:
    return "abcdefgh"[number % 8] + (str(number // 8) if number >= 8 else "")


def _identifier(name: str, taken: set[str]) -> str:
    """Return a name that source may have, and that is not taken."""
    name = re.sub(r"\W", "_", name).lstrip("0123456789") or "function"
    if iskeyword(name):
        name += "_"
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}{number}"
    return unique
