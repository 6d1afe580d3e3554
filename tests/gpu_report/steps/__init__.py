"""The steps of the report, in order: each a function that returns tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tests.gpu_report.steps import first, machine, rates, values, whole

Tables = dict[str, list[dict[str, Any]]]
"""Rows by the title of their table; each row has the same columns."""

When = Literal["first", "alone", "together"]
"""Whether a step comes before all others, has the machine to itself, or shares it."""


class Step(NamedTuple):
    """What is measured, and how it must run."""

    run: Callable[[bool], Tables]
    """Measures; True asks for a rehearsal: little."""
    limit: float
    """The seconds that it may take."""
    when: When


STEPS: dict[str, Step] = {
    "inventory": Step(machine.inventory, 60, "first"),
    "layers": Step(machine.layers, 120, "first"),
    "doctor": Step(machine.doctor, 200, "first"),
    "copies": Step(rates.copies, 90, "alone"),
    "bandwidth": Step(rates.bandwidth, 120, "alone"),
    "launches": Step(rates.launches, 60, "alone"),
    "first": Step(first.first_calls, 300, "alone"),
    "runs": Step(rates.runs, 300, "alone"),
    "unchanged": Step(rates.unchanged, 300, "alone"),
    "kernels": Step(values.kernels, 240, "together"),
    "ulp": Step(values.ulp, 240, "together"),
    "subnormals": Step(values.subnormals, 60, "together"),
    "programs": Step(whole.programs, 240, "together"),
    "memory": Step(whole.memory, 180, "together"),
    "cluster": Step(whole.cluster, 240, "together"),
    "models": Step(whole.models, 180, "together"),
    "suite": Step(whole.suite, 600, "together"),
}
"""By name: those that may explain all others, then those that are timed, then the others."""
