"""The ``gpusched`` command: one file a subcommand, each imported when it is called."""

from __future__ import annotations

import importlib

import click

from gpusched import __version__

COMMANDS = {
    "run": "gpusched.cli.run:run",
    "submit": "gpusched.cli.submit:submit",
    "jobs": "gpusched.cli.jobs:jobs",
    "launch": "gpusched.cli.node:launch",
    "explain": "gpusched.cli.explain:explain",
    "cluster": "gpusched.cli.cluster:cluster",
    "info": "gpusched.cli.info:info",
    "doctor": "gpusched.cli.doctor:doctor",
    "scheduler": "gpusched.cli.scheduler:scheduler",
    "worker": "gpusched.cli.worker:worker",
    "certificates": "gpusched.cli.certificates:certificates",
}
"""Where each subcommand is defined."""


class LazyGroup(click.Group):
    """A group of commands that imports the one that is called, or all of them for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand, or None if there is no such one."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group("gpusched", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpusched")
def main() -> None:
    """Run dask.array programs with one generated kernel per chunk, here and on clusters."""
