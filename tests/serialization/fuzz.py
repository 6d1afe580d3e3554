"""Feeds damaged messages and files for minutes: ``python -m tests.serialization.fuzz``.

With atheris installed (``pip install atheris``) its inputs grow by what they reach in our code;
else they are random. It stops at the first crash, hang or wrong array.
"""

from __future__ import annotations

import random
import sys
import time

import click

from tests.serialization.damage import check

_LONGEST = 300
"""Bytes of an input."""
_MEMORY = 2000
"""MiB that may be taken."""
_PATIENCE = 20
"""Seconds that an input may take."""


@click.command()
@click.option("--seconds", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the random inputs.")
def main(seconds: int, seed: int) -> None:
    """Check inputs for so many seconds."""
    try:
        import atheris
    except ImportError:
        click.echo("atheris is not installed: random inputs")
        _try_random(seconds, seed)
        return
    limits = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", f"-rss_limit_mb={_MEMORY}"]
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *limits, f"-timeout={_PATIENCE}", f"-seed={seed + 1}"], check)
    atheris.Fuzz()


def _try_random(seconds: int, seed: int) -> None:
    chance = random.Random(seed)
    end, tried = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = chance.randbytes(chance.randint(1, _LONGEST))
        try:
            check(data)
        except BaseException:
            click.echo(f"after {tried} inputs: {data!r}")
            raise
        tried += 1
    click.echo(f"{tried} inputs, none got through")


if __name__ == "__main__":
    main()
