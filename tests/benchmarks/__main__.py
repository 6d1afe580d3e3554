"""Compare gpusched with its peers: `python -m tests.benchmarks --help`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Idle OpenMP threads of one contender must not spin while the next one is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from tests.benchmarks import report
from tests.benchmarks.contenders import CONTENDERS
from tests.benchmarks.measure import measure
from tests.benchmarks.works import WORKS

ELEMENTS = {"float32": 32 << 20, "float64": 16 << 20}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1/8 of the elements")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--dtype", nargs="+", choices=ELEMENTS, default=list(ELEMENTS))
    parser.add_argument("--repeat", type=int, default=5, help="timings of each (default 5)")
    parser.add_argument("--elements", type=int, help="instead of 32M float32 and 16M float64")
    parser.add_argument("--write", type=Path, metavar="PATH", help="also write it as Markdown")
    return parser


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    head = report.header("tests.benchmarks", arguments)
    print(head, flush=True)
    results: report.Results = {}
    for name in options.only:
        for dtype in options.dtype:
            count = options.elements or ELEMENTS[dtype] // (8 if options.quick else 1)
            print(f"- {name} {dtype}: {count:,} elements", file=sys.stderr, flush=True)
            results[name, dtype] = measure(
                WORKS[name], dtype, count, options.contenders, options.repeat
            )
    body = report.tables(results)
    print(f"\n{body}")
    if options.write:
        options.write.write_text(f"# Benchmarks\n\n{head}\n\n{body}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
