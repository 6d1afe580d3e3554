"""The ``gpusched`` command: one file a subcommand, each imported when it is called."""

from __future__ import annotations

import difflib
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
    "cache": "gpusched.cli.kernelcache:cache",
    "info": "gpusched.cli.info:info",
    "doctor": "gpusched.cli.doctor:doctor",
    "scheduler": "gpusched.cli.scheduler:scheduler",
    "worker": "gpusched.cli.worker:worker",
    "certificates": "gpusched.cli.certificates:certificates",
}
"""Where each subcommand is defined."""

REPORTING = ("info", "doctor")
"""Subcommands that run with settings that cannot be used, to report them."""


class LazyGroup(click.Group):
    """A group of commands that imports the one that is called, or all of them for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, in the order of the table."""
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that is called; what is mistyped gets a suggestion."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand, or None if there is no such one."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group("gpusched", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpusched")
@click.pass_context
def main(context: click.Context) -> None:
    """Run dask.array programs with one generated kernel per chunk, here and on clusters."""
    if context.invoked_subcommand in REPORTING:
        return
    from gpusched import settings

    try:
        settings.check()
    except settings.SettingError as error:
        context.fail(str(error))
