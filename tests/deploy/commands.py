"""Whether the commands in files of deploy/ are ones that gpusched has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import dask.config

from gpusched.cli import main


def check(arguments: Sequence[str]) -> None:
    """Read a gpusched command, such as ["worker", "--cpu"], without running it.

    Raises
    ------
    click.UsageError
        If there is no such command, flag, or value.
    """
    context = click.Context(main)
    name, command, rest = main.resolve_command(context, list(arguments))
    assert command is not None
    command.make_context(name, rest, resilient_parsing=False)


def expanded(words: Sequence[str], variables: dict[str, str]) -> list[str]:
    """Return words as systemd makes them: $NAME becomes several words, where it has them."""
    made: list[str] = []
    for word in words:
        made += variables[word[1:]].split() if word.startswith("$") else [word]
    return made


def read_environment(text: str) -> dict[str, str]:
    """Return the variables of an environment file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
"""Where tools of the system may be."""


def merged(environment: dict[str, str]) -> dict[str, Any]:
    """Return dask's configuration as a process with these variables has it."""
    return dask.config.merge(dask.config.config, dask.config.collect_env(environment))
