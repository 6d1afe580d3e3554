"""``gpusched worker``: what it starts, and how it ends."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.system
import psutil
import pytest
from distributed import Client
from distributed.cli import dask_worker
from distributed.deploy.utils import nprocesses_nthreads

from gpusched.cli.worker import make_allocation, worker
from gpusched.cluster import allocation as planning
from tests.tiers import exhaustive
from tests.waiting import PATIENCE, wait_for, wait_gone

from .conftest import Runner, call
from .test_scheduler_command import read_address, started

ROOT = Path(__file__).parents[2]
CPU = ("--cpu", "--no-dashboard", "--host", "127.0.0.1")
FLAGS: dict[str, Any] = worker.make_context("worker", ["tcp://a:1"]).params


def joined(client: Client, workers: int) -> dict[str, Any]:
    """Wait for workers, and their nannies if any; return what the scheduler knows of them."""
    client.wait_for_workers(workers, timeout=PATIENCE)
    wait_for(lambda: set(client.run(status, nanny=True).values()) <= {"running"})
    return dict(client.sync(client.scheduler.identity)["workers"])


def status(dask_worker: Any) -> str:
    return dask_worker.status.name


def test_flags_are_dasks() -> None:
    ours = {parameter.name: parameter for parameter in worker.params}
    spelled = {"--nworkers": "--workers", "--nthreads": "--threads"}
    for parameter in dask_worker.main.params:
        if parameter.name not in ("dashboard_prefix", "version"):
            assert [spelled.get(o, o) for o in parameter.opts] == ours[parameter.name].opts
            if parameter.name not in ("memory_limit", "worker_class"):
                assert ours[parameter.name].default == parameter.default


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ({}, {}),
        ({"gpus": "all"}, {"gpus": "all"}),
        ({"gpus": "2"}, {"gpus": 2}),
        ({"gpus": "2,0"}, {"gpus": [2, 0]}),
        ({"gpus": "0,0,1,1"}, {"gpus": [0, 0, 1, 1]}),
        ({"n_workers": "2"}, {"workers": 2}),
        ({"n_workers": "auto"}, {}),
        ({"nthreads": 3}, {"threads": 3}),
        ({"memory_limit": "1 GiB"}, {"memory_limit": "1 GiB"}),
        ({"cpu": True, "n_workers": "2"}, {"gpus": 0, "workers": 2}),
        ({"cpu": True, "n_workers": "auto"}, {"gpus": 0}),
        ({"cpu": True}, {"gpus": 0, "workers": 1}),
    ],
)
def test_plan_is_that_of_python(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(planning, "visible_devices", lambda: ["1", "3", "5"])
    monkeypatch.setattr(planning.nvml, "facts", lambda device: None)
    assert make_allocation(FLAGS | flags) == planning.allocate(**arguments)


@pytest.mark.parametrize(
    ("text", "workers"),
    [(None, 1), ("3", 3), ("-1", 16), ("-15", 2), ("auto", nprocesses_nthreads(16)[0])],
)
def test_number_of_cpu_workers_is_dasks(
    monkeypatch: pytest.MonkeyPatch, text: str | None, workers: int
) -> None:
    monkeypatch.setattr(planning, "visible_devices", list)
    monkeypatch.setattr(dask.system, "CPU_COUNT", 16)
    assert make_allocation(FLAGS | {"n_workers": text}).workers == workers


def hook() -> str:
    return getattr(dask.config.get("array_optimize", None), "__module__", "")


@pytest.fixture
def scheduler(gpusched: Runner) -> Iterator[str]:
    """Give a scheduler's address; it ends afterwards."""
    process, address = started(gpusched)
    yield address
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=PATIENCE)


def test_cpu_workers_get_what_was_asked_for(gpusched: Runner, scheduler: str) -> None:
    asked = ["--workers", "2", "--threads", "3", "--memory-limit", "300 MiB", "--name", "w"]
    more = ["--resources", "A=2,B=3", "--pid-file", "pid"]
    process = gpusched.start("worker", scheduler, *CPU, *asked, *more, stderr=subprocess.DEVNULL)
    with Client(scheduler, set_as_default=False) as client:
        told = joined(client, 2).values()
        assert {w["name"] for w in told} == {"w-0", "w-1"}
        assert {w["nthreads"] for w in told} == {3}
        assert {w["memory_limit"] for w in told} == {300 * 2**20}
        assert all(w["resources"] == {"A": 2.0, "B": 3.0} for w in told)
        assert set(client.run(hook).values()) == {"gpusched.graph.hook"}
        kinds = client.run(lambda dask_worker: type(dask_worker).__name__)
        assert set(kinds.values()) == {"DeviceWorker"}
        assert client.submit(lambda x: x + 1, 6).result(timeout=PATIENCE) == 7
    file = gpusched.folder / "pid"
    assert file.read_text() == str(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
    assert not file.exists()


@pytest.mark.essential
def test_worker_without_nanny(gpusched: Runner, scheduler: str) -> None:
    process = gpusched.start("worker", scheduler, *CPU, "--no-nanny", "--no-fuse", "--name", "7")
    with Client(scheduler, set_as_default=False) as client:
        (told,) = joined(client, 1).values()
        assert told["name"] == 7
        assert told["nthreads"] == dask.system.CPU_COUNT
        assert list(client.run(os.getpid).values()) == [process.pid]
        assert list(client.run(hook).values()) == [""]
        assert list(client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).values()) == [""]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


FAKE_NVML = """
from types import SimpleNamespace
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}a"
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle): raise NVMLError
def nvmlDeviceGetIndex(handle): return handle
def nvmlDeviceGetName(handle): return "fake"
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(total=2**30, used=0)
def nvmlDeviceGetPciInfo(handle): return SimpleNamespace(busId="")
def nvmlDeviceGetCpuAffinity(handle, words): return [1] + [0] * (words - 1)
"""


@pytest.mark.parametrize(
    ("flags", "devices", "limit"),
    [
        ([], {0: "0", 1: "1", 2: "2"}, 0.8),
        (["--gpus", "2,0"], {0: "2", 1: "0"}, 0.8),
        (["--gpus", "GPU-1a,", "--device-memory-limit", "0.5"], {0: "1"}, 0.5),
        (["--gpus", "1,1"], {0: "1", 1: "1"}, 0.4),
    ],
    ids=lambda value: " ".join(value) or "all" if isinstance(value, list) else "",
)
def test_each_gpu_gets_a_worker(
    gpusched: Runner, scheduler: str, flags: list[str], devices: dict[int, str], limit: float
) -> None:
    (gpusched.folder / "pynvml.py").write_text(FAKE_NVML)
    gpusched.environment |= {
        "PYTHONPATH": f"{gpusched.folder}:{ROOT}",
        "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False",
    }
    emulated = ["--worker-class", "tests.workers.emulated.EmulatedWorker", "--name", "g"]
    process = gpusched.start(
        "worker", scheduler, "--no-dashboard", *emulated, "--resources", "A=1", *flags
    )
    with Client(scheduler, set_as_default=False) as client:
        told = joined(client, len(devices))
        assert all(w["resources"] == {"A": 1.0, "GPU": 1.0} for w in told.values())
        share = max(1, dask.system.CPU_COUNT // len(devices))
        assert {w["nthreads"] for w in told.values()} == {share}
        names = {
            address: int(str(w["name"]).removeprefix("g").removeprefix("-") or 0)
            for address, w in told.items()
        }
        seen = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        assert {names[address]: device for address, device in seen.items()} == devices
        limits = client.run(lambda dask_worker: dask_worker.device.memory_limit)
        assert set(limits.values()) == {int(limit * 2**30)}
        cpus = client.run(lambda: sorted(os.sched_getaffinity(0)))
        assert set(map(tuple, cpus.values())) == {(0,)}
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 0
    assert sorted(os.sched_getaffinity(0)) != [0] or os.cpu_count() == 1


def test_scheduler_file_may_appear_later_or_be_an_old_one(gpusched: Runner) -> None:
    file = gpusched.folder / "s.json"
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        old = f"tcp://127.0.0.1:{gone.getsockname()[1]}"
        flags = [*CPU, "--scheduler-file", "s.json", "--death-timeout", str(PATIENCE)]
        process = gpusched.start("worker", *flags, stderr=subprocess.DEVNULL)
        file.write_text(json.dumps({"address": old}))
        wait_for(lambda: psutil.Process(process.pid).cpu_times().user > 0)
        started_here = gpusched.start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", "s.json", stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: old not in file.read_text())
        with Client(read_address(file, started_here), set_as_default=False) as client:
            joined(client, 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
    started_here.send_signal(signal.SIGTERM)
    assert started_here.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize("whole_group", [True, *exhaustive(False)], ids=["group", "one"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_request_to_stop_ends_everything(
    gpusched: Runner, scheduler: str, number: signal.Signals, whole_group: bool
) -> None:
    process = gpusched.start("worker", scheduler, *CPU, "--workers", "2")
    # Workers that are told themselves leave at once, and cannot clean up.
    gpusched.may_leave_files = whole_group and number == signal.SIGTERM
    with Client(scheduler, set_as_default=False) as client:
        joined(client, 2)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err
    wait_gone(workers)


def computing(client: Client, gpusched: Runner) -> None:
    """Return when a task that never ends runs, which keeps the interpreter's lock to itself."""
    mark = gpusched.folder / "runs"

    def endless(mark: str) -> None:
        sleep = ctypes.PyDLL(None).sleep
        Path(mark).touch()
        sleep(1000)

    client.submit(endless, str(mark)).add_done_callback(lambda _: None)
    wait_for(mark.exists)


def test_running_task_does_not_keep_anything_alive(gpusched: Runner, scheduler: str) -> None:
    process = gpusched.start("worker", scheduler, *CPU)
    with Client(scheduler, set_as_default=False) as client:
        joined(client, 1)
        computing(client, gpusched)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


def test_second_request_ends_it_at_once(gpusched: Runner, scheduler: str) -> None:
    gpusched.may_leave_files = True
    process = gpusched.start("worker", scheduler, *CPU, stderr=subprocess.PIPE)
    with Client(scheduler, set_as_default=False) as client:
        joined(client, 1)
        computing(client, gpusched)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "asking worker to close" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 143
        wait_gone(workers)


def test_killed_command_leaves_no_worker(gpusched: Runner, scheduler: str) -> None:
    gpusched.may_leave_files = True
    process = gpusched.start("worker", scheduler, *CPU, "--workers", "2")
    with Client(scheduler, set_as_default=False) as client:
        joined(client, 2)
        computing(client, gpusched)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.kill()
        process.communicate(timeout=PATIENCE)
        wait_gone(workers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_worker_ends_with_its_scheduler(gpusched: Runner, number: signal.Signals) -> None:
    gpusched.may_leave_files = number == signal.SIGKILL
    head, address = started(gpusched)
    process = gpusched.start("worker", address, *CPU)
    with Client(address, set_as_default=False) as client:
        joined(client, 1)
    head.send_signal(number)
    head.wait(timeout=PATIENCE)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


# Begins, then waits until a file appears.
HELD = """
import pathlib, threading
def dask_setup(worker):
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.01)
"""
ENDED = "has ended while a worker was about to join it"


def held(gpusched: Runner, address: str, *flags: str) -> subprocess.Popen[str]:
    """Start a worker, and return when it is about to join the scheduler, or has given up."""
    (gpusched.folder / "held.py").write_text(HELD)
    process = gpusched.start("worker", address, *CPU, "--preload", "held.py", *flags)
    begun = gpusched.folder / "begun"
    # A slow machine may take longer to get there than a death timeout: that must be told, too.
    wait_for(lambda: begun.exists() or process.poll() is not None)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], ENDED),
        pytest.param(["--workers", "2"], ENDED, marks=pytest.mark.exhaustive),
        pytest.param(["--no-nanny"], ENDED, marks=pytest.mark.exhaustive),
        pytest.param(
            ["--death-timeout", "8"],
            "not up within its death timeout of 8 s",
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_worker_that_is_about_to_join_ends_with_its_scheduler(
    gpusched: Runner, number: signal.Signals, flags: list[str], message: str
) -> None:
    gpusched.may_leave_files = True
    head, address = started(gpusched)
    process = held(gpusched, address, *flags)
    head.send_signal(number)
    head.wait(timeout=PATIENCE)
    (gpusched.folder / "go").touch()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    (told,) = (line for line in err.splitlines() if line.startswith("Error: "))
    assert message in told


@pytest.mark.exhaustive
def test_worker_that_starts_again_ends_with_its_scheduler(gpusched: Runner) -> None:
    gpusched.may_leave_files = True
    head, address = started(gpusched)
    process = gpusched.start("worker", address, *CPU)
    with Client(address, set_as_default=False) as client:
        joined(client, 1)
        (pid,) = client.run(os.getpid).values()
    # It does not notice that the scheduler ends, so that its nanny starts it again.
    os.kill(pid, signal.SIGSTOP)
    head.kill()
    head.wait(timeout=PATIENCE)
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert ENDED in err


def test_request_to_stop_while_it_looks_for_the_scheduler(gpusched: Runner) -> None:
    process = gpusched.start("worker", *CPU, "--scheduler-file", "never.json")
    wait_for(lambda: "never.json" in " ".join(psutil.Process(process.pid).cmdline()))
    wait_for(lambda: caught(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def caught(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process has set a handler for a signal."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("listening", [True, False], ids=["mute", "nobody"])
def test_scheduler_that_does_not_answer(gpusched: Runner, listening: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listening:
            silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = gpusched("worker", address, "--death-timeout", "1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: no scheduler answered at {address} within 1 s")


def test_scheduler_file_that_never_appears(gpusched: Runner) -> None:
    done = gpusched("worker", "--scheduler-file", "no.json", "--death-timeout", "1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: there was no scheduler file no.json within 1 s")


def test_worker_that_takes_too_long_to_start(gpusched: Runner, scheduler: str) -> None:
    gpusched.may_leave_files = True
    (gpusched.folder / "slow.py").write_text(
        "import threading\ndef dask_setup(worker):\n    threading.Event().wait()\n"
    )
    flags = ["--workers", "2", "--preload", "slow.py", "--death-timeout", "4"]
    done = gpusched("worker", scheduler, *CPU, *flags)
    assert done.returncode == 1
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("Error: worker"))
    assert told.endswith("it was not up within its death timeout of 4 s")


def test_lifetime_ends_the_command(gpusched: Runner, scheduler: str) -> None:
    done = gpusched("worker", scheduler, *CPU, "--lifetime", "10")
    assert done.returncode == 0, done.stderr


def test_worker_of_another_version_is_refused(gpusched: Runner, scheduler: str) -> None:
    (gpusched.folder / "skew.py").write_text(
        "from gpusched.workers import version_check\n"
        "version_check.own_versions = lambda: {'lz4': '0.1'}\n"
    )
    done = gpusched("worker", scheduler, *CPU, "--workers", "2", "--preload", "skew.py")
    assert done.returncode == 1
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("Error: worker"))
    assert re.match(
        r"Error: worker could not be started: worker tcp://\S+ has other versions than the "
        r"scheduler: \S", told
    )  # fmt: skip
    assert "lz4 is" in told
    assert "0.1 there" in told
    assert "{" not in told


def test_worker_whose_name_is_taken_is_refused(gpusched: Runner, scheduler: str) -> None:
    process = gpusched.start("worker", scheduler, *CPU, "--name", "w", stderr=subprocess.DEVNULL)
    with Client(scheduler, set_as_default=False) as client:
        joined(client, 1)
    done = gpusched("worker", scheduler, *CPU, "--name", "w")
    assert done.returncode == 1
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("Error: worker"))
    assert told == "Error: worker w could not be started: name taken, w"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ([], 2, "which scheduler?"),
        (["odd://x"], 2, "cannot read odd://x as a scheduler's address"),
        (["a:1", "--scheduler-file", "s.json"], 2, "exclude each other"),
        (["a:1", "--gpus", "0,x"], 2, "cannot read '0,x' as GPUs"),
        (["a:1", "--gpus", "0"], 2, "--gpus 0 asks for no GPU: use --cpu"),
        (["a:1", "--gpus", "1", "--cpu"], 2, "--cpu and --gpus exclude each other"),
        (["a:1", "--gpus", "98,99"], 1, "no such GPU: 98, 99"),
        (["a:1", "--cpu", "--pool", "rmm"], 2, "--pool rmm has no meaning for CPU workers"),
        (["a:1", "--pool", "odd"], 2, "--pool odd is none of"),
        (["a:1", "--pool-size", "much"], 2, "--pool-size cannot be 'much'"),
        (["a:1", "--device-memory-limit", "odd"], 2, "'odd' as a device memory limit"),
        (["a:1", "--device-memory-limit", "1000", "--gpus", "98,99"], 1, "no such GPU: 98, 99"),
        (["a:0"], 2, "cannot read a:0 as a scheduler's address: its port is 0"),
        (["a:99999"], 2, "its port is 99999, not one from 1 to 65535"),
        (["inproc://10.0.0.1/1/2"], 2, "which no other can reach"),
        (["a:1", "--memory-limit", "odd"], 2, "cannot read 'odd' as a memory limit"),
        (["a:1", "--cpu", "--workers", "0"], 2, "at least one worker"),
        (["a:1", "--workers", "many"], 2, "cannot read --workers 'many'"),
        (
            ["a:1", "--threads", "-1"],
            2,
            "the number of threads cannot be -1: write a whole number",
        ),
        (["a:1", "--cpu", "--workers", "2", "--no-nanny"], 2, "--no-nanny runs one worker"),
        (["a:1", "--worker-port", "x"], 2, "cannot read --worker-port 'x'"),
        (["a:1", "--cpu", "--workers", "2", "--nanny-port", "1"], 2, "Not enough ports"),
        (["a:1", "--interface", "eth99"], 2, "'eth99' is not a valid network interface"),
        (["a:1", "--protocol", "odd"], 2, "unknown address scheme 'odd'"),
        (["a:1", "--resources", "GPU"], 2, "cannot read 'GPU' in --resources"),
        (["a:1", "--resources", "A=1,B=nan"], 2, "cannot read 'B=nan' in --resources"),
        (["a:1", "--resources", "A=-1"], 2, "cannot read 'A=-1' in --resources"),
        (["a:1", "--resources", "=1"], 2, "cannot read '=1' in --resources"),
        (["a:1", "--death-timeout", "soon"], 2, "--death-timeout cannot be 'soon'"),
        (["a:1", "--lifetime", "-1"], 2, "--lifetime cannot be '-1'"),
        (["a:1", "--listen-address", "x"], 2, "cannot read --listen-address x"),
        (["a:1", "--contact-address", "tcp://b:1"], 2, "needs --listen-address"),
        (["a:1", "--pid-file", "no/such"], 2, "cannot write --pid-file no/such"),
        (["a:1", "--frob"], 2, "No such option '--frob'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flag_is_named(flags: list[str], code: int, message: str) -> None:
    done = call("worker", *flags)
    assert message in done.stderr
    assert done.exit_code == code
    assert done.stderr.count("Error: ") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--worker-port"],
        ["--nanny-port"],
        ["--no-nanny", "--worker-port"],
        ["--worker-port", "0", "--nanny-port"],
        ["--listen-address"],
    ],
    ids=" ".join,
)
def test_port_that_is_taken_is_named_before_anything_starts(flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        own = flags[-1] == "--listen-address"
        place = [f"tcp://127.0.0.1:{port}"] if own else [str(port), "--host", "127.0.0.1"]
        done = call("worker", "127.0.0.1:1", "--cpu", "--workers", "1", *flags, *place)
    told = f"Error: port {port} of 127.0.0.1 is taken: choose another by {flags[-1]} (0 for any"
    assert told in done.stderr
    assert done.exit_code == 1


def test_scheduler_file_that_holds_no_address_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["worker", "--cpu", "--scheduler-file", "s.json", "--death-timeout", "0.1"]
    Path("s.json").write_text("")
    done = call(*flags)
    assert "the scheduler file s.json held no address within 0.1 s" in done.stderr
    assert done.exit_code == 1
    Path("s.json").write_text('{"address": 5}')
    done = call(*flags)
    assert "the scheduler file s.json: cannot read 5 as a scheduler's address" in done.stderr
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["a:1", "--worker-class", "os.path"], 2, "--worker-class os.path is not a subclass"),
        (["a:1", "--worker-class", "no.such"], 2, "cannot import --worker-class no.such"),
        (["a:1", "--preload", "no_such"], 2, "cannot load --preload no_such"),
        (["tls://a:1"], 2, "tls://a:1 needs certificates"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flag_is_named_by_the_process(
    gpusched: Runner, flags: list[str], code: int, message: str
) -> None:
    done = gpusched("worker", *flags)
    assert message in done.stderr
    assert done.returncode == code
    assert done.stderr.count("Error: ") == 1
    assert "Traceback" not in done.stderr


def test_encrypted_connections(gpusched: Runner) -> None:
    pytest.importorskip("cryptography")
    from distributed.security import Security

    made = Security.temporary()
    contents = {"ca": made.tls_ca_file, "cert": made.tls_worker_cert, "key": made.tls_worker_key}
    for name, content in contents.items():
        (gpusched.folder / name).write_text(str(content))
    (gpusched.folder / "key").chmod(0o600)
    flags = ["--tls-ca-file", "ca", "--tls-cert", "cert", "--tls-key", "key"]
    head, address = started(gpusched, "--protocol", "tls", *flags)
    assert address.startswith("tls://")
    # The flags say that the connection is encrypted, so the address need not.
    process = gpusched.start("worker", address.removeprefix("tls://"), *CPU, *flags)
    with Client(address, security=made, set_as_default=False) as client:
        assert next(iter(joined(client, 1))).startswith("tls://")
    for one in (process, head):
        one.send_signal(signal.SIGTERM)
        one.communicate(timeout=PATIENCE)
        assert one.returncode == 0
