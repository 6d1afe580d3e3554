"""What the tests of deploy/ share."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from distributed import Client

from tests.deploy.jobs import Site
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, address_in, wait_gone


@dataclass
class Pages:
    """Addresses of the HTTP servers of a cluster started by gpusched's commands."""

    scheduler: str
    worker: str

    def get(self, server: str, path: str) -> str:
        """Return a page of the "scheduler" or a "worker"; raises unless it answers with 200."""
        with urlopen(getattr(self, server) + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="session")
@starts_processes
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Give a real scheduler's and a real worker's pages."""
    site = Site(tmp_path_factory.mktemp("pages"))
    environment = site.environment()
    file = site.folder / "scheduler.json"
    page = "--dashboard-address=127.0.0.1:0"
    common = ["--host=127.0.0.1", f"--scheduler-file={file}", page]
    worker = ["worker", *common, "--cpu", "--threads=1", "--memory-limit=1GiB"]
    started = [
        subprocess.Popen([environment["GPUSCHED"], *each], env=environment, stderr=subprocess.PIPE)
        for each in (["scheduler", *common, "--port=0"], worker)
    ]
    for process in started:
        assert process.stderr is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield _find(file)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(PATIENCE)
        wait_gone(site.processes())


def _find(file: Path) -> Pages:
    with Client(address_in(file), timeout=PATIENCE) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        told = client.sync(client.scheduler.identity)
    [worker] = told["workers"].values()
    ports = (told["services"]["dashboard"], worker["services"]["dashboard"])
    return Pages(*(f"http://127.0.0.1:{port}" for port in ports))
