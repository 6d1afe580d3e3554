"""``gpusched run``: an unchanged dask script, on a cluster made for it, with fusion on."""

from __future__ import annotations

from typing import Any

import click
import dask.config

from gpusched.cli.errors import Unusable
from gpusched.cli.options import read_gpus
from gpusched.cli.scheduler_connection import certificate_settings, scheduler_flags
from gpusched.cli.types import MEMORY_LIMIT, count, output_file


@click.command(
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module's name, as in python -m.")
@click.option("--gpus", metavar="N|all|0,2", help="A number of GPUs, all, or their positions.")
@click.option("--cpu", is_flag=True, help="CPU workers, even where there are GPUs.")
@click.option("--workers", type=count(1), metavar="N", help="Number of worker processes.")
@click.option("--threads", type=count(1), metavar="N", help="Threads of each worker.")
@click.option(
    "--memory-limit",
    type=MEMORY_LIMIT,
    metavar="SIZE",
    help="Host memory of each worker, as in '4 GiB'.",
)
@click.option("--local", is_flag=True, help="Everything in one process, without sockets.")
@scheduler_flags
@click.option(
    "--fuse/--no-fuse", default=None, help="Whether chunk tasks run fused.  [default: --fuse]"
)
@click.option("--show-config", is_flag=True, help="Print the settings and run nothing.")
@click.option(
    "--profile",
    type=output_file(".html", ".json"),
    metavar="PATH",
    help="Write a profile: out.html to look at, or out.json for Perfetto and Chrome.",
)
@click.option("--quiet", is_flag=True, help="No progress and no closing summary.")
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    /,
    script: str | None,
    arguments: tuple[str, ...],
    module: bool,
    local: bool,
    scheduler: str | None,
    show_config: bool,
    profile: str | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Run SCRIPT, an unchanged dask program, with fusion on.

    Starts one worker per GPU on this machine, or CPU workers that share the cores, and stops them
    when the script ends. All options below come before SCRIPT: flags after it are the script's
    own, as with python. The exit code is the script's.
    """
    certificates = {name: flags.pop(name) for name in tuple(flags) if name.startswith("tls")}
    _check_flags(local, scheduler, flags)
    try:
        _check_certificates(scheduler, certificates)
        # For the script's own clients too.
        dask.config.set(_settings(flags) | certificate_settings(certificates))
        if show_config:
            from gpusched.cli.info import show

            click.echo(show(processes=not local, planned=scheduler is None))
            return
        if script is None:
            raise click.UsageError("Missing argument 'SCRIPT'.")
        from gpusched.cli.script_run import launch

        code = launch(script, arguments, module, local, scheduler, quiet, profile)
    except ValueError as error:
        raise Unusable(str(error)) from None
    context.exit(code)


def _check_flags(local: bool, scheduler: str | None, flags: dict[str, Any]) -> None:
    starting = [
        f"--{name.replace('_', '-')}" for name, value in flags.items() if value and name != "fuse"
    ]
    if scheduler is not None and (starting or local):
        clash = [*starting, *(["--local"] if local else [])]
        raise click.UsageError(f"--scheduler starts no workers, so {clash[0]} has no meaning.")
    if local and flags["gpus"]:
        raise click.UsageError("--local starts no process to pin to a GPU; leave out --gpus.")


def _check_certificates(scheduler: str | None, certificates: dict[str, str | None]) -> None:
    given = [name for name, value in certificates.items() if value is not None]
    if given and scheduler is None:
        flag = f"--{given[0].replace('_', '-')}"
        raise ValueError(f"{flag} is for a running cluster: name its scheduler with --scheduler")


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags as settings; flags that were not given leave the configuration alone."""
    settings = {
        "gpusched.cluster.workers": flags["workers"],
        "gpusched.cluster.threads": flags["threads"],
        "gpusched.cluster.memory-limit": flags["memory_limit"],
        "gpusched.cluster.gpus": read_gpus(flags["gpus"], flags["cpu"]),
        "gpusched.fusion.enabled": flags["fuse"],
    }
    return {key: value for key, value in settings.items() if value is not None}
