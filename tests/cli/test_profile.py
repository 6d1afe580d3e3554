"""``gpusched run --profile``: a file, whatever becomes of the script."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import Runner

COMPUTE = """
import dask.array as da
x = da.arange(400_000, chunks=100_000).astype("f8")
print(float((da.sqrt(x) * 2 + 1).sum().compute()))
"""


def trace(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


@pytest.mark.parametrize("flags", [["--local"], ["--cpu", "--workers", "2"]])
def test_trace_of_a_script(gpusched_run: Runner, flags: list[str]) -> None:
    done = gpusched_run(*flags, "--profile", "out.json", gpusched_run.script(COMPUTE))
    assert done.returncode == 0, done.stderr
    # Progress may be there before it: slow machines take long to compile.
    assert "gpusched: the profile is in out.json" in done.stderr.splitlines()
    assert len(done.stdout.splitlines()) == 1
    events = trace(gpusched_run.folder / "out.json")
    launches = [e for e in events if e.get("cat") == "kernel"]
    assert len(launches) == 4, (done.stderr, [(e.get("cat"), e["name"]) for e in events])
    assert re.search(r"script\.py:4  print\(float", " ".join(launches[0]["args"]["lines"]))


@pytest.mark.parametrize(
    ("ending", "code"),
    [("import sys; sys.exit(3)", 3), ("1 / 0", 1), ("import os; os.chdir('/')", 0),
     ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM)],
)  # fmt: skip
def test_page_of_a_script_however_it_ends(gpusched_run: Runner, ending: str, code: int) -> None:
    script = gpusched_run.script(f"{COMPUTE}\n{ending}\n")
    done = gpusched_run("--local", "--profile", "out.html", script)
    assert done.returncode == code, done.stderr
    assert "gpusched profile" in (gpusched_run.folder / "out.html").read_text()


def test_quiet_says_nothing(gpusched_run: Runner) -> None:
    script = gpusched_run.script(COMPUTE)
    done = gpusched_run("--local", "--quiet", "--profile", "out.html", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert (gpusched_run.folder / "out.html").exists()


@pytest.mark.parametrize("name", ["out.txt", "out", "missing/out.html", "folder.html"])
def test_what_cannot_be_written_is_refused_before_the_script_runs(
    gpusched_run: Runner, name: str
) -> None:
    (gpusched_run.folder / "folder.html").mkdir()
    done = gpusched_run("--local", "--profile", name, gpusched_run.script("print('ran')"))
    assert done.returncode == 2
    assert f"--profile {name}: " in done.stderr
    assert "ran" not in done.stdout


def test_file_that_cannot_be_written_in_the_end(gpusched_run: Runner) -> None:
    script = gpusched_run.script("import os; os.mkdir('out.html')")
    done = gpusched_run("--local", "--profile", "out.html", script)
    assert done.returncode == 0
    assert re.search(r"gpusched run: cannot write .*out\.html: Is a directory", done.stderr)
