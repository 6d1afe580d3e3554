"""Compare gpusched with its peers: `python -m tests.benchmarks --help`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

# Idle OpenMP threads of one contender must not spin while the next one is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from gpusched.store.service import client as service
from tests.benchmarks import first_calls, page, readme, report, results
from tests.benchmarks.contenders import CONTENDERS
from tests.benchmarks.contenders.base import Case
from tests.benchmarks.measure import measure
from tests.benchmarks.works import WORKS

DTYPES = "float32", "float64"
JSON = Path(tempfile.gettempdir()) / "gpusched-benchmarks.json"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1/16 of the elements")
    parser.add_argument(
        "--only", nargs="*", choices=WORKS, default=list(WORKS), help="works; none measures nothing"
    )
    parser.add_argument(
        "--contenders", nargs="*", choices=CONTENDERS, default=list(CONTENDERS),
        help="who is timed; none measures first calls only",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", nargs="+", choices=DTYPES, default=DTYPES,
        help="measured one after the other, in this order",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=5, help="timings of each (default 5)")
    parser.add_argument(
        "--budget", type=float, default=3, metavar="SECONDS",
        help="of timings of each contender, work and dtype: slow ones are timed less often",
    )  # fmt: skip
    parser.add_argument(
        "--first-calls", type=int, default=3, metavar="N",
        help="fresh processes of each kind for first calls (default 3); 0 measures none",
    )  # fmt: skip
    parser.add_argument(
        "--places", nargs="+", choices=first_calls.PLACES, default=first_calls.PLACES,
        help="where first calls are made",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, default=float("inf"),
        help="after which no row is begun; --missing goes on with the others",
    )  # fmt: skip
    parser.add_argument(
        "--missing", action="store_true", help="measure only what the results of --merge lack"
    )
    parser.add_argument("--elements", type=int, help="of every work, instead of its own number")
    parser.add_argument(
        "--json", type=Path, default=JSON, help=f"where results are kept as they come ({JSON})"
    )
    parser.add_argument(
        "--merge", nargs="+", type=Path, default=[], metavar="PATH",
        help="results of earlier runs, beside which these are put; what is not there is empty",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="PATH", help="page to write them to")
    parser.add_argument(
        "--readme", type=Path, metavar="PATH",
        help="write the table of README.md there; without --write, nothing else is measured, "
        "whatever --only, --dtype and --contenders name",
    )  # fmt: skip
    return parser


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if _is_of_readme_alone(options):
        options.contenders = list(readme.CONTENDERS)
    found: results.Results = {}
    for path in options.merge:
        if path.exists():
            found = results.merged(found, results.load(path))
        else:
            print(f"{path} is not there yet: it begins empty", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="gpusched-benchmarks-") as folder:
        _compile_anew(Path(folder))
        _measure(options, report.header("tests.benchmarks", arguments), found)
    rows = [(work, dtype) for work in WORKS for dtype in DTYPES]
    ordered = {key: found[key] for key in rows if key in found}
    print(f"\n{page.runs(ordered)}\n\n{report.tables(ordered)}")
    if options.write:
        page.write(options.write, ordered)
    if options.readme:
        try:
            readme.write(options.readme, found)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _compile_anew(folder: Path) -> None:
    """Keep what is compiled in a folder of this run, so that first calls are first calls."""
    os.environ["DASK_GPUSCHED__FUSION__CACHE_DIRECTORY"] = str(folder / "gpusched")
    # A compile service of its own, which has compiled nothing before.
    os.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
    (folder / "run").mkdir(mode=0o700)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
    import dask

    dask.config.refresh()


def _measure(options: argparse.Namespace, run: str, found: results.Results) -> None:
    """Measure what the options name, and keep it after each work."""
    from tests.benchmarks.contenders import clusters

    warnings.filterwarnings("ignore", "Sending large graph")
    try:
        for name, dtype in in_time(wanted(options), options.minutes):
            count = options.elements or WORKS[name].elements[dtype] // (16**options.quick)
            print(f"- {name} {dtype}: {count:,} elements", file=sys.stderr, flush=True)
            for new in _rows(options, run, found, (name, dtype), count):
                found |= results.merged(found, {(name, dtype): new})
                results.save(options.json, found)
            print(file=sys.stderr)
    finally:
        clusters.close()
        service.stop()


def _is_of_readme_alone(options: argparse.Namespace) -> bool:
    return bool(options.readme and not options.write)


def in_time(rows: Iterable[tuple[str, str]], minutes: float) -> Iterator[tuple[str, str]]:
    """Yield the rows that are begun before so many minutes are over, and say which are not."""
    end = monotonic() + minutes * 60
    for name, dtype in rows:
        if monotonic() < end:
            yield name, dtype
        else:
            print(f"- {name} {dtype}: not begun, as the time is up", file=sys.stderr)


def wanted(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return works and dtypes that the options name, in the order in which they are measured."""
    if _is_of_readme_alone(options):
        return list(readme.ROWS)
    rows = [(name, dtype) for dtype in options.dtype for name in options.only]
    return [(name, dtype) for name, dtype in rows if dtype in WORKS[name].elements]


def _rows(
    options: argparse.Namespace, run: str, found: results.Results, row: tuple[str, str], count: int
) -> Iterator[results.Measured]:
    """Measure a row, and yield each part of it as it comes."""
    known = found.get(row) if options.missing else None
    if options.contenders and not (known and known.timings):
        case = Case.of(WORKS[row[0]], row[1], count)
        timings = measure(case, options.contenders, options.repeat, options.budget)
        yield results.Measured(*row, count, run, timings)
    places = readme.PLACES if _is_of_readme_alone(options) else options.places
    for place in places if options.first_calls else ():
        if not (known and place in known.first_calls):
            print(f"  first calls, {place}", file=sys.stderr, end="", flush=True)
            calls = first_calls.measure(*row, count, place, options.first_calls, run)
            yield results.Measured(*row, count, run, {}, {place: calls})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
