"""Named clusters, by the command: started, found again, scaled, killed and stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from gpusched.cli.cluster import _table
from gpusched.cluster import certificates
from gpusched.cluster.named import commands, control, state
from gpusched.files import UnsafeFolderError
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for, wait_gone

_MARK = "GPUSCHED_TEST_NAMED"


class Shell:
    """Runs ``gpusched cluster`` for a user whose runtime folder is empty at first."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), _MARK: str(runtime)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpusched", "cluster", *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self.environment, **pipes)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python to its end."""
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def up(self, name: str, *flags: str) -> str:
        """Start a cluster and return its scheduler's address."""
        done = self("start", name, "--cpu", "--threads", "1", *flags)
        assert done.returncode == 0, done.stderr
        return self.status(name)["address"]

    def status(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self("status", name, "--json").stdout)
        return told

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == str(
                self.runtime
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


@pytest.fixture
@starts_processes
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Give a shell; afterwards no process and no folder of its clusters may be left."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    shell = Shell(runtime)
    yield shell
    shell("stop", "--all")
    wait_gone(shell.processes())
    assert not state.names()


def test_cluster_goes_on_and_is_found_by_its_name(shell: Shell) -> None:
    address = shell.up("first", "--workers", "2")
    with Client(address) as client:
        assert client.submit(sum, [1, 2, 3]).result() == 6
    found = shell.status("first")
    assert found["state"] == "running"
    assert len(found["workers"]) == found["requested_workers"] == 2
    shown = shell("status").stdout.splitlines()
    assert shown[1].split()[:3] == ["first", "running", "2/2"]
    assert "Receive client connection" in shell("logs", "first").stdout
    assert shell("stop", "first").stdout == "cluster 'first' stopped\n"
    assert shell("status", "first").returncode == 3
    assert not shell.processes()


@pytest.mark.exhaustive
def test_several_at_once_and_each_is_scaled_alone(shell: Shell) -> None:
    first, second = shell.up("a", "--workers", "1"), shell.up("b", "--workers", "1")
    assert first != second
    assert shell("scale", "a", "3").stdout == "cluster 'a' has 3 workers\n"
    assert len(shell.status("a")["workers"]) == 3
    assert len(shell.status("b")["workers"]) == 1
    assert shell("scale", "a", "0").returncode == 0
    assert shell.status("a")["workers"] == []


def test_name_in_use_is_told(shell: Shell) -> None:
    address = shell.up("a", "--workers", "1")
    again = shell("start", "a", "--cpu")
    assert again.returncode == 1
    assert "there is a cluster 'a' already" in again.stderr
    assert shell.status("a")["address"] == address


def test_of_two_starts_at_once_one_wins(shell: Shell) -> None:
    both = [shell.start("start", "a", "--cpu", "--workers", "1") for _ in range(2)]
    codes = []
    for process in both:
        process.communicate(timeout=PATIENCE)
        codes.append(process.returncode)
    assert sorted(codes) == [0, 1]
    assert shell.status("a")["state"] == "running"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["start", "../x"], 2, "'../x' cannot be a cluster's name"),
        (["start", "x", "--memory-limit", "3 Quux"], 2, "cannot read '3 Quux' as a memory limit"),
        (["start", "x", "--gpus", "1", "--cpu"], 2, "exclude each other"),
        (["start", "x", "--gpus", "5,x"], 2, "cannot read '5,x' as GPUs"),
        (["start", "x", "--gpus", "64"], 2, "For CPU workers, use --cpu"),
        (["start", "x", "--cpu", "--host", "203.0.113.9"], 2, "is not an address of this machine"),
        (["start", "x", "--cpu", "--threads", "9999"], 2, "from 1 to 4096"),
        (["start", "x", "--pool", "odd"], 2, "--pool odd is none of"),
        (["status", "x"], 3, "there is no cluster 'x'; there are: none"),
        (["scale", "x", "2"], 1, "there is no cluster 'x'"),
        (["stop", "x"], 1, "there is no cluster 'x'"),
        (["logs", "x"], 1, "there is no cluster 'x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_told(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    done = shell(*arguments)
    assert done.returncode == code, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (code == 2) <= ("its log" not in done.stderr)
    assert not state.names()
    assert not shell.processes()


def test_log_of_a_cluster_that_did_not_start_can_be_read(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = shell("start", "x", "--cpu", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    told = re.search(r"is taken: .* \(its log: (\S+)\)$", done.stderr.strip())
    assert told is not None, done.stderr
    log = Path(told[1]).read_text()
    assert "the cluster failed" in log
    assert "Traceback" in log
    assert shell("logs", "x", "--follow").stdout == log
    assert shell("status", "x").returncode == 3
    assert Path(told[1]).stat().st_mode & 0o777 == 0o600
    # The next one's log is its own.
    shell.up("x", "--workers", "1")
    assert not Path(told[1]).exists()
    assert "the cluster failed" not in shell("logs", "x").stdout


def test_port_in_use_is_told(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell("start", "a", "--cpu", "--port", str(port))
    assert done.returncode == 1
    told = f"Error: port {port} of 127.0.0.1 is taken: choose another by --port"
    assert told in done.stderr
    assert not shell.processes()


def test_manager_that_is_killed_takes_its_workers_along(shell: Shell) -> None:
    shell.up("a", "--workers", "2")
    os.kill(shell.status("a")["pid"], signal.SIGKILL)
    wait_for(lambda: not shell.processes())
    assert shell.status("a")["state"] == "dead"
    assert shell("status", "a").returncode == 3
    assert "a  " in shell("status").stdout
    # A new one may take the name.
    assert shell.up("a", "--workers", "1")
    assert shell.status("a")["state"] == "running"


@pytest.mark.exhaustive
def test_manager_that_does_not_answer_is_ended(shell: Shell) -> None:
    shell.up("a", "--workers", "1")
    pid = shell.status("a")["pid"]
    os.kill(pid, signal.SIGSTOP)
    done = shell("stop", "a", "--timeout", "1")
    assert done.stdout == "cluster 'a' did not stop and was killed\n"
    wait_for(lambda: not shell.processes())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_it_cleanly(shell: Shell, number: signal.Signals) -> None:
    shell.up("a", "--workers", "1")
    os.kill(shell.status("a")["pid"], number)
    wait_for(lambda: not state.names() and not shell.processes())


def test_end_of_the_terminal_does_not_end_it(shell: Shell) -> None:
    shell.up("a", "--workers", "1")
    os.kill(shell.status("a")["pid"], signal.SIGHUP)
    assert shell("scale", "a", "2").returncode == 0


def test_folder_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = state.root()
    folder.chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="cannot be trusted"):
        state.root()


def test_without_a_runtime_folder_a_private_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = state.root()
    assert folder == tmp_path / f"gpusched-{os.getuid()}" / "clusters"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.exhaustive
def test_connections_are_encrypted_where_asked(shell: Shell, tmp_path: Path) -> None:
    security = certificates.create(tmp_path / "certificates")
    address = shell.up("a", "--workers", "1", "--tls", str(tmp_path / "certificates"))
    assert address.startswith("tls://")
    with Client(address, security=security) as client:
        assert client.submit(sum, [1, 2]).result() == 3
    assert shell("scale", "a", "2").stdout == "cluster 'a' has 2 workers\n"
    # What is printed works as it is: a line of Python, and a command.
    printed = shell("status", "a").stdout
    python = re.search(r"in Python  (from .*)\n +(Client\(.*\))", printed)
    command = re.search(r"a script   gpusched (run .*) SCRIPT", printed)
    assert python is not None, printed
    assert command is not None, printed
    script = tmp_path / "script.py"
    script.write_text(
        f"from distributed import Client\n{python[1]}\n"
        f"with {python[2]} as client:\n    print(client.submit(sum, [1, 2]).result())\n"
    )
    assert shell.run(str(script)).stdout == "3\n"
    own = tmp_path / "own.py"
    own.write_text("import dask.array as da\nprint(int(da.ones(9, chunks=3).sum().compute()))\n")
    done = shell.run("-m", "gpusched", *shlex.split(command[1]), str(own))
    assert (done.stdout, done.returncode) == ("9\n", 0), done.stderr


def test_state_file_that_is_damaged_meanwhile_changes_nothing(shell: Shell) -> None:
    address = shell.up("a", "--workers", "1")
    (state.folder_of("a") / "state.json").write_text("{")
    found = shell.status("a")
    assert (found["state"], found["address"]) == ("running", address)
    assert shell("stop", "a").stdout == "cluster 'a' stopped\n"
    assert not shell.processes()


def test_socket_may_lie_deep(tmp_path: Path) -> None:
    import asyncio

    folder = tmp_path.joinpath(*["deep" * 10] * 5)
    folder.mkdir(parents=True)

    async def handler(request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "fail":
            raise ValueError("told")
        return {"got": request["op"]}

    async def main() -> tuple[Any, str]:
        server = await control.listen(folder, handler)
        async with server:
            reply = await asyncio.to_thread(control.ask, folder, {"op": "hello"})
            with pytest.raises(control.ControlError, match=r"^told$"):
                await asyncio.to_thread(control.ask, folder, {"op": "fail"})
        mode = oct((folder / control.SOCKET).stat().st_mode & 0o777) if reply else ""
        return reply, mode

    reply, mode = asyncio.run(main())
    assert reply == {"got": "hello"}
    assert mode == "0o600"


def test_age_is_shown_without_workers() -> None:
    record = state.Record("a", 1, "tcp://127.0.0.1:1", "", started=time.time() - 90)
    for how, shown in [("running", True), ("not answering", True), ("dead", False)]:
        found = re.search(r" 9\d\.\d+ s ", _table([commands.Status("a", how, record)]))
        assert (found is not None) is shown


@pytest.mark.processes
def test_starting_without_a_manager_tells_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(commands.StartError, match="its manager died: it left no word"):
        commands.start("a", {})
    assert state.names() == []
