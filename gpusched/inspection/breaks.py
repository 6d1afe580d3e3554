"""Graph breaks: each place once, with the number of tasks that it concerns."""

from __future__ import annotations

from collections import Counter

from gpusched.breaks import GraphBreak, Reason
from gpusched.inspection.batches import Batches
from gpusched.inspection.model import Apart, Break
from gpusched.inspection.places import Place, place_of_function, place_of_layer, place_of_site
from gpusched.inspection.variant import Halt
from gpusched.inspection.walk import Walked

_Where = tuple[int, str, Reason, str, Place | None, bool]


def breaks(walked: Walked, numbers: dict[str, int]) -> list[Break]:
    """Return the graph breaks; first those where something can be changed."""
    found: Counter[_Where] = Counter()
    for variant in walked.variants:
        for halt in variant.halts:
            stage = numbers[variant.name]
            where = (stage, halt.operation, halt.reason, halt.layer, _place(halt), halt.counted)
            found[where] += variant.tasks
    made = [
        Break(
            operation,
            str(reason),
            reason.kind.name,
            reason.kind.remedy,
            stage,
            layer,
            place,
            tasks,
            counted,
        )
        for (stage, operation, reason, layer, place, counted), tasks in found.items()
    ]
    return sorted(made, key=lambda each: (not GraphBreak[each.code].advises, each.stage))


def apart(
    noted: Counter[tuple[str, Reason]], walked: Walked, batches: Batches
) -> tuple[Apart, ...]:
    """Return what is not put together; first where something can be changed."""
    found = noted.copy()
    for variant in walked.variants:
        for what in variant.apart:
            found[what] += variant.tasks
    for reason, tasks in batches.reasons:
        found["batch", reason] += tasks
    made = [
        Apart(what, str(reason), reason.kind.name, reason.kind.remedy, times)
        for (what, reason), times in found.items()
    ]
    return tuple(sorted(made, key=lambda each: (not GraphBreak[each.code].advises, -each.times)))


def _place(halt: Halt) -> Place | None:
    return (
        place_of_site(halt.site) or place_of_function(halt.function) or place_of_layer(halt.layer)
    )
