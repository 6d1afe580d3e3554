"""``gpusched scheduler``: dask's own scheduler and flags, with gpusched's part loaded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Client
from distributed.cli import dask_scheduler

from gpusched.cli.scheduler import PRELOAD, preloads, scheduler
from tests.waiting import PATIENCE, wait_for, wait_gone

from .conftest import Runner, call

LOCAL = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", "s.json")


def started(runner: Runner, *flags: str) -> tuple[subprocess.Popen[str], str]:
    """Start a scheduler and return its process and address."""
    process = runner.start("scheduler", *LOCAL, *flags, stderr=subprocess.DEVNULL)
    return process, read_address(runner.folder / "s.json", process)


def read_address(file: Path, process: subprocess.Popen[str]) -> str:
    """Wait for a scheduler file and return the address in it."""

    def address() -> str | None:
        assert process.poll() is None
        try:
            return str(json.loads(file.read_text())["address"])
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    return str(wait_for(address))


def test_flags_are_dasks() -> None:
    ours = {parameter.name: parameter for parameter in scheduler.params}
    for parameter in dask_scheduler.main.params:
        if parameter.name not in ("show", "use_xheaders", "version"):
            assert ours[parameter.name].opts == parameter.opts
            assert ours[parameter.name].default == parameter.default


def test_gpuscheds_part_is_loaded_first_and_once() -> None:
    assert preloads(("a", PRELOAD)) == [PRELOAD, "a"]
    with dask.config.set({"distributed.scheduler.preload": ["b"]}):
        assert preloads(()) == [PRELOAD, "b"]
        assert preloads(("a",)) == [PRELOAD, "a"]


def loaded(dask_scheduler: Any) -> list[str]:
    return [preload.name for preload in dask_scheduler.preloads]


def test_scheduler_answers_and_ends_on_request(gpusched: Runner) -> None:
    (gpusched.folder / "mine.py").write_text("def dask_setup(scheduler): scheduler.mine = 7\n")
    process, address = started(gpusched, "--preload", "mine.py")
    with Client(address, set_as_default=False) as client:
        assert client.run_on_scheduler(loaded) == [PRELOAD, "mine.py"]
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.mine) == 7
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
    assert not (gpusched.folder / "s.json").exists()


def test_occupied_port_is_one_message(gpusched: Runner) -> None:
    process, address = started(gpusched)
    port = address.rpartition(":")[2]
    done = gpusched("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    assert done.returncode == 1
    told = f"Error: no scheduler: port {port} of 127.0.0.1 is taken: choose another by --port"
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "abc"], "cannot read --port 'abc'"),
        (["--port", "99999"], "cannot read --port '99999'"),
        (["--interface", "eth99"], "'eth99' is not a valid network interface"),
        (["--protocol", "odd"], "unknown address scheme 'odd'"),
        (["--protocol", "ucxx"], "pip install distributed-ucxx-cu13"),
        (["--idle-timeout", "soon"], "--idle-timeout cannot be 'soon'"),
        (["--pid-file", "no/such"], "cannot write --pid-file no/such: there is no folder"),
        (["--scheduler-file", "."], "cannot write --scheduler-file .: it is a folder"),
        (["--frob"], "No such option '--frob'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flag_is_named(flags: list[str], message: str) -> None:
    done = call("scheduler", *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("Error: ") == 1


def test_jupyter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jupyter_server", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = call("scheduler", "--host", "127.0.0.1", "--port", "0", "--jupyter")
    assert done.exit_code == 1
    assert done.stderr == (
        "Error: --jupyter takes JupyterLab, which is not installed: pip install jupyterlab\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--preload", "no_such_module"], "cannot load --preload no_such_module"),
        (["--port", "1,2"], "--protocol and --port must both be lists"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flag_is_named_by_the_process(gpusched: Runner, flags: list[str], message: str) -> None:
    done = gpusched("scheduler", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("Error: ") == 1
    assert "Traceback" not in done.stderr


def test_killed_scheduler_leaves_no_process(gpusched: Runner) -> None:
    gpusched.may_leave_files = True
    process, _ = started(gpusched)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(timeout=PATIENCE)
    wait_gone(children)
