"""``python -m tests.differential --seconds 600 --seed 1``: look for differences from plain dask."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import gpusched
from tests.differential.campaign import GENERATORS, Counts, Result, campaign, scripted, shrunk
from tests.differential.running import Schedulers


def main() -> int:
    """Run what the command line asks for; 1 if there were differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long")
    parser.add_argument("--cases", type=int, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--kind", choices=GENERATORS, action="append", help="which generator")
    parser.add_argument(
        "--folder", type=Path, help="where failing programs are written, not stdout"
    )
    parser.add_argument(
        "--no-shrink", action="store_true", help="print failing programs as they are"
    )
    parser.add_argument("--attempts", type=int, default=250, help="cases tried for a smaller one")
    options = parser.parse_args()
    if options.seconds is None and options.cases is None:
        options.seconds = 60
    print(f"gpusched of {Path(gpusched.__file__).parent}, from seed {options.seed}", flush=True)
    with Schedulers() as schedulers:

        def tell(result: Result) -> None:
            if not result.found:
                return
            small = result
            if not options.no_shrink:
                small = shrunk(result, schedulers, options.attempts)
            _write(small, options.folder)

        counts = campaign(options.kind or GENERATORS, options.seed, cases=options.cases,
                          seconds=options.seconds, schedulers=schedulers, tell=tell)  # fmt: skip
    _summary(counts)
    return 1 if counts.failures else 0


def _write(result: Result, folder: Path | None) -> None:
    case = result.case
    categories = "-".join(sorted({each.category for each in result.found}))
    print(f"{case.kind} {case.seed}: {categories}", flush=True)
    if folder is None:
        print(scripted(result), flush=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{categories}-{case.kind}-{case.seed}.py").write_text(scripted(result))


def _summary(counts: Counts) -> None:
    share = f"{counts.fused / max(counts.tasks, 1):.0%}"
    print(
        f"{counts.cases} cases, {counts.failures} failures; {counts.raising} raise with plain dask"
    )
    print(f"{counts.fused_cases} cases ran kernels; {share} of the tasks")
    for category, count in counts.categories.most_common():
        print(f"    {category}: {count}")
    for feature, count in counts.features.most_common(40):
        print(f"        {feature}: {count}")


if __name__ == "__main__":
    sys.exit(main())
