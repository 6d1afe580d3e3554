"""The steps of the report, in order: each a function that returns tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.gpu_report.steps import machine, rates, values, whole

Tables = dict[str, list[dict[str, Any]]]
"""Rows by the title of their table; each row has the same columns."""

STEPS: dict[str, tuple[Callable[[bool], Tables], float]] = {
    "inventory": (machine.inventory, 60),
    "layers": (machine.layers, 120),
    "doctor": (machine.doctor, 200),
    "kernels": (values.kernels, 240),
    "ulp": (values.ulp, 240),
    "subnormals": (values.subnormals, 60),
    "programs": (whole.programs, 180),
    "memory": (whole.memory, 180),
    "cluster": (whole.cluster, 240),
    "models": (whole.models, 180),
    "copies": (rates.copies, 90),
    "bandwidth": (rates.bandwidth, 120),
    "launches": (rates.launches, 60),
    "runs": (rates.runs, 300),
    "unchanged": (rates.unchanged, 300),
    "suite": (whole.suite, 600),
}
"""What is measured by name, and the seconds that it may take; True asks for a rehearsal: little."""
