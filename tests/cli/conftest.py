"""Runs the real command in real processes, and checks that nothing of them is left."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401  its settings are among those that are put back
import psutil
import pytest
from click.testing import CliRunner, Result

from gpusched.cli import main
from tests.kernelsettings import KERNELS
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_gone

_MARK = "GPUSCHED_TEST_RUN"


def hear_requests() -> None:
    """Undo what the shell that started the tests may have said: background jobs ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def call(*arguments: str) -> Result:
    """Call ``gpusched`` in this process: quick, for what is refused before anything starts."""
    # Commands put their flags into the settings, which a process of their own would take with it.
    before = copy.deepcopy(dask.config.config)
    try:
        return CliRunner().invoke(main, arguments)
    finally:
        dask.config.config.clear()
        dask.config.config.update(before)


class Runner:
    """Starts ``gpusched`` in a folder of its own."""

    def __init__(self, folder: Path, cache: Path, *command: str) -> None:
        self.folder = folder
        self.command = command
        """What every call begins with."""
        self.mark = uuid.uuid4().hex
        self.scratch = folder / "scratch"
        self.may_leave_files = False
        """Set where the command has no chance to clean up; dask does so at its next start."""
        self.scratch.mkdir()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "COV_"))},
            **KERNELS,
            _MARK: self.mark,
            "TMPDIR": str(self.scratch),
            "XDG_CACHE_HOME": str(cache),
        }

    def script(self, code: str, name: str = "script.py") -> str:
        """Write a script and return its name."""
        (self.folder / name).write_text(code)
        return name

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start the command as the leader of its own group of processes."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {**pipes, "preexec_fn": hear_requests, **options}
        return subprocess.Popen(
            [sys.executable, "-m", "gpusched", *self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            text=True,
            **options,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that descend from this runner's commands."""
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get(_MARK) == self.mark
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def leftovers(self) -> list[str]:
        """Return files left in the scratch folder, but for the locks of dask's own folder."""
        return [
            str(path)
            for path in self.scratch.rglob("*")
            if path.is_file() and path.name not in ("global.lock", "purge.lock")
        ]


def _checked(runner: Runner) -> Iterator[Runner]:
    yield runner
    wait_gone(runner.processes())
    assert runner.may_leave_files or not runner.leftovers()


@pytest.fixture
@starts_processes
def gpusched_run(tmp_path: Path, kernel_cache: Path) -> Iterator[Runner]:
    """Give a runner; afterwards no process of it may live, and no file may be left."""
    yield from _checked(Runner(tmp_path, kernel_cache, "run"))


@pytest.fixture
@starts_processes
def gpusched(tmp_path: Path, kernel_cache: Path) -> Iterator[Runner]:
    """Give a runner of any subcommand, with the same checks afterwards."""
    yield from _checked(Runner(tmp_path, kernel_cache))
