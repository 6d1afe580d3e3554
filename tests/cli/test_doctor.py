"""``gpusched doctor``: each fault it knows is made, and must be found with its remedy."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from gpusched import Cluster, installing
from gpusched.cli import checks, doctor
from gpusched.cli.checks import fusion, gpu, resources, skew, wheels
from gpusched.cli.checks.finding import Finding
from gpusched.workers import affinity, nvml
from gpusched.workers.version_check import own_versions
from tests.disks import mounted
from tests.tiers import starts_processes


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpusched", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.processes
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
            patched.setattr(resources, "_PORTS", {port: "scheduler"})
            found = resources.ports()
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


def test_full_disk_for_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> Any:
        # Of Linux: whatever is written there finds no room.
        return os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        found = fusion.kernel_cache()
    assert found.status == "warning"
    assert "No space left on device" in found.text
    assert found.remedy.startswith("free space there, or set gpusched.fusion.cache-directory")


@pytest.mark.processes
def test_small_full_disk_for_kernels(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "64k") as folder:
        (folder / "taken").write_bytes(bytes(2**15))
        with dask.config.set({"gpusched.fusion.cache-directory": str(folder / "kernels")}):
            assert "No space left on device" in fusion.kernel_cache().text


@pytest.mark.processes
def test_program_is_fused_where_kernels_are_compiled_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DASK_GPUSCHED__FUSION__COMPILE", "background")
    assert fusion.program().status == "ok"


@pytest.mark.processes
def test_program_that_fails_is_told() -> None:
    with pytest.MonkeyPatch.context() as patched:
        program = fusion._PROGRAM
        patched.setattr(fusion, "_PROGRAM", "raise RuntimeError('told by the test')")
        assert "RuntimeError: told by the test" in fusion.program().text
        patched.setattr(fusion, "_PROGRAM", program.replace("found = ", "np.sin = abs; found = "))
        assert "numpy.sin is not NumPy's" in fusion.program().text


def test_spill_folder_in_memory_or_missing(tmp_path: Path) -> None:
    with dask.config.set({"temporary-directory": "/dev/shm"}):
        assert "is in memory" in resources.spill_folder().text
    with dask.config.set({"temporary-directory": "/dev/shm/no/such"}):
        assert "is in memory" in resources.spill_folder().text
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "under"):
        with dask.config.set({"temporary-directory": str(path)}):
            found = resources.spill_folder()
        assert found.status == "failure"
        assert str(path) in found.text
        assert f"{tmp_path / 'file'} is not a folder that can be written" in found.text


def test_spill_folder_is_the_one_that_workers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of ``TMPDIR`` that is missing is made by nobody."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert "missing" not in resources.spill_folder().text


def test_spill_folder_that_workers_will_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_is_memory", lambda folder: False)
    monkeypatch.setattr(resources, "_LITTLE_SPACE", 0)
    missing = tmp_path / "not" / "yet"
    with dask.config.set({"temporary-directory": str(missing)}):
        found = resources.spill_folder()
        assert found.status == "ok"
        assert f"{missing} (made when needed), " in found.text
        assert not missing.parent.exists()
        with Cluster(1, 1, gpus=0) as cluster, Client(cluster) as client:
            (used,) = client.run(lambda dask_worker: dask_worker.local_directory).values()
    assert Path(used).is_relative_to(missing)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 512))
    assert resources.open_files().status == "warning"
    assert "ulimit -v" in resources.memory_limit().text
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.setattr(resources, "MEMORY_LIMIT", 2**28)
    assert "workers share only 256.00 MiB" in resources.memory_limit().text


def test_loopback_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", fail)
    found = resources.loopback()
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
    monkeypatch.setattr(gpu, "has_hardware", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = gpu.driver()
    assert found.status == status
    assert told in found.text


@pytest.mark.parametrize(
    ("visible", "status", "told"),
    [("", "skipped", "hides every GPU"), ("7", "failure", "CUDA_VISIBLE_DEVICES=7 names none")],
)
def test_hidden_gpus(monkeypatch: pytest.MonkeyPatch, visible: str, status: str, told: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(100))
    monkeypatch.setattr(gpu, "has_hardware", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = gpu.driver()
    assert found.status == status
    assert told in found.text


def test_driver_of_an_image_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(803))
    monkeypatch.setattr(gpu, "has_hardware", lambda: False)
    assert gpu.driver().status == "skipped"


@pytest.mark.parametrize(
    ("packages", "driver", "told"),
    [
        ({"cupy-cuda12x": "14.0", "cupy-cuda13x": "14.0"}, (13, 0), "CuPy is installed 2 times"),
        ({"cupy-cuda12x": "14.0", "cuda-bindings": "13.5.0"}, (13, 0), "different CUDA versions"),
        ({"cupy-cuda13x": "14.0"}, (12, 9), "the driver runs CUDA up to 12.9"),
    ],
)
def test_packages_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], driver: tuple[int, int], told: str
) -> None:
    monkeypatch.setattr(wheels, "_installed", lambda: packages)
    found = wheels.conflict(driver)
    assert found is not None
    assert found.status == "failure"
    assert told in found.text
    assert found.remedy
    monkeypatch.setattr(wheels, "_installed", lambda: {"numpy": "2.0", "cupy-cuda12x": "14.0"})
    assert wheels.conflict((12, 9)) is None


@pytest.mark.processes
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
    assert installing.command("cuda13") in found.remedy

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


@pytest.fixture
@starts_processes
def plain_cluster() -> Iterator[str]:
    """Yield the address of a cluster that knows nothing of gpusched."""
    with LocalCluster(
        1, host="tcp://127.0.0.1", processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def test_versions_of_a_cluster(plain_cluster: str) -> None:
    found = skew.versions(plain_cluster)
    assert (found.status, found.text) == (
        "ok",
        "those of the scheduler and of 1 worker are this machine's",
    )


def test_versions_that_differ_are_named(
    plain_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skew, "own_versions", lambda: {**own_versions(), "dask": "0.1"})
    found = skew.versions(plain_cluster)
    assert found.status == "failure"
    for where in (f"at the scheduler {plain_cluster}", "at the worker tcp://127.0.0.1:"):
        assert f"dask is 0.1 here and {dask.__version__} {where}" in found.text


def test_own_workers_have_told_their_versions() -> None:
    with Cluster(1, 1, gpus=0) as cluster:
        found = skew.versions(cluster.scheduler_address)
    assert found.status == "ok"


@pytest.mark.processes
def test_scheduler_that_does_not_answer_is_a_failure() -> None:
    done = run("--scheduler", "tcp://127.0.0.1:1", DASK_GPUSCHED__RUN__CONNECT_TIMEOUT="1s")
    assert done.returncode == 1
    assert "no scheduler answered at tcp://127.0.0.1:1" in done.stdout
