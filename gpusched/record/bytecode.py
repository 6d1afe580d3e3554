"""What functions do, as their bytecode says: read once for all who ask."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

_PREFIXES = frozenset(["CACHE", "EXTENDED_ARG"])


@lru_cache(maxsize=1024)
def instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Return the instructions of a function, those of functions that are defined in it left out.

    So are prefixes of large arguments: dis puts them into the instruction that follows.
    """
    return tuple(each for each in dis.get_instructions(code) if each.opname not in _PREFIXES)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of all functions which are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@lru_cache(maxsize=1024)
def looked_up(code: CodeType) -> tuple[str, ...]:
    """Return the names that code looks up in its module, or among Python's own, each once.

    Examples
    --------
    >>> from gpusched.record.bytecode import looked_up
    >>> looked_up((lambda x: max(abs(y) for y in x)).__code__)
    ('max', 'abs')
    """
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    every = (each for part in codes(code) for each in instructions(part))
    return tuple(dict.fromkeys(str(each.argval) for each in every if each.opname in loads))
