"""How commands fail: one message, and an exit code that says whether the use was wrong."""

from __future__ import annotations

import click


class Unusable(click.ClickException):
    """What was typed cannot be carried out on any machine."""

    exit_code = 2


class Failed(click.ClickException):
    """What was typed makes sense and did not work here."""

    exit_code = 1
