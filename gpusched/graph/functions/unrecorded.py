"""What calls that are not recorded may do: change what they are given, and see how it is laid out.

A function of which nothing is known may ask for the strides of its chunk, or write through
``reshape``, which copies some layouts and not others. What reaches it, through whatever functions,
is to have the layout that NumPy gives it (`gpusched.graph.running.layouts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from dask.utils import methodcaller

from gpusched.graph.functions.known import computes, known
from gpusched.graph.functions.libraries import OBJECTS, PURE, is_in, is_numpys, package
from gpusched.graph.functions.partials import applied, bare, callables, parts
from gpusched.plan.plan import used_registers
from gpusched.record.catalogue import asks_for_change, has


def may_change(step: Any) -> bool:
    """Return whether a step calls something that is not known to leave its arguments alone."""
    if asks_for_change(*applied(step.function, step.args, step.kwargs)):
        return True  # What is recorded of others is called as it is then.
    return not step.recorded and not all(map(_is_pure, _called(step)))


def _is_pure(function: Any) -> bool:
    if isinstance(function, methodcaller):
        return has(function, "pure") or function.method == "astype"
    if isinstance(function, np.ufunc):
        return is_numpys(function)
    if isinstance(function, type) or known(function):
        return True
    return is_in(function, PURE) or has(function, "pure")


def conflict(steps: Sequence[Any], inputs: int) -> Any:
    """Return a step that may change what another one reads under another name, or at any time.

    A view that is recorded may be computed as an array of its own, which a change of what it shows
    does not reach, nor a change of it what it shows.

    Parameters
    ----------
    steps
        Of a program: operands before their users.
    inputs
        Number of the program's inputs.

    Returns
    -------
    ProgramStep or None
        None if the results depend neither on the order of steps that do not need each other nor on
        what is a view.
    """
    changing = [k for k, step in enumerate(steps) if may_change(step)]
    if not changing or len(steps) == len(changing) == 1:
        return None
    needs = _needs(steps, inputs)
    for k in changing:
        # What a later step makes of the result, and of anything else, is not there at the change:
        # by such a result, which may share memory with both, these two do not share any.
        memory = _memory(steps, inputs, [j for j, need in enumerate(needs) if k not in need])
        touched = {memory[r] for r in steps[k].registers}
        for other, step in enumerate(steps):
            if other == k or other in needs[k]:
                continue
            read = step.registers
            if k in needs[other]:  # It is to see the change, as it does in the same register.
                after = {inputs + j for j, need in enumerate(needs) if j == k or k in need}
                read = read - steps[k].registers - after
            if touched & {memory[r] for r in read}:
                return steps[k]
    return None


def _memory(steps: Sequence[Any], inputs: int, considered: Iterable[int]) -> list[int]:
    """Return, by register, the first register that it may share memory with after some steps."""
    memory = list(range(inputs + len(steps)))
    for k in considered:
        step = steps[k]
        if _makes_new(step):
            continue
        # What is picked by an index shares nothing with the index.
        read = used_registers(step.args[0]) if has(step.function, "picks") else step.registers
        shared = {memory[r] for r in (*read, inputs + k)}
        first = min(shared)
        memory = [first if m in shared else m for m in memory]
    return memory


def _makes_new(step: Any) -> bool:
    function = bare(step.function)
    return known(function) and computes(function) and not may_change(step)


def _needs(steps: Sequence[Any], inputs: int) -> list[set[int]]:
    """Return, by step, those that have to run before it."""
    found: list[set[int]] = []
    for step in steps:
        direct = {r - inputs for r in step.registers if r >= inputs}
        found.append(direct.union(*(found[k] for k in direct)))
    return found


def sees(step: Any) -> bool:
    """Return whether a step calls a function, not of a library, that may see such a layout."""
    inner = getattr(step.function, "sees", None)  # of a program
    return bool(inner) or (may_change(step) and any(map(_is_own, _called(step))))


def _called(step: Any) -> list[Any]:
    called = [step.function, *callables((step.args, step.kwargs))]
    return [part for each in called for part in parts(each)]


def _is_own(function: Any) -> bool:
    kind = function if getattr(function, "__module__", None) else type(function)
    return package(kind) not in OBJECTS


def shown_registers(steps: Sequence[Any], inputs: int) -> set[int]:
    """Return the registers whose layout such functions may see, of a program or of others."""
    found: set[int] = set()
    for k, step in reversed(list(enumerate(steps))):
        if step.shown:
            found.add(inputs + k)
        if inputs + k in found or sees(step):
            found |= step.registers
    return found
