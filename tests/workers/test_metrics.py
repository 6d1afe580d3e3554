"""What workers report: in heartbeats, on their own /metrics pages, and in the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import dask.array as da
import msgpack
import pytest
from distributed import Client, LocalCluster
from prometheus_client.parser import text_string_to_metric_families

import gpusched
from gpusched.store.statistics import reset_statistics, statistics, updating
from gpusched.workers import metrics
from gpusched.workers.metrics import METRICS, collect, sampler, snapshot
from gpusched.workers.metrics.metric_table import INFORMATION, INFORMATION_MEANING, LABELS
from gpusched.workers.metrics.sampler import Sampler
from tests.waiting import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
UUID = "GPU-8f6d2a3c-1b2c-4d5e-8f90-123456789abc"
SPILL = {"device_bytes": 5, "disk_bytes": 7, "written_bytes": 11, "read_bytes": 13, "lost": 1}


@dataclass
class Sample:
    """What NVML says, as `gpusched.workers.nvml.GpuSample`."""

    memory_used: int | None = 1 << 30
    memory_total: int | None = 80 << 30
    utilization: float | None = 50
    temperature: float | None = 61
    power: float | None = 300.5


@dataclass
class Device:
    uuid: str = UUID
    name: str = "NVIDIA H200"
    kind: str = "cuda"
    memory_limit: int = 40 << 30
    lent: int = 3 << 30

    def used(self) -> int:
        return self.lent

    def held(self) -> int:
        return self.lent + 1


@dataclass
class Recoveries:
    out_of_memory: int = 3
    retried: int = 2
    recovered: int = 1


class Results(dict[Any, Any]):
    """A worker's results, which say what was spilled."""

    def metrics(self) -> dict[str, float]:
        return dict(SPILL)


class Admission:
    """What tasks are started by, which says what it has reserved."""

    def metrics(self) -> dict[str, Any]:
        keys = [metric.key for metric in METRICS if metric.section == "memory"]
        return {**dict.fromkeys(keys, 2**30), "reason": "running tasks"}


@dataclass
class Worker:
    admission: Admission = field(default_factory=Admission)
    device: Device = field(default_factory=Device)
    data: Results = field(default_factory=Results)
    recoveries: Recoveries = field(default_factory=Recoveries)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sample]:
    """Give the samples that NVML answers with, at once."""
    samples = {UUID: Sample()}
    now = Sampler(ask=samples.__getitem__, start=lambda work: work())
    now.latest(UUID)
    monkeypatch.setattr(snapshot, "_sampler", now)
    return samples


def test_every_number_of_the_table_is_told(nvml: dict[str, Sample]) -> None:
    told = collect(Worker())
    listed = {(metric.section, metric.key) for metric in METRICS}
    labels = {("device", key) for key in ("uuid", "name", "kind")} | {("memory", "reason")}
    assert {(section, key) for section, values in told.items() for key in values} == listed | labels
    assert told["device"] == {
        "uuid": UUID, "name": "NVIDIA H200", "kind": "cuda", "memory_used": 3 << 30,
        "memory_limit": 40 << 30, "pool_held": (3 << 30) + 1, "utilization": 50,
        "temperature": 61, "power": 300.5,
    }  # fmt: skip
    assert told["spill"] == SPILL
    assert told["memory_errors"] == {"out_of_memory": 3, "retried": 2, "recovered": 1}


def test_numbers_are_small_and_plain(nvml: dict[str, Sample]) -> None:
    worker = Worker(device=Device(lent=2**45), recoveries=Recoveries(10**9, 10**9, 10**9))
    packed = msgpack.packb(collect(worker))
    assert len(packed) < 1024
    assert msgpack.unpackb(packed) == collect(worker)


def test_what_is_not_known_is_left_out(nvml: dict[str, Sample]) -> None:
    nvml[UUID] = Sample(utilization=None, temperature=None, power=None)
    snapshot._sampler._asked.clear()
    collect(Worker())
    assert not {"utilization", "temperature", "power"} & set(collect(Worker())["device"])
    assert set(collect(SimpleNamespace(data={}))) == {"kernels", "policies"}


def test_host_is_not_looked_for_in_nvml(nvml: dict[str, Sample]) -> None:
    told = collect(Worker(device=Device(uuid="", name="host", kind="cpu")))
    assert told["device"]["kind"] == "cpu"
    assert "temperature" not in told["device"]


def test_section_that_fails_costs_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, nvml: dict[str, Sample]
) -> None:
    monkeypatch.setattr(snapshot, "_failed", set())
    worker = Worker(device=SimpleNamespace(uuid=UUID))
    assert "device" not in collect(worker)
    assert {"spill", "memory", "kernels", "memory_errors", "policies"} == set(collect(worker))
    assert caplog.text.count("the metrics of device cannot be read") == 1


def test_kernels_are_those_of_the_statistics() -> None:
    reset_statistics()
    with updating() as total:
        total.tasks, total.fused_tasks, total.launches = 5, 4, 3
        total.kernel_seconds, total.compilations, total.compile_seconds = 0.5, 2, 1.5
        total.kernels.update({"add": 2, "mul": 1})
        total.kernels_loaded, total.kernels_received, total.kernels_waited = 7, 8, 9
        total.kernels_unshared.update({"a damaged file": 2, "another worker took too long": 1})
        total.buffers_made, total.buffers_reused = 10, 11
        total.unfused_tasks, total.unfused_seconds = 1, 0.25
        total.device_tasks, total.host_tasks = 12, 13
        total.bytes_to_device, total.bytes_to_host = 14, 15
        total.bytes_between_devices, total.bytes_through_host = 16, 17
    assert collect(object())["kernels"] == {
        "tasks": 5, "fused_tasks": 4, "launches": 3, "seconds": 0.5,
        "compilations": 2, "compile_seconds": 1.5, "distinct": 2,
        "device_tasks": 12, "host_tasks": 13,
        "device_copied_bytes": 14, "host_copied_bytes": 15,
        "between_devices_bytes": 16, "through_host_bytes": 17,
        "loaded": 7, "received": 8, "waited": 9, "unshared": 3,
        "buffers_made": 10, "buffers_reused": 11, "unfused_tasks": 1, "unfused_seconds": 0.25,
    }  # fmt: skip
    reset_statistics()


class Unread(Counter[str]):
    """Kernels that nobody may go through, however few they are."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("collecting would take longer the more kernels there are")

    items = keys = values = copy = __iter__  # type: ignore[assignment]


def test_collecting_is_cheap_however_many_kernels(
    nvml: dict[str, Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    with updating() as total:
        monkeypatch.setattr(total, "kernels", Unread({f"kernel_{i}": 1 for i in range(3)}))
    assert collect(Worker())["kernels"]["distinct"] == 3


@pytest.mark.processes
def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\n"
        "from gpusched.workers.metrics import collect\n"
        "assert collect(object())['kernels']['launches'] == 0\n"
        "heavy = {'numba', 'cupy', 'pynvml', 'prometheus_client'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestSampler:
    """Asked once a second, elsewhere."""

    def setup_method(self) -> None:
        self.time = 100.0
        self.answers: list[Any] = []
        self.works: list[Callable[[], None]] = []
        self.sampler = Sampler(self.ask, self.works.append, lambda: self.time)

    def ask(self, uuid: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def test_answers_at_once_with_what_was_sampled_before(self) -> None:
        self.answers = ["first"]
        assert self.sampler.latest("a") is None
        self.works.pop()()
        assert self.sampler.latest("a") == "first"

    def test_asks_once_a_second_and_gpu(self) -> None:
        self.answers = ["first", "other", "second"]
        for _ in range(3):
            self.sampler.latest("a")
        self.sampler.latest("b")
        assert len(self.works) == 2
        for work in self.works:
            work()
        self.time += sampler.INTERVAL / 2
        assert (self.sampler.latest("a"), self.sampler.latest("b")) == ("first", "other")
        assert len(self.works) == 2
        self.time += sampler.INTERVAL / 2
        assert self.sampler.latest("a") == "first"
        self.works.pop()()
        assert self.sampler.latest("a") == "second"

    def test_a_call_that_hangs_is_not_repeated_and_its_last_answer_expires(self) -> None:
        self.answers = ["first"]
        self.sampler.latest("a")
        self.works.pop()()
        told = []
        for _ in range(12):
            self.time += 1
            told.append(self.sampler.latest("a"))
        assert told == ["first"] * 9 + [None] * 3
        assert len(self.works) == 1

    def test_an_error_is_told_once_and_asked_again(self, caplog: pytest.LogCaptureFixture) -> None:
        self.answers = [OSError("GPU is lost"), OSError("GPU is lost"), "back"]
        told = []
        for _ in range(4):
            told.append(self.sampler.latest("a"))
            self.works.pop()()
            self.time += 1
            if not self.answers:
                break
        assert told == [None, None, None]
        assert self.sampler.latest("a") == "back"
        assert caplog.text.count("NVML reports nothing of a") == 1

    def test_in_a_thread(self) -> None:
        import threading

        asked = threading.Event()
        threads: list[threading.Thread] = []

        def ask(uuid: str) -> str:
            threads.append(threading.current_thread())
            asked.set()
            return uuid

        real = Sampler(ask)
        real.latest("a")
        assert asked.wait(PATIENCE)
        threads[0].join(PATIENCE)
        assert threads[0].daemon
        assert real.latest("a") == "a"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Give a cluster of one plain worker in this process, with a page."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0", data=Results(),
    ) as cluster:  # fmt: skip
        yield cluster


def scrape(port: int) -> dict[str, Any]:
    """Return the families of a page by the names of their samples."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.name not in found or sample.labels != found[sample.name][0].labels
            found.setdefault(sample.name, []).append(sample)
    return found


def fused_run() -> None:
    x = da.ones(100_000, chunks=50_000)
    with gpusched.enable():
        assert float(((x + 1) * 2).sum().compute()) == 400_000


def test_heartbeats_have_the_numbers(cluster: LocalCluster, nvml: dict[str, Sample]) -> None:
    (worker,) = cluster.workers.values()
    worker.device, worker.recoveries = Device(), Recoveries()
    metrics.register(worker)
    with Client(cluster) as client:
        fused_run()
        cluster.sync(worker.heartbeat)
        (told,) = client.sync(client.scheduler.identity)["workers"].values()
    assert told["metrics"]["gpusched"] == collect(worker)
    assert told["metrics"]["gpusched"]["kernels"]["launches"] == statistics().launches > 0


def test_page_of_a_worker(cluster: LocalCluster, nvml: dict[str, Sample]) -> None:
    (worker,) = cluster.workers.values()
    worker.device, worker.recoveries = Device(), Recoveries()
    worker.admission = Admission()
    metrics.register(worker)
    with Client(cluster):
        fused_run()
    page, told = scrape(worker.http_server.port), collect(worker)
    labels = {"uuid": UUID, "worker": "0"}
    for metric in METRICS:
        (sample,) = page[f"gpusched_worker_{metric.name}"]
        assert sample.labels == labels, metric.name
        assert sample.value == pytest.approx(told[metric.section][metric.key] * metric.scale)
    (information,) = page["gpusched_worker_device_info"]
    assert information.labels == {**labels, "kind": "cuda", "device": "NVIDIA H200"}
    assert page["gpusched_worker_device_utilization_ratio"][0].value == 0.5
    assert page["gpusched_worker_kernel_launches_total"][0].value == statistics().launches > 0


def test_page_forgets_a_closed_worker() -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False,
                      dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
                      ) as cluster:  # fmt: skip
        workers = dict(cluster.workers)
        for worker in workers.values():
            metrics.register(worker)
        name = "gpusched_worker_kernel_launches_total"
        port = workers[0].http_server.port
        assert {s.labels["worker"] for s in scrape(port)[name]} == {"0", "1"}
        cluster.sync(workers[1].close)
        assert {s.labels["worker"] for s in scrape(port)[name]} == {"0"}


def register_here(dask_worker: Any) -> int:
    """Register a worker in its own process, and return the port of its page."""
    metrics.register(dask_worker)
    port: int = dask_worker.http_server.port
    return port


@pytest.mark.processes
def test_page_of_a_worker_process() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0",
                     worker_dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        (port,) = client.run(register_here).values()
        fused_run()
        (counted,) = client.run(statistics).values()
        page = scrape(port)
    values = {name: samples[0].value for name, samples in page.items() if "gpusched" in name}
    assert values["gpusched_worker_kernel_launches_total"] == counted.launches > 0
    assert values["gpusched_worker_kernel_seconds_total"] == pytest.approx(counted.kernel_seconds)
    assert values["gpusched_worker_fused_tasks_total"] == counted.fused_tasks == 2
    assert values["gpusched_worker_distinct_kernels"] == len(counted.kernels)
    assert not [name for name in values if name.startswith("gpusched_scheduler")]


@pytest.mark.processes
def test_without_prometheus_heartbeats_go_on() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from distributed import Client, LocalCluster\n"
        "from gpusched.cluster import prometheus\n"
        "from gpusched.workers import metrics\n"
        "assert not prometheus.register()\n"
        "with LocalCluster(n_workers=1, processes=False, dashboard_address=':0') as cluster:\n"
        "    worker = cluster.workers[0]\n"
        "    metrics.register(worker)\n"
        "    cluster.sync(worker.heartbeat)\n"
        "    (state,) = cluster.scheduler.workers.values()\n"
        "    assert state.metrics['gpusched']['kernels']['launches'] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


UNITS = {"bytes": "bytes", "memory": "bytes", "held": "bytes", "seconds": "seconds",
         "temperature": "celsius", "power": "watts", "utilization": "ratio"}  # fmt: skip
"""Words in the heartbeat's keys, and Prometheus's base unit for what has them."""


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric: metrics.Metric) -> None:
    """Source: prometheus.io/docs/practices/naming."""
    name, _, total = metric.name.partition("_total")
    assert (total, name.endswith("_")) == ("", False)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    words = metric.key.split("_") if metric.section != "memory_errors" else []
    units = {UNITS[word] for word in words if word in UNITS}
    assert {name.split("_")[-1]} & set(UNITS.values()) == units


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({(metric.section, metric.key) for metric in METRICS}) == len(METRICS)


INTRODUCTION = f"""\
# Metrics of workers

Made from the code by `GPUSCHED_REGENERATE=1 pytest tests/workers/test_metrics.py`; do not edit.

Each worker of gpusched sends these numbers with its heartbeats, twice a second or less. On the
scheduler they are `workers[address].metrics["gpusched"][section][key]`, and in a client
`client.scheduler_info()["workers"][address]["metrics"]["gpusched"]`. What a worker does not know
is left out: a worker without a GPU has no temperature.

With `pip install '.[metrics]'` in a clone they are also at `/metrics`, in Prometheus's format: on
each worker's page with the prefix `gpusched_worker_`, and for all workers on the scheduler's page
with the prefix `gpusched_scheduler_`. Scrape either; the names differ so that a sum over both
counts nothing twice. The labels of each are `{LABELS[0]}` (the GPU's, empty for a CPU worker) and
`{LABELS[1]}` (its name). Counters start again at 0 when a worker's process does. Kernels are
counted by process, so the workers of an in-process cluster all report the same.

| name for Prometheus | kind | section, key | meaning |
| --- | --- | --- | --- |
"""


def test_metrics_page_is_current() -> None:
    lines = [f"| `{m.name}` | {m.kind} | `{m.section}`, `{m.key}` | {m.meaning} |" for m in METRICS]
    lines.append(
        f"| `{INFORMATION}` | gauge | `device`, `kind` and `name` | {INFORMATION_MEANING} Always "
        f"1; they are its labels `kind` and `device`. |"
    )
    text = INTRODUCTION + "\n".join(lines) + "\n"
    if os.environ.get("GPUSCHED_REGENERATE") == "1":
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "run GPUSCHED_REGENERATE=1 pytest tests/workers"
