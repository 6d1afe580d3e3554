"""What cannot be carried out: one message that says what to do, and the right exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpusched import Cluster
from gpusched.workers.visible_gpus import visible_devices

from .conftest import Runner, call

no_gpu = pytest.mark.skipif(bool(visible_devices()), reason="this machine has a GPU")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.py"], 2, "there is no script missing.py"),
        (["."], 2, ". is a directory: name the script in it, or use -m PACKAGE"),
        ([], 2, "Missing argument 'SCRIPT'"),
        (["-m", "no_such_module"], 2, "there is no module no_such_module"),
        (["-m", "json"], 2, "json is a package without a __main__ module: name a module in it"),
        (["-m", "no_such_package.module"], 2, "cannot find the module no_such_package.module"),
        (["--bad", "script.py"], 2, "No such option '--bad'"),
        (
            ["--workers", "0", "script.py"],
            2,
            "--workers cannot be '0': write a whole number, 1 or more",
        ),
        (
            ["--threads", "0", "script.py"],
            2,
            "--threads cannot be '0': write a whole number, 1 or more",
        ),
        (["--workers", "many", "script.py"], 2, "--workers cannot be 'many': write a whole number"),
        (["--memory-limit", "4 Quux", "script.py"], 2, "cannot read '4 Quux' as a memory limit"),
        (["--memory-limit", "-1", "script.py"], 2, "a memory limit cannot be -1"),
        (["--memory-limit", "nan", "script.py"], 2, "a memory limit cannot be nan"),
        (["--gpus", "0,0,x", "script.py"], 2, "cannot read '0,0,x' as GPUs"),
        (["--gpus", "0,0,1", "script.py"], 2, "GPU 0 is named 2 times in 0,0,1"),
        (["--gpus", "-1", "script.py"], 2, "cannot read '-1' as GPUs"),
        (["--gpus", "0", "script.py"], 2, "--gpus 0 asks for no GPU: use --cpu"),
        (["--gpus", "1", "--cpu", "script.py"], 2, "--cpu and --gpus exclude each other"),
        (["--gpus", "1", "--local", "script.py"], 2, "leave out --gpus"),
        (["--scheduler", "a:1", "--cpu", "script.py"], 2, "--cpu has no meaning"),
        (["--scheduler", "a:1", "--local", "script.py"], 2, "--local has no meaning"),
        (["--scheduler", "odd://x", "script.py"], 2, "cannot read odd://x as a scheduler's"),
        (["--scheduler", "tcp://127.0.0.1:x", "script.py"], 2, "as a scheduler's address"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "script.py").write_text("print('ran')\n")
    monkeypatch.chdir(tmp_path)
    done = call("run", *arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert done.stderr.count("Error: ") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@no_gpu
@pytest.mark.parametrize("request_", ["1", "all", "0,2"])
def test_missing_gpu_says_where_it_was_looked_for(gpusched_run: Runner, request_: str) -> None:
    gpusched_run.script("print('ran')\n")
    done = gpusched_run("--gpus", request_, "script.py")
    assert done.returncode == 1
    assert done.stdout == ""
    for told in ("none was found", "NVML", "CUDA_VISIBLE_DEVICES", "use --cpu"):
        assert told in done.stderr


def test_file_that_cannot_be_read_is_named(gpusched_run: Runner) -> None:
    (gpusched_run.folder / "loop.py").symlink_to("loop.py")
    done = gpusched_run("--local", "loop.py")
    assert done.returncode == 2
    assert "cannot read loop.py: Too many levels of symbolic links" in done.stderr


def test_address_that_nobody_answers_fails_in_time(gpusched_run: Runner) -> None:
    gpusched_run.environment["DASK_GPUSCHED__RUN__CONNECT_TIMEOUT"] = "1s"
    gpusched_run.script("print('ran')\n")
    with socket.socket() as silent:
        # Bound and not listening, so that nobody else can answer there.
        silent.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = gpusched_run("--scheduler", address, "script.py")
    assert done.returncode == 1
    assert f"no scheduler answered at {address} within 1 s" in done.stderr
    assert "leave out --scheduler" in done.stderr
    assert done.stdout == ""


def test_listener_that_says_nothing_fails_in_time(gpusched_run: Runner) -> None:
    gpusched_run.environment["DASK_GPUSCHED__RUN__CONNECT_TIMEOUT"] = "1s"
    gpusched_run.script("print('ran')\n")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        done = gpusched_run("--scheduler", address, "script.py")
    assert done.returncode == 1
    assert f"no scheduler answered at {address} within 1 s" in done.stderr


STARTING = pytest.mark.parametrize(
    "command", ["scheduler", "worker tcp://127.0.0.1:1", "cluster start x"]
)


@STARTING
def test_empty_host_is_refused(command: str) -> None:
    found = call(*command.split(), "--host", "")
    assert found.exit_code == 2
    assert "the host to listen on is empty" in found.output


@STARTING
@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("203.0.113.9", "203.0.113.9 is not an address of this machine"),
        ("tcp://203.0.113.9:0", "203.0.113.9 is not an address of this machine"),
        ("no.such.invalid", ""),
        ("x" * 64, "it cannot be the name of a machine"),
        ("::1", "write HOST or HOST:PORT; IPv6 takes brackets, as in [::1]"),
    ],
)
def test_host_that_is_not_this_machine_is_refused(command: str, host: str, problem: str) -> None:
    found = call(*command.split(), "--host", host)
    assert found.exit_code == 2, found.output
    assert f"--host cannot be {host!r} ({problem}" in found.output
    assert "name an address of this machine, such as 127.0.0.1" in found.output
    assert found.output.count("Error: ") == 1


@STARTING
@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("203.0.113.9:0", "203.0.113.9 is not an address of this machine"),
        ("127.0.0.1:frob", "its port is not a whole number"),
        (":99999", "its port is not one from 0 to 65535"),
    ],
)
def test_dashboard_address_is_checked_before_anything_starts(
    command: str, address: str, problem: str
) -> None:
    found = call(*command.split(), "--dashboard-address", address)
    assert found.exit_code == 2, found.output
    assert f"--dashboard-address cannot be {address!r} ({problem})" in found.output
    assert found.output.count("Error: ") == 1


def test_empty_host_is_refused_in_python() -> None:
    with pytest.raises(ValueError, match="the host to listen on is empty"):
        Cluster(1, host="")
