"""The ``gpusched`` command: one file per subcommand, each imported when it is called."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
import sys
from typing import Any

import click

from gpusched import __version__

COMMANDS = {
    "run": "Run SCRIPT, an unchanged dask program, with fusion on.",
    "submit": "Run SCRIPT with workers on the nodes of a queueing system.",
    "jobs": "List, show, cancel and forget jobs of `gpusched submit`.",
    "launch": "Run SCRIPT on the nodes of a job.",
    "explain": "Explain what SCRIPT would compute, without computing it.",
    "cluster": "Start, show, scale and stop named clusters.",
    "cache": "Show, remove, export and import compiled kernels on disk.",
    "info": "Show this machine's devices, versions and settings.",
    "doctor": "Check this machine, and say what is wrong and how to fix it.",
    "scheduler": "Start a scheduler that workers on any machine can join.",
    "worker": "Start workers for SCHEDULER, one per GPU of this machine.",
    "certificates": "Make certificates for a cluster, and print how to use them.",
}
"""The first sentence of each subcommand's help, by which help lists them without importing them."""

REPORTING = ("info", "doctor")
"""Subcommands that run with settings that cannot be used, to report them."""


_UNWRITABLE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
"""Numbers of errors that writing to what is open raises: they name no file."""


def _is_somewhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


class LazyGroup(click.Group):
    """A group of commands that imports the one that is called, and none for its help."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; one message says where output has no room, or the folder is gone."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.filename is None and error.errno in _UNWRITABLE:
                told = f"cannot write: {error.strerror}"
            elif isinstance(error, FileNotFoundError) and not _is_somewhere():
                told = "the current folder was removed: go to another one"
            else:
                raise
            print(f"Error: {told}", file=sys.stderr)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; Ctrl-C ends each in one way, also while it is imported."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            name = " ".join(filter(None, (ctx.info_name, ctx.invoked_subcommand)))
            print(f"{name}: interrupted", file=sys.stderr)
            ctx.exit(128 + signal.SIGINT)

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
        module = importlib.import_module(f"gpusched.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


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
