"""Code run in a Python of its own, which it may end, keep busy or fill."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How it went."""

    output: str
    """What was printed."""
    problem: str = ""
    """One line; empty if the code ended well."""


def run(code: str, seconds: float) -> Outcome:
    """Run code to its end, or kill it after so many seconds.

    Examples
    --------
    >>> from gpusched.cli.checks.isolated import run
    >>> run("print(1)", 60), run("1 / 0", 60).problem
    (Outcome(output='1', problem=''), 'ZeroDivisionError: division by zero')
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return Outcome("", f"it was not done within {seconds:g} s")
    problem = ""
    if done.returncode:
        last = _error_line(done.stderr) or "it left no word"
        # A negative code is the signal that ended it, of which Python itself prints nothing.
        problem = last if done.returncode > 0 else f"it died of signal {-done.returncode}: {last}"
    return Outcome(done.stdout.strip(), problem)


def _error_line(printed: str) -> str:
    """Return the error that a traceback ends with, without notes; else the last line printed."""
    lines = printed.strip().splitlines()
    frames = [number for number, line in enumerate(lines[:-1]) if line.startswith("  ")]
    return lines[frames[-1] + 1] if frames else "".join(lines[-1:])
