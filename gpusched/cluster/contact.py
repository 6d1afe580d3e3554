"""Where the scheduler is, and whether it answers there: asked before any worker starts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed.comm.addressing import parse_address
from distributed.comm.core import connect
from distributed.comm.registry import get_backend
from distributed.core import coerce_to_address, collect_causes, rpc

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
                found = _checked(address, file)
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
        if scheme == "inproc":
            raise ValueError("it is of a cluster within one process, which no other can reach")
        _, port = get_backend(scheme).get_address_host_port(full)
        if not 0 < int(port) < 2**16:
            raise ValueError(f"its port is {port}, not one from 1 to 65535")
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read {address} as a scheduler's address: {error}") from None
    return full


def _checked(address: Any, file: str | None) -> str:
    try:
        return check_address(address)
    except ValueError as error:
        if file is None:
            raise
        raise ValueError(f"the scheduler file {file}: {error}") from None


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
    if found is None and file is not None and Path(file).exists():
        return (
            f"the scheduler file {file} held no address within {patience:g} s, since it is empty "
            f"or not JSON: check that `gpusched scheduler --scheduler-file` writes it"
        )
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
