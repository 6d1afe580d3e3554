"""``gpusched submit``: a script and its cluster as a job of a queueing system."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.launch import read_command
from gpusched.cli.types import count, size
from gpusched.jobs.systems import NAMES

_PATH = click.Path(path_type=Path)
_PASSED_ON = (
    "nodes",
    "gpus_per_node",
    "cpus",
    "queue",
    "account",
    "options",
    "scheduler_options",
    "worker_options",
    "image",
    "claim",
)
"""Flags that stand in the request as they were given."""


@click.command(
    "submit",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--backend",
    type=click.Choice(NAMES),
    help="The queueing system, or local.  [default: the one whose command is on PATH, else local]",
)
@click.option("--nodes", type=count(1), metavar="N", default=1, show_default=True)
@click.option("--gpus-per-node", type=count(), metavar="N", help="0 for CPU workers.")
@click.option("--cpus-per-node", "cpus", type=count(1), metavar="N", help="Cores of each node.")
@click.option(
    "--memory-per-node", "memory", type=size(64 << 20), metavar="SIZE", help="As in '200 GiB'."
)
@click.option("--time", default="1h", show_default=True, help="As in 90m, 2h or 01:30:00.")
@click.option(
    "--grace",
    default="2m",
    show_default=True,
    help="How long before its end the job is asked to stop: the script first, then its cluster.",
)
@click.option("--requeue", is_flag=True, help="Start again if out of time, or if a node fails.")
@click.option("--checkpoints", type=_PATH, help="Where gpusched.checkpoint keeps results.")
@click.option("--kernels", type=_PATH, help="Import a pack of gpusched cache export on each node.")
@click.option("--name", help="The job's name.  [default: the script's]")
@click.option("--queue", help="The queue, which Slurm calls partition.")
@click.option("--account", help="Who is charged.")
@click.option("--option", "options", multiple=True, metavar="FLAG", help="One of the system's own.")
@click.option("--tls", type=_PATH, help="Encrypt: a folder made by gpusched certificates.")
@click.option("--worker-options", default="", metavar="FLAGS", help="Of gpusched worker.")
@click.option("--scheduler-options", default="", metavar="FLAGS", help="Of gpusched scheduler.")
@click.option("--directory", type=_PATH, help="Where the script runs.  [default: here]")
@click.option("--python", help="The nodes' interpreter.  [default: this one]")
@click.option("--image", help="On Kubernetes, a container image with gpusched.")
@click.option("--claim", metavar="NAME:PATH", help="On Kubernetes, a volume that all pods see.")
@click.option("--dry-run", is_flag=True, help="Print what would be submitted.")
@click.option("--wait", is_flag=True, help="Print the log, and end with the script's exit code.")
@click.argument("command", metavar="-- SCRIPT ...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    context: click.Context, /, command: tuple[str, ...], dry_run: bool, wait: bool, **flags: Any
) -> None:
    """Run SCRIPT with workers on the nodes of a queueing system.

    It starts one worker per GPU on each node, and on the first also the scheduler and the script,
    whose Client() finds the scheduler. SCRIPT may be followed by its arguments, and preceded by
    flags of gpusched run. The job ends with the script, and with its exit code.

    Ctrl-C while --wait waits cancels the job.
    """
    from gpusched.jobs import systems

    try:
        request = _request(command, flags)
        if dry_run:
            click.echo(systems.find(request.backend).script(request), nl=False)
            return
    except ValueError as error:
        raise Unusable(str(error)) from None
    context.exit(_submit(request, wait))


def _submit(request: Any, wait: bool) -> int:
    from gpusched.cli.jobs import wait_for
    from gpusched.files import UnsafeFolderError
    from gpusched.jobs import submitted
    from gpusched.jobs.systems.system import SystemFailure

    try:
        job = submitted.submit(request)
    except (SystemFailure, UnsafeFolderError, OSError) as error:
        raise Failed(str(error)) from None
    click.echo(f"job {job.identity} is submitted", err=wait)
    if wait:
        return wait_for(job)
    click.echo(f"  its log    gpusched jobs logs --follow {job.identity}")
    click.echo(f"  end it     gpusched jobs cancel {job.identity}")
    return 0


def _request(command: tuple[str, ...], flags: dict[str, Any]) -> Any:
    from gpusched import config
    from gpusched.jobs import submitted, systems
    from gpusched.jobs.request import Request, read_time

    _check_command(command, flags["directory"])
    for name in ("scheduler", "worker"):
        check_options(name, flags[f"{name}_options"])
    backend = flags["backend"] or systems.installed()
    _check_folders(backend, flags)
    request = Request(
        command=command,
        backend=backend,
        name=flags["name"] or _name(command),
        seconds=read_time("--time", flags["time"]),
        grace=read_time("--grace", flags["grace"]),
        root=submitted.root(),
        directory=(flags["directory"] or Path.cwd()).absolute(),
        python=flags["python"] or sys.executable,
        memory=flags["memory"],
        requeues=config.get("jobs.requeues") if flags["requeue"] else 0,
        checkpoints=None if flags["checkpoints"] is None else flags["checkpoints"].absolute(),
        kernels=None if flags["kernels"] is None else flags["kernels"].absolute(),
        # On Kubernetes it is no folder, but the name of a Secret.
        tls=flags["tls"] if backend == "k8s" or not flags["tls"] else flags["tls"].absolute(),
        **{name: flags[name] for name in _PASSED_ON},
    )
    return systems.find(backend).settled(request)


def check_options(name: str, options: str) -> None:
    """Check flags that the scheduler or the workers of a job are to get.

    Raises `click.UsageError` if the command has no such flags.
    """
    from gpusched.cli import main

    try:
        words = shlex.split(options)
    except ValueError as error:
        raise click.UsageError(f"cannot read --{name}-options {options!r}: {error}") from None
    command = main.get_command(click.Context(main), name)
    assert command is not None
    try:
        command.make_context(name, words)
    except click.exceptions.Exit:
        raise click.UsageError(f"--{name}-options {options!r} starts nothing") from None
    except click.UsageError as error:
        raise click.UsageError(f"--{name}-options {options!r}: {error.message}") from None


def _check_command(command: tuple[str, ...], directory: Path | None) -> None:
    from gpusched.cli.run import run

    read_command(command)
    parsed = run.make_context("gpusched run", list(command)).params
    # A folder that was named may be one that only the nodes see.
    if directory is None and not parsed["module"]:
        script = Path(parsed["script"])
        if not script.is_file():
            raise Unusable(f"there is no script {script}")


def _check_folders(backend: str, flags: dict[str, Any]) -> None:
    """Refuse what a local job could not use; warn of what only the nodes could have."""
    if backend == "k8s":
        return
    folders = [name for name in ("directory", "tls") if flags[name] and not flags[name].is_dir()]
    missing = [f"--{name} {flags[name]} is not a folder of this machine" for name in folders]
    if flags["kernels"] and not flags["kernels"].is_file():
        missing.append(f"--kernels {flags['kernels']} is not a file of this machine")
    elif flags["kernels"]:
        _check_pack(flags["kernels"])
    if flags["python"] and shutil.which(flags["python"]) is None:
        missing.append(f"--python {flags['python']} is not a program of this machine")
    for each in missing:
        if backend == "local":
            raise ValueError(each)
        click.echo(f"Warning: {each}: make sure that the nodes have it", err=True)


def _check_pack(file: Path) -> None:
    """Refuse now what the nodes would refuse when the job has come out of the queue."""
    from gpusched.cli import packs

    try:
        packs.read(file)
    except packs.PackError as error:
        raise Unusable(f"--kernels: {error}") from None


def _name(command: tuple[str, ...]) -> str:
    from gpusched.cli.run import run

    script = run.make_context("gpusched run", list(command)).params["script"]
    plain = re.sub(r"[^A-Za-z0-9]+", "-", Path(script).stem).strip("-")
    return plain[:63].lower() or "gpusched"
