"""``gpusched scheduler``: dask's own scheduler, set up for gpusched's workers."""

from __future__ import annotations

import importlib.util
from typing import Any

import click
import dask.config
from click.core import ParameterSource
from distributed.cli import dask_scheduler

from gpusched import __version__
from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.options import (
    adopted,
    certificate_files,
    check_network,
    check_ports,
    check_written,
    tls_flag,
)
from gpusched.quantities import read_seconds

PRELOAD = "gpusched.cluster.scheduler"

_DEPRECATED = {"show": False, "use_xheaders": False}


@click.command(
    params=adopted(dask_scheduler.main, [*_DEPRECATED, "version"]),
    context_settings=dask_scheduler.main.context_settings,
)
@tls_flag
@click.version_option(__version__, prog_name="gpusched")
def scheduler(preload: tuple[str, ...], **flags: Any) -> None:
    """Start a scheduler that workers on any machine can join.

    It is dask's own, and the flags are those of `dask scheduler`. Besides, it refuses workers of
    other versions, says why workers died, and exports gpusched's metrics.
    """
    from gpusched.cluster.listening import why_not_started

    try:
        flags = certificate_files(flags)
        _check(flags)
        run = dask_scheduler.main.callback
        assert run is not None
        run(preload=preloads(preload), **flags, **_DEPRECATED)
    except ValueError as error:
        raise Unusable(str(error)) from None
    except (RuntimeError, OSError) as error:
        # distributed's own says no more than that the scheduler failed to start.
        reason = why_not_started(error, _port(flags), flags["host"])
        raise Failed(f"no scheduler: {reason}") from None


def preloads(given: tuple[str, ...]) -> list[str]:
    """Return what a scheduler loads: gpusched's part, then what was asked for.

    Examples
    --------
    >>> from gpusched.cli.scheduler import preloads
    >>> preloads(("mine.py",))
    ['gpusched.cluster.scheduler', 'mine.py']
    """
    asked = given or dask.config.get("distributed.scheduler.preload")
    return [PRELOAD, *(name for name in asked if name != PRELOAD)]


def _port(flags: dict[str, Any]) -> str:
    """Return the port that dask's command listens on; empty if it is part of the host."""
    return flags["port"] or ("" if ":" in (flags["host"] or "") else "8786")


def _check(flags: dict[str, Any]) -> None:
    from gpusched.cluster.certificates import check_key
    from gpusched.cluster.listening import check_dashboard_address, check_host

    check_network(flags["interface"], flags["protocol"])
    # Its default is empty: a scheduler listens on all addresses unless it is told one.
    given = click.get_current_context().get_parameter_source("host")
    check_host("--host", flags["host"] if given is ParameterSource.COMMANDLINE else None)
    check_dashboard_address("--dashboard-address", flags["dashboard_address"])
    check_key(flags["tls_key"])
    check_written("--pid-file", flags["pid_file"])
    check_written("--scheduler-file", flags["scheduler_file"])
    if flags["jupyter"] and importlib.util.find_spec("jupyter_server") is None:
        raise Failed("--jupyter takes JupyterLab, which is not installed: pip install jupyterlab")
    if flags["idle_timeout"] is not None:
        read_seconds("--idle-timeout", flags["idle_timeout"])
    for port in flags["port"].split(",") if flags["port"] else ():
        check_ports("--port", port)
