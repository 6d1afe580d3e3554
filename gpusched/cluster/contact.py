"""Where the scheduler is, and whether it answers there: asked before any worker starts."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from pathlib import Path
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed.comm.addressing import parse_address
from distributed.comm.core import connect
from distributed.comm.registry import get_backend
from distributed.core import coerce_to_address, collect_causes, rpc
from distributed.utils import clean_dashboard_address

_ATTEMPT = 5.0
"""Seconds given to one attempt, after which a scheduler file is read again."""
_PAUSE = 0.1
"""Seconds between two looks at a scheduler file."""
_GONE = 5.0
"""Seconds without a connection after which a scheduler that did answer has ended."""


class NoSchedulerError(RuntimeError):
    """No scheduler answers where one should be."""


async def find_scheduler(
    address: str | None,
    file: str | None,
    connection: dict[str, Any],
    timeout: float | None = None,
) -> str:
    """Wait until a scheduler answers, and return its address.

    Raises `ValueError` if the address, or the file, cannot be read; `NoSchedulerError` if no
    scheduler answers in time.

    Parameters
    ----------
    address
        Where it should be; ignored if there is a file.
    file
        The file that the scheduler writes its address to. It may appear later, and one that an
        earlier scheduler has left is read again until the address in it answers.
    connection
        What connecting takes, as of `distributed.Security.get_connection_args`.
    timeout
        Seconds to wait for the file and the answer. None waits for the file forever, and for the
        answer as long as ``distributed.comm.timeouts.connect`` says.

    Examples
    --------
    >>> import asyncio
    >>> from gpusched.cluster.contact import find_scheduler
    >>> asyncio.run(find_scheduler("somewhere", None, {}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: cannot read somewhere as a scheduler's address: missing port number ...
    """
    patience = timeout or parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    found, problem = None, ""
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(timeout) as limit:
            while True:
                address = address if file is None else await _read(Path(file))
                if found is None and timeout is None:
                    limit.reschedule(clock() + patience)
                found = check_address(address)
                _check_encryption(found, connection)
                try:
                    return await _ask(found, connection, min(_ATTEMPT, patience / 2))
                except OSError as error:
                    problem = _reason(error) or problem
                    await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise NoSchedulerError(_missing(found, file, patience, problem)) from None


async def wait_until_gone(address: str, connection: dict[str, Any]) -> None:
    """Return when a scheduler that did answer has ended, or cannot be reached any more.

    Parameters
    ----------
    address
        The scheduler's.
    connection
        What connecting takes, as of `distributed.Security.get_connection_args`.
    """
    # A busy one may take as long to answer at first as dask allows it.
    patience = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    while True:
        try:
            comm = await connect(address, timeout=patience, **connection)
        except (OSError, TimeoutError):
            return
        try:
            # Nothing is asked, so that nothing comes but the connection's end.
            await comm.read()
        except OSError:
            patience = _GONE
        finally:
            comm.abort()


def check_host(host: str | None) -> None:
    """Refuse an empty address to listen on, which would be all of this machine's.

    Raises `ValueError` if it is empty.

    Examples
    --------
    >>> from gpusched.cluster.contact import check_host
    >>> check_host("127.0.0.1")
    >>> check_host("")
    Traceback (most recent call last):
        ...
    ValueError: the host to listen on is empty, as an unset variable may be: name an address such \
as 127.0.0.1, or 0.0.0.0 to let every machine of the network connect
    """
    if host is not None and not host.strip():
        raise ValueError(
            "the host to listen on is empty, as an unset variable may be: name an address such as "
            "127.0.0.1, or 0.0.0.0 to let every machine of the network connect"
        )


def check_dashboard_address(address: Any) -> None:
    """Refuse what is not an address to show a dashboard at.

    Raises `ValueError` if it cannot be read, or its host is not known.

    Examples
    --------
    >>> from gpusched.cluster.contact import check_dashboard_address
    >>> check_dashboard_address("127.0.0.1:8787")
    >>> check_dashboard_address("127.0.0.1:dashboard")
    Traceback (most recent call last):
        ...
    ValueError: dashboard_address cannot be '127.0.0.1:dashboard' (its port is not a whole number)\
: write an address such as ':8787' or '127.0.0.1:8787', or False for no dashboard
    """
    told = ""
    try:
        for each in clean_dashboard_address(address):
            if not 0 <= each["port"] < 2**16:
                told = "its port is not one from 0 to 65535"
            elif each["address"]:
                told = why_unknown(each["address"])
    except (NameError, TypeError, ValueError):  # A name that distributed has not assigned.
        told = "its port is not a whole number"
    if told:
        raise ValueError(
            f"dashboard_address cannot be {address!r} ({told}): write an address such as ':8787' "
            "or '127.0.0.1:8787', or False for no dashboard"
        )


def why_unknown(host: str) -> str:
    """Return why a host has no address; empty if it has one.

    Examples
    --------
    >>> from gpusched.cluster.contact import why_unknown
    >>> why_unknown("127.0.0.1"), why_unknown("tcp://[::1]")
    ('', '')
    """
    try:
        socket.getaddrinfo(host.rpartition("://")[2].strip("[]"), None)
    except OSError as error:
        return f"{host}: {error.strerror}"
    return ""


def check_address(address: Any) -> str:
    """Return a scheduler's address in full.

    Raises `ValueError` if it cannot be read.

    Examples
    --------
    >>> from gpusched.cluster.contact import check_address
    >>> check_address("10.0.0.1:8786")
    'tcp://10.0.0.1:8786'
    """
    try:
        full: str = coerce_to_address(address)
        scheme, _ = parse_address(full)
        get_backend(scheme).get_address_host_port(full)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read {address} as a scheduler's address: {error}") from None
    return full


def why_not_started(error: BaseException, port: str, host: str | None) -> str:
    """Return why a scheduler did not start: the first cause, or that its port is taken.

    Parameters
    ----------
    error
        What starting it raised.
    port, host
        What it was to listen on; the port is empty where it is not known, or 0.

    Examples
    --------
    >>> import errno, os
    >>> from gpusched.cluster.contact import why_not_started
    >>> error = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    >>> why_not_started(error, "9000", "127.0.0.1")
    'port 9000 of 127.0.0.1 is taken: choose another by --port (0 for any that is free)'
    """
    causes = [error, *collect_causes(error)]
    taken = any(isinstance(each, OSError) and each.errno == errno.EADDRINUSE for each in causes)
    if not taken or port in ("", "0"):
        return str(causes[-1]) or type(causes[-1]).__name__
    where = f"port {port.replace(',', ' or ')}" + (f" of {host}" if host else "")
    doctor = "; gpusched doctor says which process has it" if port in ("8786", "8787") else ""
    return f"{where} is taken: choose another by --port (0 for any that is free){doctor}"


async def _read(file: Path) -> Any:
    while True:
        try:
            told = json.loads(file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            # Not there yet, or being written.
            await asyncio.sleep(_PAUSE)
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the scheduler file {file}: {error}") from None
        if not isinstance(told, dict) or "address" not in told:
            raise ValueError(f"{file} is not a scheduler file: it holds no address")
        return told["address"]


def _check_encryption(address: str, connection: dict[str, Any]) -> None:
    if address.startswith(("tls://", "wss://")) and connection.get("ssl_context") is None:
        raise ValueError(
            f"{address} needs certificates: name their folder with --tls (or the files with "
            f"--tls-ca-file, --tls-cert and --tls-key), or set distributed.comm.tls in dask's "
            f"configuration"
        )


async def _ask(address: str, connection: dict[str, Any], patience: float) -> str:
    # Connecting gives up before the answer does, to tell why it could not.
    async with (
        asyncio.timeout(patience),
        rpc(address, connection_args=connection, timeout=0.8 * patience) as server,
    ):
        kind = (await server.identity())["type"]
    if "Scheduler" not in kind:
        what = next((word for word in ("Worker", "Nanny") if word in kind), kind)
        raise NoSchedulerError(f"at {address} there is a {what.lower()}, not a scheduler")
    return address


def _reason(error: BaseException) -> str:
    return str([error, *collect_causes(error)][-1])


def _missing(found: str | None, file: str | None, patience: float, problem: str) -> str:
    if found is None:
        return (
            f"there was no scheduler file {file} within {patience:g} s: check that "
            f"`gpusched scheduler --scheduler-file` runs with the same file in a shared folder"
        )
    told = f" ({problem})" if problem else ""
    return (
        f"no scheduler answered at {found} within {patience:g} s{told}: check that "
        f"`gpusched scheduler` runs there and that this machine reaches it"
    )
