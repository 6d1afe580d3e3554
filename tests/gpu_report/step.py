"""`python -m tests.gpu_report.step NAME FILE`: run one step, and write its tables to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gpu_report.steps import STEPS


def main(arguments: list[str]) -> None:
    name, answer, *others = arguments
    found = STEPS[name].run("--rehearsal" in others)
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
