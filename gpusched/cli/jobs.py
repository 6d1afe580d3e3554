"""``gpusched jobs``: the jobs of this user."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from gpusched.cli.errors import Failed, Unusable
from gpusched.rendering.text import aligned

_HEADINGS = ("JOB", "NAME", "STATE", "CODE", "NODES", "SUBMITTED", "COMMAND")


@click.group("jobs")
def jobs() -> None:
    """List, show, cancel and forget jobs of `gpusched submit`."""


@jobs.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_jobs(as_json: bool) -> None:
    """Show all jobs, the newest last."""
    _show(_everything(), as_json)


@jobs.command()
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(job: str | None, as_json: bool) -> None:
    """Show how JOB is, or all jobs."""
    from gpusched.jobs import submitted

    with _told():
        found = _everything() if job is None else [submitted.find(job)]
    _show(found, as_json)


def _everything() -> list[Any]:
    """Return all jobs; what cannot be read of others is said, and keeps nobody from these."""
    from gpusched.jobs.submitted import everything

    found, wrong = everything()
    for error in wrong:
        click.echo(f"gpusched jobs: {error}", err=True)
    return found


def _show(jobs: Iterable[Any], as_json: bool) -> None:
    found = [(job, *_state(job)) for job in jobs]
    if as_json:
        told = [
            {"job": job.identity, "state": state, "code": code} | asdict(job)
            for job, state, code in found
        ]
        click.echo(json.dumps(told, indent=2))
    elif not found:
        click.echo("no jobs; submit one with: gpusched submit -- script.py")
    else:
        click.echo(aligned([_HEADINGS, *(_row(*each) for each in found)]))


@jobs.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job is over, or Ctrl-C.")
def logs(job: str, follow: bool) -> None:
    """Print what JOB has printed."""
    from gpusched.jobs import submitted

    with _told():
        log = submitted.Log(submitted.find(job), _write)
        if follow:
            log.follow()
        else:
            log.show()


@jobs.command()
@click.argument("job")
def cancel(job: str) -> None:
    """Cancel JOB: end its script, workers and scheduler."""
    from gpusched.jobs import submitted

    with _told():
        ended = submitted.cancel(submitted.find(job, damaged=True))
    click.echo(f"job {job} is asked to stop" if ended else f"job {job} was over already")


@jobs.command()
@click.argument("job")
def remove(job: str) -> None:
    """Remove the log and the checkpoints of JOB, which must be over."""
    from gpusched.jobs import submitted

    with _told():
        submitted.remove(submitted.find(job, damaged=True))
    click.echo(f"job {job} is removed")


def wait_for(job: Any) -> int:
    """Print a job's log until it is over, and return its exit code.

    SIGINT and SIGTERM cancel the job, which is waited for all the same.
    """
    from gpusched.cli.signals import stopping_cleanly
    from gpusched.jobs import submitted

    told = None
    with _told():
        log = submitted.Log(job, _write)
        try:
            with stopping_cleanly():
                ended = log.follow()
        except (KeyboardInterrupt, SystemExit) as stop:
            told = stop
            click.echo(f"cancelling job {job.identity}; once more to leave it to itself", err=True)
            submitted.cancel(job)
            ended = log.follow()
    if isinstance(told, SystemExit):
        return int(str(told.code))
    if told is not None:
        return 128 + signal.SIGINT
    if ended.code is None:
        raise Failed(f"job {job.identity} ended without an exit code; its log: {job.log}")
    return ended.code


@contextmanager
def _told() -> Iterator[None]:
    """Turn what may go wrong into a message and an exit code."""
    from gpusched.jobs.submitted import JobError, UnknownJobError
    from gpusched.jobs.systems.system import SystemFailure

    try:
        yield
    except UnknownJobError as error:
        raise Unusable(str(error.args[0])) from None
    except (JobError, SystemFailure) as error:
        raise Failed(str(error)) from None


def _write(text: str) -> None:
    click.echo(text, nl=False)


def _state(job: Any) -> tuple[str, int | None]:
    from gpusched.jobs.submitted import status
    from gpusched.jobs.systems.system import SystemFailure

    try:
        found = status(job)
    except SystemFailure as error:
        click.echo(f"job {job.identity}: {error}", err=True)
        return "unknown", None
    return found.state, found.code


def _row(job: Any, state: str, code: int | None) -> tuple[str, ...]:
    submitted = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.submitted))
    told = "-" if code is None else str(code)
    command = " ".join(job.command)
    return (job.identity, job.name, state, told, str(job.nodes), submitted, command)
