"""When a kernel is worth its compilation: seconds that are expected to be saved, and to be spent.

Every constant of the rule is here, with what it was measured by.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import named
from gpusched.store import compiletimes
from gpusched.store.handles import Handle
from gpusched.store.processors import cores

FIXED, STATEMENT, HEAVY, REDUCTION = 0.06, 0.01, 0.1, 0.1
"""Seconds of a compilation: for any kernel, for each statement, for each function such as `exp`,
and for each result that is a reduction. Fitted to 15 kernels on one core of a Xeon of 2.1 GHz, of
which the light ones took 0.07 to 0.12 s and those with three functions 0.5 s."""

SAVED = 0.5
"""Share of the unfused time that kernels save: at least half in 22 of 30 rows of performance.md."""

BESIDE = 3.0
"""How much longer a compilation takes beside tasks that use all cores: the service leaves it a
third of a core, see `gpusched.store.service.priority`."""


def expected(handle: Handle) -> float:
    """Return the seconds of processor time that a compilation is expected to take."""
    return units(handle.kernel) * compiletimes.factor()


def units(kernel: Kernel) -> float:
    """Return the seconds that a kernel's compilation took where the constants were measured."""
    statements = len(kernel.statements)
    heavy = len({s.operation for s in kernel.statements if named(s.operation).heavy})
    reductions = sum(output.combine is not None for output in kernel.outputs)
    return FIXED + STATEMENT * statements + HEAVY * heavy + REDUCTION * reductions


def gain(handles: Iterable[Handle], seconds: float, left: int, starting: float = 0.0) -> float:
    """Return the seconds that compiling is expected to save, in all threads; negative for a loss.

    Parameters
    ----------
    handles
        What a plan lacks.
    seconds
        Of processor time that its last run took without.
    left
        How many such runs are known to come; as much is expected as there has been, if that is
        more: a program that has been repeated will be.
    starting
        Seconds of processor time that the compiler takes before the first kernel.
    """
    waiting = list(handles)
    ahead = max(left * seconds, sum(handle.spent for handle in waiting))
    cost = starting + sum(map(expected, waiting))
    # Runs that begin before the kernels are there have nothing of them.
    without = cores() * BESIDE * cost
    return SAVED * (ahead - without) - cost
