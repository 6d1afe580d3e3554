"""Measure this machine's GPU: `python -m tests.gpu_report --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.gpu_report import page, running
from tests.gpu_report.steps import STEPS


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_report", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=STEPS, default=list(STEPS), metavar="STEP",
                        help=f"of {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path("build/gpu-report/results.jsonl"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to write")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], metavar="RESULTS",
                        help="of earlier calls, for the page: the last of a step")  # fmt: skip
    parser.add_argument("--rehearsal", action="store_true", help="small arrays and few cases")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="of any one step, at most")  # fmt: skip
    return parser


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    earlier = (line for path in options.merge for line in path.read_text().splitlines())
    records = {record["step"]: record for record in map(json.loads, earlier)}

    def measure(name: str) -> dict[str, Any]:
        return running.run(name, min(STEPS[name].limit, options.limit), options.rehearsal)

    def write() -> None:
        if options.write:
            inorder = [records[name] for name in STEPS if name in records]
            options.write.write_text(page.page(inorder, options.rehearsal))

    def note(record: dict[str, Any]) -> None:
        records[record["step"]] = record
        lines.write(json.dumps(record) + "\n")
        lines.flush()
        print(f"{record['step']}: {record['status']}, {record['seconds']} s", flush=True)
        write()  # After each step, since the machine may be taken away.

    shared = [name for name in options.only if STEPS[name].when == "together"]
    with options.results.open("w") as lines:
        for name in STEPS:
            if name in options.only and name not in shared:
                note(measure(name))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for done in as_completed(pool.submit(measure, name) for name in shared):
                note(done.result())
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
