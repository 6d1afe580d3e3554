"""Which tier a plan runs in: its kernels, or the calls that it was recorded from.

A plan whose kernels are not compiled yet runs as those calls, so that no task waits for a compiler,
and as its kernels from the chunk on for which they are ready. What only kernels can do waits for
them: functions of numbers that a user has written, and users' versions of kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter

from gpusched import config
from gpusched.fusion import background, worthwhile
from gpusched.fusion.choices import ChoiceError
from gpusched.fusion.handles import Code, Runnable
from gpusched.fusion.kernel import Kernel
from gpusched.fusion.operations import DEFINED
from gpusched.fusion.statistics import updating

BACKGROUND, WAIT, OFF = "background", "wait", "off"


def mode() -> str:
    """Return what is done about kernels that are not compiled.

    Raises
    ------
    ChoiceError
        If the configuration has something else than one of the three.

    Examples
    --------
    >>> import dask
    >>> from gpusched.fusion.tiers import mode
    >>> with dask.config.set({"gpusched.fusion.compile": "off"}):
    ...     mode()
    'off'
    """
    found = config.get("fusion.compile")
    found = OFF if found is False else found  # What YAML takes the word for, without quotes.
    if found not in (BACKGROUND, WAIT, OFF):
        raise ChoiceError(
            f"gpusched.fusion.compile is {found!r}: it takes 'background', 'wait' or 'off'"
        )
    return str(found)


def has_unfused(kernel: Kernel) -> bool:
    """Return whether NumPy has what a kernel computes: nothing of a user's own is in it."""
    own = any(statement.operation in DEFINED for statement in kernel.statements)
    joined = any(output.combine in DEFINED for output in kernel.outputs)
    return not (kernel.edition or own or joined)


def missing(kernels: Iterable[Runnable]) -> tuple[Runnable, ...]:
    """Return the kernels that are not ready; none if they have to be waited for."""
    found = tuple(kernels)
    if not all(has_unfused(each.kernel) for each in found):
        return ()
    return tuple(each for each in found if not each.look())


def wait(codes: Iterable[Runnable | Code]) -> None:
    """Compile what is not compiled; raise what the compiler raises."""
    for code in codes:
        code.wait()


def failure(codes: Iterable[Runnable | Code]) -> Exception | None:
    """Return why something could not be compiled, if so."""
    return next((e for c in codes if (e := getattr(c, "error", None)) is not None), None)


def spent(codes: Sequence[Runnable | Code], seconds: float, left: int = 0) -> None:
    """Note a run without these codes, and have them compiled if that pays.

    Parameters
    ----------
    codes
        What is not ready.
    seconds
        How long the run took, or as much of it as is saved by having them.
    left
        How many such runs are known to come.
    """
    waiting = [code for code in codes if isinstance(code, Code) and not code.ready]
    for code in waiting:
        code.spent += seconds / len(waiting)
    if mode() == BACKGROUND and not all(code.requested for code in waiting):
        gain = worthwhile.gain(waiting, seconds, left)
        if gain > 0:
            background.request(waiting, gain)


def loop_is_ready(loop: Code) -> bool:
    """Return whether what calls several kernels is there; wait for it if that is configured."""
    if not loop.look() and mode() == WAIT:
        loop.wait()
    return loop.ready


class Unfused:
    """Counts and times one run of a program without its kernels.

    Parameters
    ----------
    kernels
        Those that are missing.
    left
        How many such runs are known to come.
    """

    def __init__(self, kernels: Sequence[Runnable], left: int) -> None:
        self._kernels = kernels
        self._left = left

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(self, *exception: object) -> None:
        seconds = perf_counter() - self._started
        with updating() as counters:
            counters.tasks += 1
            counters.unfused_tasks += 1
            counters.unfused_seconds += seconds
        spent(self._kernels, seconds, self._left)
