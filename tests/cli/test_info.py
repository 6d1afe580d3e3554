"""``gpusched info``: what is told, and where a setting's value is said to come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from distributed import Client

import gpusched
from gpusched import Cluster, config
from gpusched.cli import info as module
from gpusched.installing import DISTRIBUTION
from gpusched.setting_origins import effective_settings
from gpusched.settings import SettingError, check
from gpusched.workers import gpu_topology, nvml
from tests.waiting import PATIENCE


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpusched", "info", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


@pytest.mark.processes
def test_json_has_everything() -> None:
    told = json.loads(run("--json").stdout)
    assert set(told) == {
        "devices", "links", "memory", "versions", "kernel_cache", "settings", "thread_policies"
    }  # fmt: skip
    assert told["versions"][DISTRIBUTION] == gpusched.__version__
    assert 0 < told["memory"]["limit"] <= told["memory"]["total"]
    assert all(device["kind"] in ("cpu", "cuda") for device in told["devices"])


@pytest.mark.processes
def test_text_for_people_says_the_same() -> None:
    done = run()
    assert done.returncode == 0
    for heading in ("Devices", "Host", "Versions", "Settings"):
        assert heading in done.stdout
    assert gpusched.__version__ in done.stdout


@pytest.mark.processes
def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from gpusched.cli.info import collect; collect();"
        "print([m for m in ('cupy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.processes
def test_origin_of_each_setting(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("gpusched: {cluster: {threads: 5, workers: 4}}")
    environment = {"DASK_GPUSCHED__CLUSTER__WORKERS": "7", "DASK_CONFIG": str(tmp_path)}
    told = json.loads(run("--json", **environment).stdout)
    found = {s["name"]: (s["value"], s["origin"]) for s in told["settings"]}
    assert found["gpusched.cluster.workers"] == (7, "DASK_GPUSCHED__CLUSTER__WORKERS")
    assert found["gpusched.cluster.threads"] == (5, str(file))
    assert found["gpusched.worker.pool"] == ("cupy", "default")


@pytest.mark.processes
def test_thread_policies_with_those_of_the_settings() -> None:
    changed = {"DASK_GPUSCHED__THREADSAFE__POLICIES": "{'sqlite3': 'one_thread(each=True)'}"}
    told = json.loads(run("--json", **changed).stdout)["thread_policies"]
    found = {each["library"]: (each["policy"], each["origin"]) for each in told}
    assert found["netCDF4"] == ("lock(hdf5)", "table")
    assert found["sqlite3"] == ("one_thread(each=True)", "settings")
    assert all(each["evidence"] for each in told)
    off = run("--json", DASK_GPUSCHED__THREADSAFE__ENABLED="false")
    assert json.loads(off.stdout)["thread_policies"] == []


def test_value_set_in_python_is_told() -> None:
    with dask.config.set({"gpusched.worker.pool": "none"}):
        found = {setting.name: setting for setting in effective_settings()}
    assert found["gpusched.worker.pool"].value == "none"
    assert found["gpusched.worker.pool"].origin == "set in Python"


def test_names_of_environment_variables_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """These have underscores for hyphens; names that are the user's own stay."""
    variable = "DASK_GPUSCHED__FUSION__MINIMUM_ELEMENTS"
    monkeypatch.setenv(variable, "many")
    with dask.config.set(dask.config.collect_env({variable: "many"})):
        assert config.settings()["gpusched.fusion.minimum-elements"] == "many"
        with pytest.raises(SettingError, match=rf"whole number, 0 or more \(set by {variable}\)"):
            check()
    with dask.config.set({"gpusched.threadsafe.policies": {"my_library": "free()"}}):
        assert "gpusched.threadsafe.policies.my_library" in config.settings()


@pytest.mark.processes
def test_workers_of_a_cluster_with_their_metrics() -> None:
    with Cluster(2, 1, gpus=0) as cluster, Client(cluster):
        told = json.loads(run("--json", "--scheduler", cluster.scheduler_address).stdout)
        shown = run("--scheduler", cluster.scheduler_address)
    assert sorted(worker["name"] for worker in told["workers"]) == ["0", "1"]
    assert all(worker["device"]["kind"] == "cpu" for worker in told["workers"])
    assert all(worker["spill"]["lost"] == 0 for worker in told["workers"])
    table = shown.stdout.partition("Workers\n")[2].splitlines()
    assert table[0].startswith("worker  address"), shown.stderr
    assert [row.split()[0] for row in table[1:3]] == ["0", "1"]
    assert all(
        worker["process_bytes"] > worker["memory"]["held_bytes"] for worker in told["workers"]
    )


@pytest.mark.processes
def test_scheduler_that_does_not_answer() -> None:
    done = run("--scheduler", "tcp://127.0.0.1:1", DASK_GPUSCHED__RUN__CONNECT_TIMEOUT="1s")
    assert done.returncode == 1
    assert "no scheduler answered at tcp://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


FACTS = nvml.GpuFacts(
    index=0,
    uuid="GPU-aaaa",
    name="NVIDIA H200",
    memory_total=150_000_000_000,
    cpus=(0, 1, 2, 8),
    numa_node=0,
    pci_bus_id="0000:17:00.0",
)


def test_gpus_are_shown_with_what_nvml_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = nvml.GpuSample(4_000_000_000, 150_000_000_000, 97, 61, 350.5)
    monkeypatch.setattr("gpusched.workers.visible_gpus.visible_devices", lambda: ["0"])
    monkeypatch.setattr(nvml, "facts", lambda entry: FACTS)
    monkeypatch.setattr(nvml, "sample", lambda uuid: sample)
    shown = module.text(module.collect())
    for told in ("NVIDIA H200", "GPU-aaaa", "cores 0-2,8", "139.70 GiB", "97 %", "61 C", "350 W"):
        assert told in shown


@dataclass
class Library:
    """Three GPUs: the first two have NVLinks between them, the third none."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"bus-{handle}")

    def nvmlDeviceGetTopologyCommonAncestor(self, first: int, second: int) -> int:
        if second == 2:
            raise self.NVMLError
        return 10

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if handle == 2 or link > 5:
            raise self.NVMLError
        return int(link < 4)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return SimpleNamespace(busId=f"bus-{1 - handle}")


def test_links_between_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr(nvml, "session", lambda: nullcontext(Library()))
    assert gpu_topology.links() == [
        gpu_topology.Connection(0, 1, 4, "one PCIe switch"),
        gpu_topology.Connection(0, 2, 0, "unknown"),
        gpu_topology.Connection(1, 2, 0, "unknown"),
    ]
