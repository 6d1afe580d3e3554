"""``gpusched doctor``: each fault it knows is made, and must be found with its remedy."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from gpusched.cli import checks, doctor
from gpusched.cli.checks import fusion, gpu, host, skew
from gpusched.cli.checks.finding import Finding
from gpusched.workers import affinity, nvml


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpusched", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_this_machine_is_well() -> None:
    done = run("--json")
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert list(found) == list(checks.HERE)
    assert [f for f in found.values() if f["status"] == "failure"] == []
    assert done.returncode == 0
    assert found["fused program"]["status"] == "ok"
    assert all(f["remedy"] for f in found.values() if f["status"] in ("warning", "failure"))


def test_failure_is_shown_with_its_remedy_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Finding:
        raise ZeroDivisionError("told by the test")

    wrong = {"first": lambda: Finding.failure("is wrong", "do this"), "second": broken}
    monkeypatch.setattr(checks, "HERE", wrong)
    done = CliRunner().invoke(doctor.doctor, [])
    assert done.exit_code == 1
    assert "FAIL first          is wrong\n                    -> do this\n" in done.output
    assert "the check itself failed: ZeroDivisionError: told by the test" in done.output
    assert "2 of 2 checks failed" in done.output


def test_port_in_use_names_its_holder() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(host, "_PORTS", {port: "scheduler"})
            found = host.ports()
    assert found.status == "warning"
    assert f"{port} (scheduler) by" in found.text
    assert str(os.getpid()) in found.text
    assert "--port" in found.remedy


def test_folder_for_kernels_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "file" / "x")}):
        found = fusion.kernel_cache()
    assert found.status == "warning"
    assert "cannot be written" in found.text
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        assert "in memory only" in fusion.kernel_cache().text


def test_program_that_fails_is_told() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fusion, "_PROGRAM", "raise RuntimeError('told by the test')")
        assert "RuntimeError: told by the test" in fusion.program().text
        patched.setattr(fusion, "_PROGRAM", "print(0)")
        assert fusion.program().status == "failure"


def test_spill_folder_in_memory_or_missing(tmp_path: Path) -> None:
    with dask.config.set({"temporary-directory": "/dev/shm"}):
        assert "lies in memory" in host.spill_folder().text
    with dask.config.set({"temporary-directory": str(tmp_path / "missing")}):
        assert host.spill_folder().status == "failure"


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 512))
    assert host.open_files().status == "warning"
    assert "ulimit -v" in host.memory_limit().text
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.setattr(host, "MEMORY_LIMIT", 2**28)
    assert "workers share only 256.00 MiB" in host.memory_limit().text


def test_loopback_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", fail)
    found = host.loopback()
    assert found.status == "failure"
    assert "ip link set lo up" in found.remedy


class Driver:
    """`libcuda` with a state."""

    def __init__(self, status: int = 0, count: int = 2) -> None:
        self.status, self.count = status, count

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13000
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.count
        return 0


@pytest.mark.parametrize(
    ("driver", "status", "told"),
    [
        (Driver(), "ok", "2 GPUs, CUDA up to 13.0"),
        (Driver(803), "failure", "different versions"),
        (Driver(4242), "failure", "4242"),
        (Driver(count=0), "failure", "shows no GPU"),
    ],
)
def test_driver(monkeypatch: pytest.MonkeyPatch, driver: Driver, status: str, told: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    found = gpu.driver()
    assert found.status == status
    assert told in found.text


def test_gpu_without_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(gpu, "has_hardware", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu.driver().status == "failure"
    monkeypatch.setattr(gpu, "_IMPORTS", 'print(\'{"cupy": [false, "ImportError: no"]}\')')
    found = gpu.packages()
    assert found.status == "failure"
    assert "cupy (ImportError: no)" in found.text
    assert "gpusched[cuda13]" in found.remedy

    @contextmanager
    def nothing() -> Any:
        yield None

    monkeypatch.setattr(nvml, "session", nothing)
    assert gpu.nvml().status == "warning"


def test_gpu_far_from_the_allowed_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "visible_devices", lambda: ["0"])
    monkeypatch.setattr(nvml, "facts", lambda entry: SimpleNamespace(cpus=(1000, 1001)))
    found = gpu.pinning()
    assert found.status == "warning"
    assert "GPU 0 is near cores 1000-1001" in found.text
    monkeypatch.setattr(affinity, "pin", lambda cpus: "EPERM")
    assert "cannot bind to cores: EPERM" in gpu.pinning().text


def test_versions_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(1, processes=False, dashboard_address=None) as cluster, Client(cluster):
        monkeypatch.setattr(skew, "Client", lambda *a, **k: Client(cluster, set_as_default=False))
        assert skew.versions("inproc://x").status == "ok"
        monkeypatch.setattr(skew, "own_versions", lambda: {"dask": "0.1"})
        found = skew.versions("inproc://x")
    assert found.status in ("ok", "failure")


def test_versions_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def __enter__(self) -> Other:
            return self

        def __exit__(self, *error: object) -> None: ...

        def run_on_scheduler(self, function: Any) -> dict[str, str]:
            return {**function(), "dask": "2026.7.1"}

        def run(self, function: Any, on_error: str) -> dict[str, Any]:
            return {"tcp://w:1": ImportError("No module named 'gpusched'")}

    monkeypatch.setattr(skew, "Client", lambda *a, **k: Other())
    found = skew.versions("tcp://s:1")
    assert found.status == "failure"
    assert f"dask is {dask.__version__} here and 2026.7.1 at the scheduler tcp://s:1" in found.text
    assert "at the worker tcp://w:1: No module named 'gpusched'" in found.text


def test_scheduler_that_does_not_answer_is_a_failure() -> None:
    done = run("--scheduler", "tcp://127.0.0.1:1", DASK_GPUSCHED__RUN__CONNECT_TIMEOUT="1s")
    assert done.returncode == 1
    assert "no scheduler answers at tcp://127.0.0.1:1" in done.stdout
