"""``gpusched cluster``: named clusters on this machine that go on in the background."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from dask.utils import format_bytes, format_time

from gpusched import quantities
from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.options import read_gpus
from gpusched.cli.types import DEVICE_MEMORY_LIMIT, MEMORY_LIMIT, count, seconds
from gpusched.rendering.text import aligned

if TYPE_CHECKING:
    from gpusched.cluster.named.state import Record

_ALIVE = "running", "not answering"
"""States of a cluster whose manager lives, whether or not workers have joined it."""

NOT_RUNNING = 3
"""Exit code of ``status`` for a cluster that does not run, as systemctl's."""


_HEADINGS: tuple[str, ...] = (
    "NAME",
    "STATE",
    "WORKERS",
    "THREADS",
    "MEMORY",
    "UP",
    "ADDRESS",
)


@click.group("cluster")
def cluster() -> None:
    """Start, show, scale and stop named clusters.

    A cluster outlives the command that starts it. Without a name, it is called "default".
    """


name_argument = click.argument("name", default="default", required=False)


@cluster.command()
@name_argument
@click.option("--gpus", metavar="N|all|0,2", help="A number of GPUs, all, or a list of them.")
@click.option("--cpu", is_flag=True, help="CPU workers, even where there are GPUs.")
@click.option("--workers", type=count(), metavar="N", help="Number of workers.")
@click.option("--threads", type=count(1), metavar="N", help="Threads of each worker.")
@click.option(
    "--memory-limit", type=MEMORY_LIMIT, metavar="SIZE", help="Host memory of each worker."
)
@click.option(
    "--device-memory-limit",
    type=DEVICE_MEMORY_LIMIT,
    metavar="SIZE",
    help="What results may take of a GPU.",
)
@click.option("--pool", help="Where GPU memory comes from: none, cupy, async or rmm.")
@click.option("--pool-size", metavar="SIZE", help="The pool's bytes.")
@click.option("--pin/--no-pin", default=None, help="Bind workers to cores.")
@click.option("--fuse/--no-fuse", default=None, help="Whether chunk tasks run fused.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=count(0, 65535), metavar="N", help="The scheduler's port.")
@click.option(
    "--dashboard-address",
    metavar="ADDRESS",
    help="Where to show the dashboard.  [default: any local port]",
)
@click.option(
    "--tls",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Encrypt connections with the certificates in this folder (gpusched certificates).",
)
def start(name: str, gpus: str | None, cpu: bool, **flags: Any) -> None:
    """Start a cluster called NAME and return when it is up."""
    from gpusched.cluster.certificates import check_complete
    from gpusched.cluster.listening import check_dashboard_address, check_host
    from gpusched.cluster.named import commands

    renamed = {"workers": "n_workers", "threads": "threads_per_worker"}
    arguments = {renamed.get(k, k): v for k, v in flags.items() if v is not None}
    os.getcwd()  # Its workers start there: an error here if it was removed.
    with _told():
        check_host("--host", flags["host"])
        if flags["dashboard_address"] is not None:
            check_dashboard_address("--dashboard-address", flags["dashboard_address"])
        if flags["tls"] is not None:
            check_complete(flags["tls"])
        request = read_gpus(gpus, cpu)
        if request is not None:
            arguments["gpus"] = request
        record = commands.start(name, arguments)
    click.echo(f"cluster {name!r} is up")
    click.echo("\n".join(_connecting(record)))


@cluster.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def status(context: click.Context, name: str | None, as_json: bool) -> None:
    """Show how cluster NAME is, or all clusters.

    Exits with 3 where NAME does not run.
    """
    from gpusched.cluster.named import commands, state

    with _told(missing=NOT_RUNNING):
        found = [commands.status(each) for each in ([name] if name else state.names())]
    if as_json:
        told = [_plain(each) for each in found]
        click.echo(json.dumps(told[0] if name else told, indent=2))
    else:
        click.echo(_details(found[0]) if name else _table(found))
    if name and found[0].state != "running":
        context.exit(NOT_RUNNING)


@cluster.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def list_clusters(context: click.Context, as_json: bool) -> None:
    """Show all clusters, as status does without a name."""
    context.invoke(status, name=None, as_json=as_json)


@cluster.command()
@click.argument("name")
@click.argument("workers", type=count())
@click.option(
    "--timeout", type=seconds(), default="60s", show_default=True, help="How long to wait for them."
)
def scale(name: str, workers: int, timeout: float) -> None:
    """Change the number of workers of cluster NAME, and wait for them."""
    from gpusched.cluster.named import commands

    with _told():
        present = commands.scale(name, workers, timeout)
    has = f"cluster {name!r} has {quantities.count(present, 'worker')}"
    if present != workers:
        raise Failed(f"{has} after {timeout:g} s, not {workers}")
    click.echo(has)


@cluster.command()
@name_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the cluster ends, or Ctrl-C.")
def logs(name: str, follow: bool) -> None:
    """Print the log of cluster NAME, its workers' messages included."""
    from gpusched.cluster.named import commands, state

    with _told():
        path = commands.log_of(name)
        if not path.exists():
            raise Failed(f"cluster {name!r} has written nothing yet")
    with path.open(errors="replace") as file:
        while True:
            click.echo(file.read(), nl=False)
            if not follow or not state.is_alive(path.parent):
                break
            time.sleep(0.2)


@cluster.command()
@name_argument
@click.option("--all", "everything", is_flag=True, help="Stop every cluster of this user.")
@click.option(
    "--timeout",
    type=seconds(),
    default="30s",
    show_default=True,
    help="How long it may take before it is killed.",
)
def stop(name: str, everything: bool, timeout: float) -> None:
    """Stop cluster NAME; kill it if it does not stop in time."""
    from gpusched.cluster.named import commands, state

    with _told():
        for each in state.names() if everything else [name]:
            click.echo(f"cluster {each!r} {commands.stop(each, timeout)}")


@contextmanager
def _told(missing: int = 1) -> Iterator[None]:
    """Turn what may go wrong into a message and an exit code."""
    from gpusched.cluster.named import commands, control, state

    try:
        yield
    except ValueError as error:
        raise Unusable(str(error)) from None
    except state.UnknownClusterError as error:
        click.echo(f"Error: {error.args[0]}", err=True)
        raise click.exceptions.Exit(missing) from None
    except (commands.StartError, control.ControlError, OSError) as error:
        raise Failed(str(error)) from None


def _connecting(record: Record) -> Iterator[str]:
    """Yield lines that say how programs use a cluster; each command works as it is printed."""
    yield f"  scheduler  {record.address}"
    if record.dashboard:
        yield f"  dashboard  {record.dashboard}"
    security, flag = "", ""
    if record.tls:
        yield "  in Python  from gpusched.cluster import certificates"
        security = f", security=certificates.load({record.tls!r})"
        flag = f" --tls {shlex.quote(record.tls)}"
    yield f"  {'' if record.tls else 'in Python':<10} Client({record.address!r}{security})"
    yield f"  a script   gpusched run --scheduler {record.address}{flag} SCRIPT"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _plain(status: Any) -> dict[str, Any]:
    record = status.record
    return {
        "name": status.name,
        "state": status.state,
        "problem": status.problem or None,
        "address": record.address if record else None,
        "dashboard": record.dashboard or None if record else None,
        "tls": record.tls or None if record else None,
        "pid": record.pid if record else None,
        "started": record.started if record else None,
        "requested_workers": status.requested,
        "workers": status.workers,
    }


def _table(found: list[Any]) -> str:
    if not found:
        return "no clusters; start one with: gpusched cluster start"
    rows = [_HEADINGS, *(_row(each) for each in found)]
    problems = [f"{each.name}: {each.problem}" for each in found if each.problem]
    return "\n".join([aligned(rows), *problems])


def _row(status: Any) -> tuple[str, ...]:
    workers, record = status.workers, status.record
    return (
        status.name,
        status.state,
        f"{len(workers)}/{status.requested}" if status.state == "running" else "-",
        str(sum(worker["threads"] for worker in workers)),
        format_bytes(sum(worker["memory"] for worker in workers)),
        format_time(time.time() - record.started) if record and status.state in _ALIVE else "-",
        record.address if record else "-",
    )


def _details(status: Any) -> str:
    lines = [_table([status])]
    if status.record and status.state == "running":
        lines += _connecting(status.record)
    for worker in status.workers:
        used, limit = format_bytes(worker["memory"]), format_bytes(worker["memory_limit"])
        lines.append(
            f"  worker {worker['name']}  {worker['status']}  {_threads(worker['threads'])}  "
            f"{used} of {limit}  {worker['address']}"
        )
    return "\n".join(lines)
