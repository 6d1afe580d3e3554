"""A running scheduler, asked by a command that must end whatever does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import click
import dask.config

from gpusched.cli.options import certificate_files, tls_flag

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Answer = TypeVar("_Answer")

_FILE = click.Path(exists=True, dir_okay=False)
_FLAGS = (
    tls_flag,
    click.option("--tls-ca-file", type=_FILE, help="The authority that signed its certificate."),
    click.option("--tls-cert", type=_FILE, help="This machine's certificate."),
    click.option("--tls-key", type=_FILE, help="The key of that certificate."),
)

_FILES = {
    "tls_ca_file": "distributed.comm.tls.ca-file",
    "tls_cert": "distributed.comm.tls.client.cert",
    "tls_key": "distributed.comm.tls.client.key",
}
"""dask's settings by the flags that give them."""


def scheduler_flags(function: _Function) -> _Function:
    """Add the options that name a running scheduler and its certificates; a decorator.

    Examples
    --------
    >>> import click
    >>> from gpusched.cli.scheduler_connection import scheduler_flags
    >>> @click.command()
    ... @scheduler_flags
    ... def look(**flags):
    ...     pass
    >>> [parameter.name for parameter in look.params]
    ['scheduler', 'tls', 'tls_ca_file', 'tls_cert', 'tls_key']
    """
    for option in reversed(_FLAGS):
        function = option(function)
    return click.option("--scheduler", metavar="ADDRESS", help="A running cluster's scheduler.")(
        function
    )


def ask(
    address: str,
    question: Callable[[Any, float], Awaitable[_Answer]],
    certificates: Mapping[str, str | None] | None = None,
) -> _Answer:
    """Connect to a scheduler, and return the answer to a question.

    Raises `ValueError` if the address or the certificates cannot be used;
    `gpusched.cluster.contact.NoSchedulerError` if no scheduler answers there in time.

    Parameters
    ----------
    address
        The scheduler's.
    question
        Gets the connection (`distributed.core.rpc`) and the seconds that an answer may take, which
        are those of the setting ``run.connect-timeout``.
    certificates
        Files and folder by the flags' names; without any, dask's configuration says which.

    Examples
    --------
    >>> from gpusched.cli.scheduler_connection import ask, describe
    >>> ask("somewhere", describe)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: cannot read somewhere as a scheduler's address: missing port number ...
    """
    with dask.config.set(certificate_settings(certificates or {})):
        return asyncio.run(_ask(address, question, client_connection()))


async def describe(scheduler: Any, seconds: float) -> dict[str, Any]:
    """Return what a scheduler says of itself and of its workers; a question for `ask`.

    Examples
    --------
    >>> from distributed import LocalCluster
    >>> from gpusched.cli.scheduler_connection import ask, describe
    >>> with LocalCluster(1, host="tcp://127.0.0.1", processes=False,
    ...                   dashboard_address=None) as cluster:
    ...     len(ask(cluster.scheduler_address, describe)["workers"])
    1
    """
    async with asyncio.timeout(seconds):
        found: dict[str, Any] = await scheduler.identity(n_workers=-1)
        return found


def certificate_settings(certificates: Mapping[str, str | None]) -> dict[str, Any]:
    """Return dask's settings for the certificates that flags name.

    Raises `ValueError` if both a folder and a file are named.

    Examples
    --------
    >>> from gpusched.cli.scheduler_connection import certificate_settings
    >>> certificate_settings({"tls_ca_file": "ca.pem", "tls_cert": None, "tls": None})
    {'distributed.comm.tls.ca-file': 'ca.pem'}
    """
    from gpusched.cluster.certificates import settings

    given = certificate_files(dict(certificates))
    if certificates.get("tls") is not None:
        return dict(settings(str(certificates["tls"])))
    return {setting: path for flag, setting in _FILES.items() if (path := given.get(flag))}


def client_connection() -> dict[str, Any]:
    """Return what a connection takes that is encrypted as dask's configuration says.

    Raises `ValueError` if the certificates cannot be used.
    """
    from distributed.security import Security

    try:
        found: dict[str, Any] = Security().get_connection_args("client")
    except OSError as error:
        # Also what the ssl module raises of a file that holds no certificate.
        names = [dask.config.get(setting, None) for setting in _FILES.values()]
        files = ", ".join(filter(None, names))
        raise ValueError(f"cannot use the certificates ({files}): {error}") from None
    return found


async def _ask(
    address: str,
    question: Callable[[Any, float], Awaitable[_Answer]],
    connection: dict[str, Any],
) -> _Answer:
    from dask.utils import parse_timedelta
    from distributed.core import rpc

    from gpusched import config
    from gpusched.cluster.contact import NoSchedulerError, find_scheduler

    seconds = parse_timedelta(config.get("run.connect-timeout"))
    found = await find_scheduler(address, None, connection, seconds)
    try:
        async with rpc(found, connection_args=connection, timeout=seconds) as scheduler:
            return await question(scheduler, seconds)
    except (OSError, TimeoutError) as error:
        told = str(error) or f"it took longer than {seconds:g} s"
        raise NoSchedulerError(f"the scheduler at {found} stopped answering: {told}") from None
