"""The ``gpusched`` command: one file a subcommand, each imported when it is called."""

from __future__ import annotations

import click

from gpusched import __version__
from gpusched.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpusched")
def main() -> None:
    """Run dask.array programs with one generated kernel per chunk."""


main.add_command(run)
