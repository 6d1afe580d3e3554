"""Measure this machine's GPU: `python -m tests.gpu_report --help`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.gpu_report import page, running
from tests.gpu_report.steps import STEPS


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_report", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP",
                        help=f"of {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path("build/gpu-report/results.jsonl"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to write")
    parser.add_argument("--rehearsal", action="store_true", help="small arrays and few cases")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="of any one step, at most")  # fmt: skip
    return parser


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    records = []
    with options.results.open("w") as lines:
        for name in options.only:
            limit = min(STEPS[name][1], options.limit)
            records.append(running.run(name, limit, options.rehearsal))
            lines.write(json.dumps(records[-1]) + "\n")
            lines.flush()
            print(f"{name}: {records[-1]['status']}, {records[-1]['seconds']} s", flush=True)
            if options.write:  # After each step, since the machine may be taken away.
                options.write.write_text(page.page(records, options.rehearsal))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
