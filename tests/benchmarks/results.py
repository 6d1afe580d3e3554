"""What was measured, kept as JSON so that parts of different times can be put together."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """By contender."""


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
        found[entry["work"], entry["dtype"]] = Measured(**entry, timings=timings)
    return found
