"""Loads forged files by the million: ``make fuzz``, or ``python -m tests.saving.fuzz``.

Each case has a number of its own, so that one which fails can be run again with ``--first``. It
stops at the first case that crashes, is accepted although its numbers lead out of memory, or raises
anything but the errors that are documented.
"""

from __future__ import annotations

import faulthandler
import random
import tempfile
import time
import warnings
from pathlib import Path

import click

from tests.saving.forging import archive, check, check_file, forge

_IN_FILES = 50
"""One case of so many goes through an archive on disk, whose bytes may be damaged."""


@click.command()
@click.option("--cases", default=10_000, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first case.")
@click.option("--seed", default=0, show_default=True)
def main(cases: int, first: int, seed: int) -> None:
    """Load so many forged files."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    started, accepted, number = time.monotonic(), 0, first
    with tempfile.TemporaryDirectory() as folder:
        # Read after a crash: which case it was.
        log = open(Path(tempfile.gettempdir(), f"gpusched-fuzz-{seed}-{first}"), "w")  # noqa: SIM115
        try:
            for number in range(first, first + cases):
                log.seek(0)
                log.write(f"{number}\n")
                log.flush()
                accepted += one(random.Random(f"{seed} {number}"), number, Path(folder, "x"))
        except BaseException:
            click.echo(f"case {number} of seed {seed}: --seed {seed} --first {number} --cases 1")
            raise
    seconds = time.monotonic() - started
    click.echo(f"{cases} cases, {accepted} accepted, none did harm, {seconds:.0f} s")


def one(chance: random.Random, number: int, path: Path) -> bool:
    """Load one forged file, and return whether it was accepted."""
    found = forge(chance)
    if number % _IN_FILES:
        return check(found)
    content = bytearray(archive(found))
    for _ in range(chance.choice((0, 0, 1, 3))):
        content[chance.randrange(len(content))] ^= chance.randint(1, 255)
    path.write_bytes(content)
    return check_file(path)


if __name__ == "__main__":
    main()
