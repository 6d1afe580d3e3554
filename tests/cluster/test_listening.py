"""Where servers of this machine can listen, and what is said where they cannot."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from gpusched.cluster import Cluster, listening


def refuse(one: socket.socket, place: Any) -> None:
    """Stand in for `bind`, as for users who may not listen on ports below 1024."""
    if 0 < place[1] < 1024:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def taken() -> RuntimeError:
    """Return what distributed raises where a port is taken."""
    error = RuntimeError("Scheduler failed to start.")
    error.__cause__ = OSError(errno.EADDRINUSE, "Address already in use")
    return error


@pytest.mark.parametrize(
    ("port", "host", "told"),
    [
        ("9000", None, "port 9000 is taken: choose another by --port (0 for any that is free)"),
        ("9000,9001", "::1", "port 9000 or 9001 of ::1 is taken: "),
        ("8786", None, "gpusched doctor says which process has it"),
        ("0", "127.0.0.1", "[Errno 98] Address already in use"),
        ("", "127.0.0.1:9000", "[Errno 98] Address already in use"),
    ],
)
def test_port_that_is_taken_is_named(port: str, host: str | None, told: str) -> None:
    assert told in listening.why_not_started(taken(), port, host)


def test_other_causes_are_told_as_they_are() -> None:
    error = RuntimeError("Scheduler failed to start.")
    error.__cause__ = OSError(errno.ENOBUFS, "No buffer space available")
    assert listening.why_not_started(error, "80", None) == "[Errno 105] No buffer space available"
    assert listening.why_not_started(TimeoutError(), "80", None) == "TimeoutError"


def test_port_of_the_administrator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "bind", refuse, raising=False)
    told = "this user may not listen on port 80: choose another by --port (from 1024, or 0 for any"
    error = RuntimeError("Scheduler failed to start.")
    error.__cause__ = PermissionError(errno.EACCES, "Permission denied")
    assert told in listening.why_not_started(error, "80", None)
    with pytest.raises(listening.PortError, match=r"port 80 .*: choose another by --odd"):
        listening.check_free("--odd", "80", "127.0.0.1")
    with pytest.raises(ValueError, match="this user may not listen on its port"):
        listening.check_dashboard_address("dashboard_address", "127.0.0.1:80")


def test_of_a_range_one_port_must_be_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listening.check_dashboard_address("dashboard_address", f"127.0.0.1:{port}")
        with pytest.raises(listening.PortError, match=f"port {port} of tcp.* is taken"):
            listening.check_free("--odd", str(port), "tcp://127.0.0.1")
        with pytest.raises(listening.PortError, match="is taken: choose another by port"):
            Cluster(n_workers=1, gpus=0, port=port)
    with pytest.raises(ValueError, match="IPv6 is not read here"):
        listening.check_dashboard_address("dashboard_address", "[::1]:8787")
    listening.check_free("--odd", None, None)
    listening.check_free("--odd", "1024:65535", "127.0.0.1")
    listening.check_host("host", "tls://")
    listening.check_host("host", "localhost:0")
