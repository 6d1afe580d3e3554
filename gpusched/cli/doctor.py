"""``gpusched doctor``: what could go wrong here, and what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from gpusched.cli.scheduler_connection import scheduler_flags

_MARKS = {"ok": "ok  ", "warning": "WARN", "failure": "FAIL", "skipped": "-   "}
_COLORS = {"ok": "green", "warning": "yellow", "failure": "red", "skipped": None}


@click.command("doctor")
@scheduler_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def doctor(
    context: click.Context, /, scheduler: str | None, as_json: bool, **certificates: str | None
) -> None:
    """Check this machine, and say what is wrong and how to fix it.

    With --scheduler, this machine's versions are compared with that cluster's, too.

    Exits with 1 if anything fails; warnings and what does not apply here leave it 0.
    """
    from gpusched.cli import checks

    found = []
    for finding in checks.run(scheduler, certificates):
        found.append(finding)
        if not as_json:
            click.echo(_line(asdict(finding)))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    failed = sum(finding.status == "failure" for finding in found)
    if failed:
        click.echo(f"{failed} of {len(found)} checks failed", err=True)
        context.exit(1)


def _line(finding: dict[str, str]) -> str:
    mark = click.style(_MARKS[finding["status"]], fg=_COLORS[finding["status"]])
    line = f"{mark} {finding['name']:<14} {finding['text']}"
    return f"{line}\n     {'':<14} -> {finding['remedy']}" if finding["remedy"] else line
