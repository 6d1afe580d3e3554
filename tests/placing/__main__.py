"""``python -m tests.placing --cases 100 --seed 1``: random NumPy programs, on the device and not.

The programs are those of `tests.differential`. Every task for which the device can be taken takes
it, whatever it costs. Needs a GPU, or the emulated one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dask.local import get_sync

import gpusched
from tests.differential.campaign import GENERATORS, Counts, Result, campaign
from tests.differential.case import Case
from tests.differential.running import Schedulers
from tests.placing.gpuworker import GpuWorker, always, gpu_worker


class OnGpu(Schedulers):
    """Has what is fused computed by a GPU worker, and all else by dask's own scheduler.

    Parameters
    ----------
    worker
        The worker.
    """

    def __init__(self, worker: GpuWorker) -> None:
        super().__init__()
        self._worker = worker

    def get(self, name: str, fused: bool) -> Any:
        """Return the scheduler that dask computes with."""
        return self._worker.get if fused else "sync"


_LOADING = """
import cupy


def loaded(x):
    return x.map_blocks(cupy.asarray, dtype=x.dtype, meta=cupy.empty((0,) * x.ndim, x.dtype))
"""


def of_cupy(generate: Callable[[int], Case]) -> Callable[[int], Case]:
    """Return a generator of the same programs, of CuPy's arrays."""

    def generated(seed: int) -> Case:
        case = generate(seed)
        head, main = case.source.split("def main(observe):", 1)
        main = re.sub(r"= (da\.from_array\(.*\))$", r"= loaded(\1)", main, flags=re.MULTILINE)
        return replace(case, source=f"{head}{_LOADING}\n\ndef main(observe):{main}")

    return generated


class OfCupy(Schedulers):
    """Has dask's own scheduler compute all, and gives the chunks as NumPy's arrays."""

    def get(self, name: str, fused: bool) -> Any:
        """Return the scheduler that dask computes with."""
        return lambda dsk, keys, **kwargs: _fetched(get_sync(dsk, keys, **kwargs))


def _fetched(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return type(found)(map(_fetched, found))
    return found.get() if hasattr(found, "get") and hasattr(found, "dtype") else found


def _differences(
    first: int, cases: int, seconds: float | None, schedulers: Schedulers,
    generators: Mapping[str, Callable[[int], Case]], raising: bool,
) -> tuple[Counts, list[Result]]:  # fmt: skip
    """Return what came of programs, and those that differ, which plain dask may raise at or not."""
    failed: list[Result] = []

    def note(result: Result) -> None:
        # A GPU gives no floating-point warnings.
        result.found = [each for each in result.found if each.category != "warnings"]
        if result.found and (raising or not result.raised):
            failed.append(result)

    counts = campaign(
        generators, first, cases=cases, seconds=seconds, schedulers=schedulers, on_result=note,
        generators=generators,
    )  # fmt: skip
    return counts, failed


def cupy_differences(
    first: int, cases: int, seconds: float | None = None
) -> tuple[Counts, list[Result]]:
    """Return the same of CuPy's arrays, where plain dask computes with them at all."""
    programs = {"programs": of_cupy(GENERATORS["programs"])}
    with OfCupy() as schedulers:
        return _differences(first, cases, seconds, schedulers, programs, raising=False)


def differences(
    first: int, cases: int, seconds: float | None = None
) -> tuple[Counts, list[Result]]:
    """Return what came of random programs, and those whose results are not plain dask's."""
    with gpu_worker() as worker, OnGpu(worker) as schedulers, always():
        return _differences(first, cases, seconds, schedulers, GENERATORS, raising=True)


def main() -> int:
    """Run what the command line asks for; 1 if there were differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.placing", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="how many of each kind")
    parser.add_argument("--seconds", type=float, help="how long at most")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--cupy", action="store_true", help="have them load CuPy's arrays")
    options = parser.parse_args()
    find = cupy_differences if options.cupy else differences
    before = gpusched.statistics()
    counts, failed = find(options.seed, options.cases, options.seconds)
    after = gpusched.statistics()
    for result in failed:
        print(result.case.kind, result.case.seed)
        for each in result.found[:3]:
            print(f"    {each.category} {each.where}: {each.text}"[:600])
    print(Counter(each.category for result in failed for each in result.found))
    print(f"{counts.raising} raise with plain dask; {counts.fused_cases} cases ran kernels")
    print(f"{counts.cases} cases, {len(failed)} failures; tasks on the device:", end=" ")
    print(f"{after.device_tasks - before.device_tasks}, on the host:", end=" ")
    print(after.host_tasks - before.host_tasks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
