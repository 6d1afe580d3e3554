"""Traces and findings as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from gpusched.debugging.traced_values import Traced
from gpusched.inspection.places import Place

if TYPE_CHECKING:
    from gpusched.debugging.nonfinite import Nonfinite
    from gpusched.debugging.trace import Trace

_MARK = "<- first that is not finite"


def trace_text(trace: Trace, width: int) -> str:
    """Return a trace as text."""
    return "\n".join([f"{head(trace)}", *_steps(trace.steps, trace.first_nonfinite, width)])


def head(trace: Trace) -> str:
    """Return which element it is, and its value."""
    element = f"{trace.array}[{', '.join(map(str, trace.index)) or '()'}]"
    return f"{element} = {trace.value!s}, in chunk {trace.chunk}"


def _steps(steps: tuple[Traced, ...], first: Traced | None, width: int) -> Iterator[str]:
    codes = [_code(step) for step in steps]
    values = [str(step.value) for step in steps]
    column = min(max(map(len, codes), default=0), width // 2)
    number = 0
    for place, group in groupby(steps, lambda step: step.place):
        yield ""
        yield _cut(_place(place), width)
        for step in group:
            yield f"  {codes[number]:<{column}}  {step.dtype:<8} {values[number]}" + (
                f"  {_MARK}" if step is first else ""
            )
            if step.note:
                yield f"    {step.note}"
            number += 1


def _code(step: Traced) -> str:
    if not step.name or step.name == step.expression:
        return step.expression
    return f"{step.name} = {step.expression}"


def _place(place: Place | None) -> str:
    return f"{place}  {place.text}" if place else "(where it is made is not known)"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."


def finding_text(found: Nonfinite, width: int) -> str:
    """Return a finding as text."""
    told = textwrap.wrap(found.summary, width)
    return "\n".join([*told, *_steps(found.steps, found.step, width)])
