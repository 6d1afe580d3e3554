"""``gpusched launch``: what runs in a job's allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.types import count, seconds
from gpusched.jobs.systems import NAMES

_PATH = click.Path(path_type=Path)


@click.command(
    "launch",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("--backend", type=click.Choice(NAMES), help="The queueing system whose job this is.")
@click.option("--folder", type=_PATH, help="The job's folder, which all nodes see.")
@click.option("--nodes", type=count(1), default=1, help="Number of local nodes.")
@click.option("--gpus-per-node", type=count(), help="GPUs of each node; 0 for CPU workers.")
@click.option("--limit", type=seconds(0.001), help="How long it may take.")
@click.option("--grace", type=seconds(), default=60.0, help="How long its end may take.")
@click.option("--requeues", type=count(), default=0, help="How often it starts again.")
@click.option("--checkpoints", type=_PATH, help="Where gpusched.checkpoint keeps results.")
@click.option("--kernels", type=_PATH, help="A pack made by gpusched cache export.")
@click.option("--tls", type=_PATH, help="A folder made by gpusched certificates.")
@click.option("--scheduler-options", default="", help="Flags of gpusched scheduler.")
@click.option("--worker-options", default="", help="Flags of gpusched worker.")
@click.option("--run", type=_PATH, help="A new folder that all nodes see, for one node's part.")
@click.option("--rank", type=count(), help="This node's number, from 0.")
@click.option("--address", help="Where the first node's scheduler will be.")
@click.option("--code-to-file", is_flag=True, help="Leave the exit code in RUN/code.")
@click.argument("command", metavar="SCRIPT ...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def launch(context: click.Context, /, command: tuple[str, ...], **flags: Any) -> None:
    """Run SCRIPT on the nodes of a job.

    It starts one worker per GPU on each node, and a scheduler on the first.

    With --backend it starts the part of every node; with --run or --address it is one node's part,
    whose number is --rank or the variable of srun, MPI or Kubernetes. SCRIPT may be followed by its
    arguments, and preceded by flags of gpusched run. The exit code is the script's; 124 says that
    the time was over.
    """
    from gpusched.jobs.launch_options import LaunchOptions

    options = LaunchOptions(command=command, **flags)
    try:
        context.exit(_launch(options))
    except ValueError as error:
        raise Unusable(str(error)) from None


def _launch(options: Any) -> int:
    from gpusched.jobs import head_node, node
    from gpusched.jobs.systems.system import SystemFailure

    script = read_command(options.command)
    if options.backend is not None:
        if options.folder is None or options.run is not None or options.address is not None:
            raise ValueError("--backend needs --folder, and excludes --run and --address")
    elif (options.run is None) == (options.address is None):
        raise ValueError("which job? Give --backend, --run or --address")
    elif options.rank is None:
        options = replace(options, rank=node.rank_here())
    try:
        return node.serve(options, script) if options.backend is None else head_node.lead(options)
    except (SystemFailure, node.NodeError, OSError) as error:
        raise Failed(str(error)) from None


def read_command(command: Sequence[str]) -> str:
    """Check a script with its arguments and flags of `gpusched run`; return its modules' folder.

    Raises `click.UsageError` if it could not be run.

    Examples
    --------
    >>> from gpusched.cli.launch import read_command
    >>> read_command(["--quiet", "/shared/project/script.py", "--n", "3"])
    '/shared/project'
    """
    from gpusched.cli.run import run

    try:
        parsed = run.make_context("gpusched run", list(command)).params
    except click.UsageError as error:
        # Of the command that was typed, with its own usage.
        told = error.format_message().removesuffix(".")
        raise click.UsageError(f"{told}: before the script come options of gpusched run") from None
    if parsed["script"] is None:
        context = click.get_current_context(silent=True)
        typed = context.command_path if context else "gpusched submit"
        raise click.UsageError(f"name a script, after '--': {typed} -- script.py")
    for flag in ("gpus", "cpu", "workers", "threads", "memory_limit", "local", "scheduler"):
        if parsed[flag]:
            raise click.UsageError(
                f"--{flag.replace('_', '-')} before the script has no meaning in a job, which "
                f"starts its workers itself: see --worker-options"
            )
    if parsed["module"]:
        return str(Path.cwd())
    return str(Path(parsed["script"]).absolute().parent)
