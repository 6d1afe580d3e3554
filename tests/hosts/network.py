"""Hosts on one machine: network namespaces, each with an address and a link to a common switch.

The switch is a bridge in a namespace of its own, so nothing of it meets the machine's own networks,
addresses and firewall, and all of it disappears with the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.kernelsettings import KERNELS
from tests.waiting import PATIENCE, kill_all, wait_for

SUBNET = "10.231.77"
PREFIX = "gpusched-test"
LINK = "eth0"
"""The hosts' interface."""


class CannotMakeHostsError(RuntimeError):
    """This machine does not let us make network namespaces."""


def program() -> str:
    """Return where ``ip`` is."""
    found = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise CannotMakeHostsError("there is no command ip (Debian's package iproute2)")
    return found


def ip(*arguments: str) -> str:
    """Run ``ip`` and return what it prints."""
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise CannotMakeHostsError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """A network namespace with one address."""

    def __init__(self, namespace: str, address: str) -> None:
        self.namespace = namespace
        self.address = address

    def command(self, *arguments: str) -> list[str]:
        """Return a command line that runs a command on this host, under the same process id."""
        return [program(), "netns", "exec", self.namespace, *arguments]

    def unplug(self) -> None:
        """Take the link down: nothing arrives any more, and nobody is told."""
        ip("-n", self.namespace, "link", "set", LINK, "down")

    def plug(self) -> None:
        """Take the link up, with its route to everywhere."""
        ip("-n", self.namespace, "link", "set", LINK, "up")
        ip("-n", self.namespace, "route", "replace", "default", "dev", LINK)

    def processes(self) -> list[psutil.Process]:
        """Return what runs on this host."""
        found = []
        for pid in ip("netns", "pids", self.namespace).split():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found


class Network:
    """Some hosts, and the switch that they hang on."""

    def __init__(self, hosts: int) -> None:
        self.prefix = f"{PREFIX}-{os.getpid()}-"
        self.switch = f"{self.prefix}switch"
        self.hosts = [
            Host(f"{self.prefix}{number}", f"{SUBNET}.{number}") for number in range(1, hosts + 1)
        ]

    def open(self) -> None:
        """Make the hosts; those of earlier runs that were killed are removed first."""
        remove_abandoned()
        remove(self.prefix)
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            ip("-n", self.switch, "link", "set", "switch", "up")
            for host in self.hosts:
                self._attach(host)
        except CannotMakeHostsError:
            self.close()
            raise

    def _attach(self, host: Host) -> None:
        port = f"port{host.namespace.rpartition('-')[2]}"
        ip("netns", "add", host.namespace)
        peer = ("peer", "name", LINK, "netns", host.namespace)
        ip("-n", self.switch, "link", "add", port, "type", "veth", *peer)
        ip("-n", self.switch, "link", "set", port, "master", "switch", "up")
        ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", LINK)
        ip("-n", host.namespace, "link", "set", "lo", "up")
        host.plug()

    def close(self) -> None:
        """Remove the hosts, and what runs on them."""
        remove(self.prefix)


def namespaces() -> list[str]:
    """Return the names of all network namespaces."""
    return [line.split()[0] for line in ip("netns", "list").splitlines()]


def remove(prefix: str) -> None:
    """Remove the namespaces whose names begin so, and kill what runs in them."""
    for name in namespaces():
        if name.startswith(prefix):
            try:
                for process in Host(name, "").processes():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                ip("netns", "delete", name)
            except (CannotMakeHostsError, psutil.NoSuchProcess):
                # Other tests that run at the same time may remove what was abandoned.
                if name in namespaces():
                    raise


def remove_abandoned() -> None:
    """Remove the namespaces of test runs that are no more."""
    for name in namespaces():
        found = re.fullmatch(rf"({PREFIX}-(\d+)-)\w+", name)
        if found and not psutil.pid_exists(int(found[2])):
            remove(found[1])


class Site:
    """Starts commands on hosts, with a folder that all of them share."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        self.logs: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DASK_")},
            **KERNELS,
            "PYTHONUNBUFFERED": "1",
        }

    def popen(
        self, host: Host, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Running:
        """Start Python on a host, as the leader of its own group of processes."""
        log = self.folder / f"{len(self.logs)}-{host.address}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                host.command(sys.executable, *arguments),
                cwd=self.folder,
                env=self.environment | dict(environment or {}),
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        self.logs.append((" ".join(arguments), process, log))
        return Running(process, log)

    def told(self) -> str:
        """Return all that was written, for the report of a test that fails."""
        return "\n".join(f"--- {what} ---\n{log.read_text()}" for what, _, log in self.logs)

    def close(self) -> None:
        """Kill what still runs on the hosts, and take all links up."""
        for host in self.network.hosts:
            kill_all(host.processes())
            host.plug()
        for _, process, _ in self.logs:
            process.wait(PATIENCE)


class Running:
    """A command on a host."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def output(self) -> str:
        return self.log.read_text()

    def wait_for_line(self, part: str) -> str:
        """Wait until the command has written a line with some text, and return the line."""

        def line() -> str | None:
            ended = self.process.poll()
            found = [line for line in self.output().splitlines() if part in line]
            assert found or ended is None, f"ended with {ended}:\n{self.output()}"
            return found[0] if found else None

        return str(wait_for(line))

    def end(self) -> str:
        """Wait until the command has ended well, and return its output."""
        code = self.process.wait(PATIENCE)
        assert code == 0, self.output()
        return self.output()
