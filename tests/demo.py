"""Runs an example with `gpusched run`, and once more with plain dask to compare them.

``python -m tests.demo [--once] [FLAGS] SCRIPT [ARGUMENTS]`` is ``make demo``; what follows
``--once``, which leaves the second run out, is what `gpusched run` is given. SCRIPT reports how
long it has computed, as in ``12 chunks, 3.4 s``.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys

from gpusched.store.service import client
from tests.waiting import wait_for

_COMPUTING = re.compile(r"chunks, ([\d.]+) s")


def main(arguments: list[str]) -> None:
    """Exit with the code of a run that fails."""
    # A run ends cleanly on Ctrl-C, which the terminal sends it too.
    signal.signal(signal.SIGINT, lambda *_: None)
    once = arguments[:1] == ["--once"]
    given = arguments[once:]
    fused = _run(given)
    if once or "--no-fuse" in given:
        return
    print("gpusched: the same with plain dask (make demo COMPARE=no leaves it out)", flush=True)
    # A compiler beside it would take time from plain dask.
    if client.queued_names():
        print("gpusched: first, kernels are compiled for the next run", flush=True)
        wait_for(lambda: not client.queued_names(), patience=600)
    plain = _run(["--no-fuse", *given])
    if fused and plain:
        print(compared(fused, plain))


def compared(fused: float, plain: float) -> str:
    """Return the last line, of seconds that both runs computed.

    Examples
    --------
    >>> from tests.demo import compared
    >>> compared(2.0, 3.0)
    'computing took 2.0 s with gpusched and 3.0 s with plain dask: 1.50 times as fast'
    """
    return (
        f"computing took {fused:.1f} s with gpusched and {plain:.1f} s with plain dask: "
        f"{plain / fused:.2f} times as fast"
    )


def _run(arguments: list[str]) -> float | None:
    """Return the seconds that the script reports; None if it reports none."""
    command = [sys.executable, "-m", "gpusched", "run", *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(done.returncode)
    found = _COMPUTING.search(done.stdout)
    return float(found[1]) if found else None


if __name__ == "__main__":
    main(sys.argv[1:])
