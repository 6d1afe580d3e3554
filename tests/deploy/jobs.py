"""Runs the batch scripts of deploy/, and finds what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

DEPLOY = Path(__file__).parents[2] / "deploy"
SECONDS = 120
"""That a job may take."""
_MARK = "GPUSCHED_TEST_JOB"

SCRIPT = """\
import sys
import dask.array as da
from distributed import default_client

client = default_client()
client.wait_for_workers(2, timeout=60)
x = da.ones((8, 100_000), chunks=(1, -1))
print("scheme", client.scheduler.address.partition(":")[0])
print("sum", (x * 2 + 1).sum().compute(), flush=True)
if "stay" in sys.argv:
    client.submit(__import__("time").sleep, 600).result()
sys.exit(len(sys.argv) + 5)
"""
"""Exits with 6 and one more for each argument; with "stay" it does not end by itself."""


@dataclass
class Site:
    """A folder that all nodes of a job see, with a script in it."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        (self.folder / "script.py").write_text(SCRIPT)
        (self.folder / "nodes").write_text("one\none\ntwo\n")

    def program(self, name: str, text: str) -> Path:
        """Write an executable shell script."""
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path

    def environment(self) -> dict[str, str]:
        """Return what a job is told: CPU workers with one thread."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "COV_"))}
        path = f"{self.folder}{os.pathsep}{kept['PATH']}"
        return kept | {
            _MARK: self.mark,
            "PATH": path,
            "DASK_CONFIG": str(self.folder / "config"),
            "DASK_TEMPORARY_DIRECTORY": str(self.folder / "scratch"),
            # Shared by tests, so that kernels are compiled once.
            "XDG_CACHE_HOME": str(self.folder.parent / "cache"),
            "GPUSCHED": str(Path(sys.executable).with_name("gpusched")),
            "NODE": str(DEPLOY / "node.sh"),
            "SHARED": str(self.folder),
            "WORKER_OPTIONS": "--cpu --nthreads 1 --memory-limit 1GiB --no-dashboard",
        }

    def start(self, script: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start a job script as its batch system does; what it prints is in one pipe."""
        return subprocess.Popen(
            ["bash", str(DEPLOY / script), *arguments],
            cwd=self.folder,
            env=self.environment() | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, *arguments: str, **settings: str) -> tuple[int, str]:
        """Run a job script and return its exit code and what it printed."""
        job = self.start(script, *arguments, **settings)
        told, _ = job.communicate(timeout=SECONDS)
        return job.returncode, told

    def left(self) -> list[str]:
        """Kill and name the processes that are left, and name the files of jobs."""
        alive = list(self.processes())
        told = [f"{process.pid} {' '.join(process.cmdline())}" for process in alive]
        for process in alive:
            process.kill()
        return told + [str(path) for path in self.folder.glob("gpusched-*")]

    def processes(self) -> Iterator[psutil.Process]:
        """Yield the processes of this folder's jobs."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self.mark:
                    yield process
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue


def wait_for(job: subprocess.Popen[str], words: str) -> str:
    """Read what a job prints until a line begins with these words."""
    assert job.stdout is not None
    told = ""
    for line in job.stdout:
        told += line
        if line.startswith(words):
            return told
    raise AssertionError(f"the job ended before it printed {words!r}:\n{told}")
