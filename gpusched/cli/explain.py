"""``gpusched explain``: what a script's programs will do, without doing it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.types import Read, count, output_file
from gpusched.files import write_or_remove
from gpusched.quantities import read_bytes


@click.command(
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module's name, as in python -m.")
@click.option("--details", is_flag=True, help="Every stage, line and kernel's source.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--html", "page", type=output_file(), metavar="FILE", help="Write the explanation as HTML too."
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Let SCRIPT change files: what it writes is computed from zeros.",
)
@click.option(
    "--memory-limit",
    type=Read("size", read_bytes),
    help="Say whether it fits on workers with so much memory each, as in '16 GiB'.",
)
@click.option("--workers", type=count(1), help="How many of them. Default: 1.")
@click.option("--threads", type=count(1), help="Threads of each. Default: 1.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def explain(
    context: click.Context,
    /,
    script: str,
    arguments: tuple[str, ...],
    module: bool,
    details: bool,
    as_json: bool,
    page: str | None,
    allow_writes: bool,
    memory_limit: int | None,
    workers: int | None,
    threads: int | None,
) -> None:
    """Explain what SCRIPT would compute, without computing it.

    SCRIPT is run, and each computation of dask arrays in it is explained instead. Wherever the
    script computes arrays it is given zeros of their dtypes and shapes, and goes on. It is
    ended before it writes, removes or renames a file, and what came before is explained; the exit
    code is then 3, and else the script's. What it prints goes to the standard error. All options
    below come before SCRIPT: flags after it are the script's own, as with python.
    """
    if memory_limit is None and (workers or threads):
        raise Unusable("--workers and --threads describe workers of --memory-limit: name that, too")
    from gpusched.cli import script as scripts
    from gpusched.cli.write_guard import STOPPED
    from gpusched.graph import enable
    from gpusched.graph.hook import intercepting
    from gpusched.inspection.explain_script import Pretence

    folder = scripts.prepare(script, arguments, module)
    pretence = Pretence()
    writing = contextlib.nullcontext() if page is None else _writing(os.path.abspath(page))
    stopping = contextlib.nullcontext() if allow_writes else _stopping()
    problem = ""
    with writing as write:
        with stopping as watch:
            with contextlib.redirect_stdout(sys.stderr), enable(), intercepting(pretence):
                code = scripts.execute(script, module, folder, "explain").code
            explained = pretence.found
            if memory_limit is not None:
                on = (memory_limit, workers or 1, threads or 1)
                explained = [(at, found.on(*on)) for at, found in explained]
            text = _page(explained) if write is not None else ""
        if write is not None:
            problem = write(text)
    stopped = watch.first if watch is not None else None
    _print(explained, details, as_json, stopped is not None)
    if stopped is not None:
        click.echo(_why_stopped(stopped), err=True)
        code = STOPPED
    if problem:
        raise Failed(f"cannot write {page}: {problem}")
    context.exit(code)


@contextlib.contextmanager
def _writing(path: str) -> Iterator[Callable[[str], str]]:
    """Give what writes a file, and returns why that cannot be done, or nothing.

    It is for the end of a script that is kept from writing. Its thread is started before, and so
    can still write, and remove what has no room.
    """

    def write(text: str) -> str:
        try:
            write_or_remove(path, text)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    with ThreadPoolExecutor(1, thread_name_prefix="gpusched-explain") as thread:
        thread.submit(lambda: None).result()
        yield lambda text: thread.submit(write, text).result()


def _stopping() -> contextlib.AbstractContextManager[Any]:
    from gpusched.cli.write_guard import stopping
    from gpusched.store import kernelfiles

    caches = []
    with contextlib.suppress(RuntimeError):  # There is no home folder.
        caches.append(kernelfiles.user_caches())
    folder = kernelfiles.directory()
    return stopping([*caches, *([folder] if folder else [])])


def _why_stopped(write: Any) -> str:
    return (
        f"gpusched explain: the script was ended before it would {write}. Explained is what came "
        "before. With --allow-writes the script goes on, and writes what it computes from zeros"
    )


def _print(found: Any, details: bool, as_json: bool, stopped: bool) -> None:
    if as_json:
        click.echo(json.dumps([_document(each) for each in found], indent=2))
    elif not found:
        until = " before it was ended" if stopped else ""
        click.echo(f"gpusched explain: the script computes no dask array{until}")
    else:
        click.echo("\n\n".join(_text(each, details) for each in found))


def _title(place: Any) -> str:
    return f"{place}  {place.text}" if place is not None else "a computation"


def _text(computation: Any, details: bool) -> str:
    place, found = computation
    return f"== {_title(place)}\n\n{found.text(details)}"


def _document(computation: Any) -> dict[str, Any]:
    from dataclasses import asdict

    place, found = computation
    return {"place": asdict(place) if place is not None else None, **found.to_dict()}


def _page(computations: Any) -> str:
    from markupsafe import Markup

    from gpusched.rendering.html import heading, joined, page

    parts = (joined(heading(_title(place)), Markup(found.html())) for place, found in computations)
    return page("gpusched explain", *parts)
