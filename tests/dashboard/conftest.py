"""A cluster in processes of its own, with a dashboard, and a program to run on it.

Not in this process: bokeh switches its checks of values off, for all threads, while a page is
updated, and tests make and read pages here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import psutil
import pytest
from distributed import Client

import gpusched
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, address_in, wait_gone


def program() -> Any:
    """Return arrays whose tasks launch two kernels, one of them with a reduction, and stop once."""
    x = da.random.default_rng(0).random((400, 400), chunks=(100, 400))
    return [((x - 0.5) ** 2 / (x + 1)).mean(), (da.sqrt(x) + x * 2).sum(axis=1), da.unique(x > 2)]


class Site:
    """A scheduler and its workers, a client, and where the dashboard is."""

    def __init__(self, file: Path, client: Client) -> None:
        self.file = file
        self.client = client
        self.url = f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"

    def compute(self) -> None:
        """Run the program once."""
        self.client.compute(program(), sync=True)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run the program again and again while the block runs."""
        stop = threading.Event()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                while not stop.is_set():
                    self.compute()
            except BaseException as error:  # noqa: BLE001  told to the test, in its own thread
                failed.append(error)

        thread = threading.Thread(target=work, name="job")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed


@contextmanager
def running(*commands: list[str]) -> Iterator[None]:
    """Run Python's modules while the block runs, and end them then, with all they started."""
    started = [psutil.Popen([sys.executable, "-m", *command]) for command in commands]
    try:
        yield
    finally:
        every = [each for process in started for each in process.children(recursive=True)]
        for process in reversed(started):
            process.terminate()
        wait_gone([*started, *every])


def worker(file: Path, name: str, *flags: str) -> list[str]:
    """Return the command that starts a worker for `running`."""
    where = [f"--scheduler-file={file}", f"--local-directory={file.parent}", "--host=127.0.0.1"]
    kind = ["--cpu", "--threads=1", "--no-dashboard", f"--name={name}"]
    return ["gpusched", "worker", *where, *kind, *flags]


@contextmanager
def serving(folder: Path, workers: int, *flags: str) -> Iterator[Site]:
    """Start a cluster with a dashboard."""
    file = folder / "scheduler.json"
    where = [f"--scheduler-file={file}", "--host=127.0.0.1", "--port=0"]
    scheduler = ["gpusched", "scheduler", *where, "--dashboard-address=127.0.0.1:0"]
    with (
        running(scheduler, *(worker(file, str(name), *flags) for name in range(workers))),
        Client(address_in(file), timeout=PATIENCE) as client,
        gpusched.enable(),
    ):
        client.wait_for_workers(workers, timeout=PATIENCE)
        yield Site(file, client)


@pytest.fixture(scope="module")
@starts_processes
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start a cluster on which the program has run once."""
    with serving(tmp_path_factory.mktemp("site"), 1) as found:
        found.compute()
        yield found
