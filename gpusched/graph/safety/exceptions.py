"""Handlers of exceptions: functions are recorded without them, until there is one to handle.

Python notes beside the code of a function which handler an exception in which part of it goes to,
and looks there only once one is raised. So a copy of the code without those notes does what the
function does as long as nothing is raised, and otherwise raises to whoever has called it: while it
is recorded, the recording ends, and the function runs on real arrays, with its handlers. A plan
that raises ends in the same way (`gpusched.graph.running.segment.Segment.call_after`): values that
the recording did not see cannot keep an exception from a handler. Of 1,405 functions of scipy,
pandas, dask, xarray and NumPy that pass, 93 handle exceptions.

``except AttributeError`` stays where a function handles nothing else: there it asks whether a value
is another library's array, and goes on without, as xhistogram does for ``.chunks`` (a seventh of
the time of a histogram). What it does with the attribute is not looked at: nothing is recorded for
other values than plain ones (`gpusched.graph.running.inputs.describe`), which have none of that
name. A function that is recorded reads another class by the name of `AttributeError`, whose
exceptions only lazy chunks raise (`gpusched.record.chunk.LackingError`); any other exception ends
the recording as above. It also asks by another name (`gpusched.record.chunk.ASKED`), which nothing
has: values that do have the attribute, such as the numbers of `numpy.finfo`, end the recording
before anything is done with it.

What leaves a ``with`` statement in that way has left `numpy.errstate` as it was there, which is put
back where the recording ends (`gpusched.graph.running.traced.with_nothing_to_handle`). Code keeps
handlers that Python adds itself where it has no others: those of ``with`` statements and of
comprehensions, which put back what was there before and raise again. A generator with handlers of
the user's is refused: where nobody goes on with it, it is ended by an exception that nobody sees.
"""

from __future__ import annotations

import dis
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from gpusched.record.bytecode import instructions
from gpusched.record.chunk import ASKED

_RESTORING = {"COPY", "POP_EXCEPT", "POP_TOP", "STORE_FAST", "STORE_FAST_STORE_FAST", "SWAP"}
"""What handlers that Python itself adds put the stack and the variables back with."""


_ASKING = ["PUSH_EXC_INFO", "LOAD_GLOBAL", "CHECK_EXC_MATCH"]
"""How a handler of exceptions of one global class begins."""


def entries(code: CodeType) -> list[Any]:
    """Return the table of handlers: where an exception in which part of the code goes to."""
    if not code.co_exceptiontable:
        return []
    return list(dis.Bytecode(code).exception_entries)  # type: ignore[attr-defined]


def only_asks(code: CodeType) -> bool:
    """Return whether all handlers of the user's in code are for `AttributeError`."""
    own = handlers(code)
    return bool(own) and all(map(partial(_is_for_attributes, code), own))


def _is_for_attributes(code: CodeType, handler: int) -> bool:
    first = [each for each in instructions(code) if each.offset >= handler][:3]
    names = [each.opname for each in first]
    return names == _ASKING and first[1].argval == AttributeError.__name__


def handlers(code: CodeType) -> list[int]:
    """Return where the handlers begin that are the user's.

    Those of functions that are defined in a function are not its own.
    """
    return [each.target for each in entries(code) if not _passes_on(code, each.target)]


@lru_cache(maxsize=1024)
def without_handlers(
    code: CodeType, lacking: frozenset[tuple[CodeType, str]] = frozenset()
) -> CodeType:
    """Return code that does the same until an exception is raised, which it does not handle.

    So does what is defined in it.

    Parameters
    ----------
    code
        The code.
    lacking
        Attributes that no chunk has, by the code that asks for them.

    Examples
    --------
    >>> from gpusched.graph.safety.exceptions import without_handlers
    >>> def halved(x):
    ...     try:
    ...         return x / 2
    ...     except TypeError:
    ...         return None
    >>> halved("four") is None, halved(4)
    (True, 2.0)
    >>> halved.__code__ = without_handlers(halved.__code__)
    >>> halved(4)
    2.0
    >>> halved("four")
    Traceback (most recent call last):
    ...
    TypeError: unsupported operand type(s) for /: 'str' and 'int'
    """
    inner = tuple(
        without_handlers(each, lacking) if isinstance(each, CodeType) else each
        for each in code.co_consts
    )
    stays = not handlers(code) or only_asks(code)
    table = code.co_exceptiontable if stays else b""
    names = tuple(name + ASKED if (code, name) in lacking else name for name in code.co_names)
    same = all(new is old for new, old in zip(inner, code.co_consts, strict=True))
    if same and table == code.co_exceptiontable and names == code.co_names:
        return code
    return code.replace(co_consts=inner, co_exceptiontable=table, co_names=names)


def _passes_on(code: CodeType, handler: int) -> bool:
    """Return whether a handler runs nothing of the user's before it raises again."""
    following = [each for each in instructions(code) if each.offset >= handler]
    if [each.opname for each in following[:2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
        return True
    for each in following:
        if each.opname == "RERAISE":
            return True
        if each.opname not in _RESTORING and "STOPITERATION" not in each.argrepr:
            break
    return False
