"""Real schedulers, workers and clients with certificates, and those that are refused."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from gpusched.cluster import authority
from gpusched.cluster.certificates import create, load
from tests.cli.conftest import call
from tests.kernelsettings import KERNELS
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for, wait_gone

CLIENT = """
import sys
from distributed import Client
from distributed.security import Security
address, ca, certificate, key = sys.argv[1:]
security = Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=certificate,
                    tls_client_key=key) if ca else None
client = Client(address, security=security, timeout=120)
print(client.submit(sum, [1, 2]).result(120), client.scheduler.address)
client.close()
"""


class Processes:
    """Starts commands in a folder, with their output in files there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith("DASK_")
        } | KERNELS
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start Python with some arguments; return the process and what it writes to."""
        log = self.folder / f"{len(self.started)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        self.started.append(process)
        return process, log

    def run(self, *command: str) -> tuple[int, str]:
        """Run Python to its end; return the exit code and the output."""
        process, log = self.start(*command)
        return process.wait(PATIENCE), log.read_text()

    def scheduler(self, *command: str) -> str:
        """Start a scheduler and return its address."""
        file = self.folder / f"scheduler-{len(self.started)}.json"
        flags = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        process, log = self.start("-m", *command, *flags, "--scheduler-file", str(file))

        def address() -> Any:
            assert process.poll() is None, log.read_text()
            return json.loads(file.read_text() or "{}").get("address") if file.exists() else None

        return str(wait_for(address))

    def close(self) -> None:
        """Kill what still runs, with all that it has started."""
        children = [child for one in self.started for child in descendants(one.pid)]
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
        wait_gone(children)


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def flags(folder: Path) -> list[str]:
    files = {"--tls-ca-file": "ca.pem", "--tls-cert": "cert.pem", "--tls-key": "key.pem"}
    return [part for flag, name in files.items() for part in (flag, str(folder / name))]


@pytest.fixture(scope="module")
@starts_processes
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Give a starter of processes; afterwards none of them lives."""
    starter = Processes(tmp_path_factory.mktemp("processes"))
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the cluster's certificates."""
    folder = tmp_path_factory.mktemp("certificates") / "own"
    create(folder)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of another cluster's certificates."""
    folder = tmp_path_factory.mktemp("certificates") / "other"
    create(folder)
    return folder


@pytest.fixture(scope="module")
def address(processes: Processes, own: Path) -> str:
    """Start a scheduler and a worker, and return the scheduler's address."""
    address = processes.scheduler("dask", "scheduler", "--protocol", "tls", *flags(own))
    processes.start(
        "-m", "dask", "worker", address, "--nthreads", "1", "--no-dashboard", *flags(own)
    )
    return address


def test_client_with_the_certificates_computes(address: str, own: Path) -> None:
    assert address.startswith("tls://127.0.0.1:")
    with Client(address, security=load(own), set_as_default=False) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        assert client.submit(sum, [1, 2]).result(PATIENCE) == 3
        workers = client.sync(client.scheduler.identity)["workers"]
        assert [worker.partition(":")[0] for worker in workers] == ["tls"]


def credentials(kind: str, own: Path, other: Path) -> list[str]:
    if kind == "none":
        return ["", "", ""]
    trusted = own if kind == "not issued by the authority" else other
    return [str(trusted / "ca.pem"), str(other / "cert.pem"), str(other / "key.pem")]


@pytest.mark.parametrize(
    ("kind", "protocol", "message"),
    [
        ("none", "tls", "TLS expects a `ssl_context` argument .*check your TLS configuration"),
        ("none", "tcp", "CommClosedError|Connection reset"),
        ("of another cluster", "tls", "TLS certificate does not match"),
        ("of another cluster", "tcp", "encryption required by Dask configuration"),
        # The scheduler says so, and closes; the client may find it closed before it has read why.
        ("not issued by the authority", "tls", "alert unknown ca|SSLEOFError|Connection reset"),
    ],
)
def test_client_with_other_certificates_is_refused(
    processes: Processes, address: str, own: Path, other: Path, kind: str, protocol: str,
    message: str,
) -> None:  # fmt: skip
    place = address.replace("tls://", f"{protocol}://")
    code, output = processes.run("-c", CLIENT, place, *credentials(kind, own, other))
    assert code == 1
    assert any(map(re.compile(message).search, output.splitlines()[-3:])), output


def test_worker_with_other_certificates_is_refused(
    processes: Processes, address: str, other: Path
) -> None:
    code, output = processes.run(
        "-m", "gpusched", "worker", address, "--cpu", "--death-timeout", "20", *flags(other)
    )
    assert code == 1
    assert "certificate" in output
    assert "Traceback" not in output


def test_expired_certificates_are_refused(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr(authority, "_now", lambda: now - datetime.timedelta(days=40))
    create(tmp_path / "old", days=30)
    address = processes.scheduler(
        "dask", "scheduler", "--protocol", "tls", *flags(tmp_path / "old")
    )
    files = [str(tmp_path / "old" / name) for name in ("ca.pem", "cert.pem", "key.pem")]
    code, output = processes.run("-c", CLIENT, address, *files)
    assert code == 1
    assert "certificate has expired" in output


@pytest.mark.processes
def test_printed_settings_are_enough(tmp_path_factory: pytest.TempPathFactory, own: Path) -> None:
    """No flag and no argument says anything of certificates."""
    folder = tmp_path_factory.mktemp("settings")
    printed = call("certificates", str(folder / "own")).output
    (folder / "tls.yaml").write_text(printed[printed.index("\ndistributed:") :])
    starter = Processes(folder)
    starter.environment["DASK_CONFIG"] = str(folder / "tls.yaml")
    try:
        address = starter.scheduler("gpusched", "scheduler")
        assert address.startswith("tls://")
        starter.start(
            "-m", "gpusched", "worker", address.removeprefix("tls://"), "--cpu", "--threads", "1"
        )
        code, output = starter.run("-c", CLIENT, address, "", "", "")
        assert (code, output.split()) == (0, ["3", address])
    finally:
        starter.close()
