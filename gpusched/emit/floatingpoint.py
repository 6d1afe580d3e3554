"""Floating-point errors: what NumPy calls them, and what this thread's kernels have raised.

A kernel returns the errors that it may have raised. They are noted here, and whoever runs a chunk's
calls takes them afterwards: if there are any, NumPy repeats the calls, and itself gives the warning
or raises the error, with its own wording, under the `numpy.errstate` of the moment.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from gpusched.dataclass import dataclass

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
"""The two kinds of processors whose instructions kernels know."""

HAS_FLAGS = IS_X86 or IS_ARM
"""Whether kernels on this machine can read the processor's floating-point flags."""

INVALID, DIVIDE, OVERFLOW, UNDERFLOW = 1, 4, 8, 16
"""Bits of x86's MXCSR; on other processors they are converted to these."""
TESTS = {
    "wrong": INVALID | DIVIDE | OVERFLOW,
    "invalid": INVALID,
    "infinite": DIVIDE | OVERFLOW,
    "tiny": UNDERFLOW,
}
"""The errors that kernels can see by a result alone, by the name of what it is then."""


def found_by(errors: int, possible: int) -> tuple[str, ...]:
    """Return the names in `TESTS` by which a result shows errors.

    Parameters
    ----------
    errors
        Those that are looked for.
    possible
        Those that NumPy may report of the operation.

    Examples
    --------
    >>> found_by(OVERFLOW, OVERFLOW), found_by(INVALID, INVALID | DIVIDE)
    (('wrong',), ('invalid',))
    """
    shown = TESTS["wrong"]
    # Where none is ignored, whatever is worse than an operand is an error: one test is enough.
    ignored = possible & shown & ~errors
    names = ["invalid", "infinite"] if ignored else ["wrong"]
    return tuple(name for name in [*names, "tiny"] if TESTS[name] & errors)


REPORTED = 32
"""The bit of anything else that NumPy warns of."""
QUOTIENT = 64
"""The bit of an invalid quotient whose result is there: NumPy's warning is all that is left."""
UNSURE = 8
"""How far the bits are shifted of errors that flags may show for nothing: a processor converts
float16 in groups, and raises flags for what happens to be beside the one element that is wanted."""

_KINDS = {"invalid": INVALID, "divide": DIVIDE, "over": OVERFLOW, "under": UNDERFLOW}
"""By `numpy.errstate`'s names."""


@lru_cache(maxsize=64)
def mask(names: str) -> int:
    """Return the bits of errors, given `numpy.errstate`'s names of them.

    Examples
    --------
    >>> mask("invalid divide") == INVALID | DIVIDE
    True
    """
    return sum(_KINDS[name] for name in names.split())


def heeded() -> int:
    """Return the errors that `numpy.errstate` does not ignore here."""
    state = dict(np.geterr())
    return sum(bit for name, bit in _KINDS.items() if state[name] != "ignore")


def enforced() -> int:
    """Return the errors for which `numpy.errstate` has more done here than a warning given.

    Where errors are collected, that is what was so outside of it.
    """
    state, collector = dict(np.geterr()), np.geterrcall()
    called = sum(bit for name, bit in _KINDS.items() if state[name] == "call")
    if isinstance(collector, _Collector):
        called &= collector.outside
    others = ("ignore", "warn", "call")
    return called | sum(bit for name, bit in _KINDS.items() if state[name] not in others)


class _Local(threading.local):
    errors = 0


_local = _Local()


def note(errors: int) -> None:
    """Note errors that were raised in this thread, or may have been."""
    _local.errors |= errors & (1 << UNSURE) - 1 | errors >> UNSURE


def take() -> int:
    """Return what has been noted in this thread, and forget it."""
    errors, _local.errors = _local.errors, 0
    return errors


@dataclass(frozen=True)
class _Collector:
    """What NumPy calls with errors while they are collected."""

    into: Callable[[int], None]
    outside: int
    """The errors that were `enforced` before."""

    def __call__(self, kind: str, flag: int) -> None:
        """Note an error; NumPy has its own numbers of them."""
        self.into(flag >> 3 & INVALID | (flag & 7) << 2)


def collecting(errors: int, into: Callable[[int], None] = note) -> np.errstate:
    """Return a context in which some of NumPy's errors are noted, and all others ignored.

    Parameters
    ----------
    errors
        Which are noted.
    into
        Is called with those that NumPy has found.
    """
    state = {name: "call" if errors & bit else "ignore" for name, bit in _KINDS.items()}
    return np.errstate(**state, call=_Collector(into, enforced()))  # type: ignore[arg-type]


def error_state() -> tuple[object, ...]:
    """Return what `numpy.errstate` says here of each kind of floating-point error."""
    return tuple(np.geterr().values())
