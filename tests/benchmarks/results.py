"""What was measured, kept as JSON so that parts of different times can be put together."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.benchmarks.first_calls import FirstCalls
from tests.benchmarks.measure import Timing


@dataclass
class Measured:
    """The timings of one work and dtype."""

    work: str
    dtype: str
    elements: int
    run: str
    """Date, machine, versions and command of the run that measured it, a line each."""
    timings: dict[str, Timing]
    """By contender; empty where only first calls were measured."""
    first_calls: dict[str, FirstCalls] = field(default_factory=dict)
    """By place."""


Results = dict[tuple[str, str], Measured]
"""By work and dtype."""


def save(path: Path, results: Results) -> None:
    """Write the results, in the place of what was there."""
    path.write_text(json.dumps([asdict(measured) for measured in results.values()], indent=1))


def load(path: Path) -> Results:
    """Return what `save` wrote."""
    found: Results = {}
    for entry in json.loads(path.read_text()):
        timings = {name: Timing(**timing) for name, timing in entry.pop("timings").items()}
        calls = {name: FirstCalls(**each) for name, each in entry.pop("first_calls", {}).items()}
        found[entry["work"], entry["dtype"]] = Measured(**entry, timings=timings, first_calls=calls)
    return found


def merged(one: Results, other: Results) -> Results:
    """Return both; of what is in both, the other's, and of each row what either has."""
    found = one | other
    for key in one.keys() & other.keys():
        before, after = one[key], other[key]
        newest = after if after.timings or not before.timings else before
        calls = before.first_calls | after.first_calls
        found[key] = Measured(
            newest.work, newest.dtype, newest.elements, newest.run, newest.timings, calls
        )
    return found
