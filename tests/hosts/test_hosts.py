"""A scheduler, workers and a client, each on a host of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gpusched.cluster.certificates import create
from gpusched.installing import DISTRIBUTION
from tests.waiting import PATIENCE, address_in, wait_for

from .network import Host, Network, Running, Site, namespaces, remove_abandoned

# A lost host is noticed within seconds, so that the test is quick; not in less than a busy
# machine may take to answer.
QUICK = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",
}

# Each worker is given one half, so chunks have to move for the sum.
SUM = """
import json, sys
import dask.array as da
from distributed import Client, wait
from gpusched.cluster import certificates

def heard_from(dask_worker):
    return sorted({entry["who"] for entry in dask_worker.transfer_incoming_log})

security = certificates.load(sys.argv[2]) if len(sys.argv) > 2 else None
with Client(scheduler_file=sys.argv[1], security=security) as client:
    client.wait_for_workers(2, timeout=120)
    workers = sorted(client.sync(client.scheduler.identity)["workers"])
    halves = [da.arange(1_000_000, chunks=100_000, dtype="i8") + i for i in range(2)]
    halves = [client.persist(x, workers=[w]) for x, w in zip(halves, workers)]
    wait(halves)
    print("sum", int((halves[0] * halves[1]).sum().compute()))
    print("scheduler", client.scheduler.address)
    for worker, others in client.run(heard_from).items():
        print("worker", worker, *others)
"""


def start_scheduler(site: Site, host: Host, *flags: str) -> Running:
    own = ("scheduler", "--no-dashboard", "--scheduler-file", "scheduler.json")
    running = site.popen(host, ["-m", "gpusched", *own, *flags])
    address_in(site.folder / "scheduler.json")
    return running


def start_worker(site: Site, host: Host, *flags: str, **environment: str) -> Running:
    own = ("worker", "--scheduler-file", "scheduler.json", "--cpu", "--threads", "1")
    local = ("--no-dashboard", "--local-directory", str(site.folder / f"scratch-{host.address}"))
    return site.popen(host, ["-m", "gpusched", *own, *local, *flags], environment)


def start_client(site: Site, host: Host, script: str, *arguments: str) -> Running:
    (site.folder / "client.py").write_text(script)
    return site.popen(host, ["client.py", "scheduler.json", *arguments])


def lines(output: str, what: str) -> list[list[str]]:
    """Return the words after the first in the lines that begin so."""
    return [line.split()[1:] for line in output.splitlines() if line.startswith(f"{what} ")]


def address_of(place: str) -> str:
    return place.rpartition(":")[0]


def check_sum(output: str, network: Network, protocol: str) -> None:
    first, second, third = (f"{protocol}://{host.address}" for host in network.hosts[:3])
    assert lines(output, "sum") == [[str(sum(i * (i + 1) for i in range(1_000_000)))]]
    assert [address_of(one) for [one] in lines(output, "scheduler")] == [first]
    heard = {address_of(one): set(map(address_of, rest)) for one, *rest in lines(output, "worker")}
    assert heard.keys() == {second, third}
    assert heard[second] | heard[third]


def test_chunks_move_between_hosts(site: Site, network: Network) -> None:
    one, two, three, four = network.hosts
    start_scheduler(site, one)
    start_worker(site, two)
    start_worker(site, three)
    check_sum(start_client(site, four, SUM).end(), network, "tcp")


def test_chunks_move_between_hosts_encrypted(site: Site, network: Network) -> None:
    one, two, three, four = network.hosts
    folder = site.folder / "certificates"
    create(folder, [host.address for host in network.hosts])
    files = {"--tls-ca-file": "ca.pem", "--tls-cert": "cert.pem", "--tls-key": "key.pem"}
    flags = [part for flag, name in files.items() for part in (flag, str(folder / name))]
    start_scheduler(site, one, "--protocol", "tls", *flags)
    start_worker(site, two, *flags)
    start_worker(site, three, *flags)
    check_sum(start_client(site, four, SUM, str(folder)).end(), network, "tls")


# Tasks wait until the test has cut the link; each of the hosts holds part of what they take.
GATED = """
import os, sys, time
import dask.array as da
from distributed import Client, get_worker, wait

def wait_at_gate(chunk):
    open("at-gate-" + get_worker().address.split("/")[2].split(":")[0], "w").close()
    while not os.path.exists("gate-is-open"):
        time.sleep(0.01)
    return chunk

with Client(scheduler_file=sys.argv[1]) as client:
    client.wait_for_workers(2, timeout=120)
    x = client.persist(da.arange(1_000_000, chunks=50_000, dtype="i8").reshape(1000, 1000))
    wait(x)
    print("holding", *sorted(w for w, keys in client.has_what().items() if keys))
    print("sum", int((x + x.T).map_blocks(wait_at_gate, dtype="i8").sum().compute()))
"""


@pytest.mark.exhaustive
def test_lost_host_is_made_up_for(site: Site, network: Network) -> None:
    site.environment |= QUICK
    one, two, three, four = network.hosts
    start_scheduler(site, one)
    start_worker(site, two)
    lost = start_worker(site, three)
    client = start_client(site, four, GATED)
    for host in (two, three):
        wait_for((site.folder / f"at-gate-{host.address}").exists)
    three.unplug()
    (site.folder / "gate-is-open").touch()
    output = client.end()
    assert lines(output, "sum") == [[str(999_999 * 1_000_000)]]
    assert len(lines(output, "holding")[0]) == 2
    # Cut off from the scheduler for as long as the TCP timeout says, the worker's host gives up.
    lost.end()
    wait_for(lambda: not three.processes())


@pytest.mark.exhaustive
@pytest.mark.parametrize("package", [DISTRIBUTION, "lz4"])
def test_worker_of_another_version_is_refused(site: Site, network: Network, package: str) -> None:
    one, two, three, _ = network.hosts
    # Python finds these versions before the installed ones.
    told = site.folder / "other" / f"{package.replace('-', '_')}-99.0.dist-info" / "METADATA"
    told.parent.mkdir(parents=True)
    told.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 99.0\n")
    scheduler = start_scheduler(site, one)
    worker = start_worker(site, two, PYTHONPATH=str(told.parents[1]))
    assert worker.process.wait(PATIENCE) == 1
    for output in (worker.output(), scheduler.output()):
        assert re.search(rf"{package} is {version(package)} here and 99\.0 there", output), output
        assert "Install the same versions on all machines" in output
    start_worker(site, three)
    scheduler.wait_for_line(f"Register worker addr: tcp://{three.address}")
    assert f"Register worker addr: tcp://{two.address}" not in scheduler.output()
    wait_for(lambda: not two.processes())


ABANDON = """
import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from tests.hosts.network import Network, namespaces
made = Network(hosts=1)
made.open()
subprocess.Popen(made.hosts[0].command("cat"), stdin=subprocess.PIPE,
                 stdout=subprocess.DEVNULL)
print(*(name for name in namespaces() if name.startswith(made.prefix)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_hosts_of_a_killed_run_are_removed(network: Network) -> None:
    code = [sys.executable, "-c", ABANDON, str(Path(__file__).parents[2])]
    done = subprocess.run(code, stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    left = set(done.stdout.split())
    assert len(left) == 2
    remove_abandoned()
    assert not left & set(namespaces())
    assert {host.namespace for host in network.hosts} < set(namespaces())
