"""What the base installation takes: ``python -m tests.benchmarks.installed [--times 5]``.

Prints the bytes of gpusched and of every package that it needs, and how long imports take, each in
processes of its own, by turns. The figures of docs/how-to/install.md are from here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

import gpusched
from gpusched.installing import DISTRIBUTION

IMPORTS = ("dask", "gpusched", "dask.array", "dask.array, gpusched", "distributed", "numba")


def needed(name: str, extras: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what a distribution needs, with the extras of it that are asked for."""
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield requirement.name.lower().replace("_", "-"), tuple(requirement.extras)


def installation() -> list[str]:
    """Return the names of gpusched's distribution and of all that it needs without extras."""
    found: dict[str, None] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(DISTRIBUTION, ())]
    while waiting:
        name, extras = waiting.pop()
        new = name not in found
        found[name] = None
        if new or extras:
            waiting += [each for each in needed(name, extras) if each[0] not in found or each[1]]
    return list(found)


def size(name: str) -> int:
    """Return the bytes of a distribution's files, without those that Python compiles."""
    if name == DISTRIBUTION:
        package = Path(gpusched.__file__).parent
        # Links to folders beside the package, where it is installed from a clone.
        folders = (package, package / "workers", package / "serialization")
        found = {path.resolve() for folder in folders for path in folder.rglob("*")}
    else:
        files = importlib.metadata.files(name) or ()
        found = {Path(str(each.locate())) for each in files}
    return sum(p.stat().st_size for p in found if p.is_file() and p.suffix != ".pyc")


def seconds(modules: str) -> float:
    """Return how long a new interpreter takes to import modules, its own start included."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="how often each import is timed")
    options = parser.parse_args()
    sizes = {name: size(name) for name in installation()}
    print(f"{len(sizes)} packages, {sum(sizes.values()) / 2**20:.0f} MiB")
    for name, found in sorted(sizes.items(), key=lambda item: -item[1])[:8]:
        print(f"{name:20} {found / 2**20:8.1f} MiB")
    rounds = [{name: seconds(name) for name in IMPORTS} for _ in range(options.times)]
    for name in IMPORTS:
        print(f"import {name:24} {min(each[name] for each in rounds):6.2f} s")


if __name__ == "__main__":
    main()
