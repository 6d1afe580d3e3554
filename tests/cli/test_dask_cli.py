"""``dask gpusched``: the same commands, found by dask, which imports them at each of its calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpusched import __version__
from gpusched.cli import COMMANDS

pytestmark = pytest.mark.processes

HEAVY = ("numba", "cupy", "rmm", "cuda", "bokeh")
"""Not pynvml: distributed's own commands import it where it is installed."""
CODE = f"""
import sys
from dask.cli import run_cli
try:
    run_cli()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def dask(*arguments: str) -> tuple[str, str]:
    """Run the command ``dask``; return what it prints, and the heavy modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr


def test_dask_lists_gpusched_at_no_cost() -> None:
    out, imported = dask("--help")
    assert "gpusched " in out
    assert imported == "[]\n"


def test_help_of_gpusched_lists_all_commands_at_no_cost() -> None:
    out, imported = dask("gpusched", "--help")
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line]
    assert set(COMMANDS) <= set(listed)
    assert imported == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_costs_nothing(command: str) -> None:
    out, imported = dask("gpusched", command, "--help")
    assert "Usage: " in out
    assert imported == "[]\n"


@pytest.mark.parametrize("command", ["scheduler", "worker"])
def test_version_is_gpuscheds(command: str) -> None:
    assert dask("gpusched", command, "--version")[0] == f"gpusched, version {__version__}\n"
