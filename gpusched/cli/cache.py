"""``gpusched cache``: the compiled kernels that are kept on disk, and packs of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gpusched.cli.errors import Failed
from gpusched.cli.types import Read, output_file, seconds
from gpusched.quantities import read_bytes
from gpusched.rendering.text import aligned

_HEADINGS = ("KERNELS", "SIZE", "LAST USED", "USABLE", "MADE WITH")
_EVERYTHING = "Kernels for other processors and versions, too."


@click.group("cache", context_settings={"help_option_names": ["-h", "--help"]})
def cache() -> None:
    """Show, remove, export and import compiled kernels on disk.

    They are kept in the folder of gpusched.fusion.cache-directory. What is removed is compiled
    again when it is needed.
    """


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def info(as_json: bool) -> None:
    """Show what is kept, with which versions and for which processors."""
    from gpusched.store import kernelfiles

    root = _directory()
    with _failing():
        found = [_summary(folder, root) for folder in kernelfiles.folders(root)]
        largest = kernelfiles.largest_size()
    if as_json:
        told = {"folder": str(root), "largest_bytes": largest, "made": found}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{root}, {_size(largest)} at most" if largest else str(root))
    if found:
        click.echo(aligned([_HEADINGS, *(_row(each) for each in found)]))
    else:
        click.echo("no kernels")


def _summary(folder: Any, root: Path) -> dict[str, Any]:
    from gpusched.cli import packs

    return {
        "folder": (name := folder.path.relative_to(root).as_posix()),
        "kernels": folder.compiled,
        "bytes": folder.size,
        "used": folder.used,
        "usable": packs.is_usable(name),
        "made_with": folder.made_with,
    }


def _row(told: dict[str, Any]) -> tuple[str, ...]:
    from gpusched.cli import packs

    used = time.strftime("%Y-%m-%d", time.localtime(told["used"])) if told["used"] else "never"
    usable = "here" if told["usable"] else "elsewhere"
    made = packs.described(told["made_with"])
    return str(told["kernels"]), _size(told["bytes"]), used, usable, made


@cache.command()
def clear() -> None:
    """Remove all kernels; what gpusched.tune has found stays."""
    from gpusched.store import kernelfiles

    with _failing():
        _report(kernelfiles.clear(_directory()))


@cache.command()
@click.option(
    "--size",
    type=Read("size", read_bytes),
    help="Leave at most so much: '200 MiB'.  [default: gpusched.fusion.cache-size]",
)
@click.option(
    "--unused-for", "age", type=seconds(), metavar="TIME", help="Remove what was not used for TIME."
)
@click.option("--other-versions", is_flag=True, help="Remove what these versions cannot use.")
def prune(size: int | None, age: float | None, other_versions: bool) -> None:
    """Remove kernels that were not used for longest.

    A kernel is used when a process loads it, which is noted once a day. --other-versions keeps the
    kernels that the same versions of gpusched, numba and Python have made for other processors.
    """
    from gpusched.store import kernelfiles

    root = _directory()
    with _failing():
        gone = _remove_others(root) if other_versions else []
        if age is not None:
            oldest = time.time() - age
            gone += (old := [each for each in kernelfiles.kernels(root) if each.used < oldest])
            for each in old:
                each.remove()
        largest = kernelfiles.largest_size() if size is None else size
        if largest is not None:
            gone += kernelfiles.shrink(root, largest)
        _report(gone)


def _remove_others(root: Path) -> list[Any]:
    from gpusched.cli import packs
    from gpusched.store import kernelfiles

    gone: list[Any] = []
    for folder in kernelfiles.folders(root):
        if not packs.is_of_these_versions(folder.path.relative_to(root).as_posix()):
            gone += folder.kernels
            kernelfiles.remove(folder)
    return gone


def _report(gone: list[Any]) -> None:
    compiled = sum(bool(each.code) for each in gone)
    click.echo(f"{_number(compiled)} removed, {_size(sum(each.size for each in gone))}")


@cache.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module's name, as in python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def warm(context: click.Context, module: bool, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT once, and compile every kernel that it comes to want.

    SCRIPT really runs, in one process and with what it reads and writes: give it a small part of
    its data. Kernels depend on the operations, dtypes and axes, and not on the size. The exit code
    is the script's.
    """
    from gpusched.store import kernelfiles

    def there() -> dict[Path, int]:
        found = kernelfiles.kernels(root)
        return {path: each.size for each in found for path in each.code}

    root = _directory()
    with _failing():
        before = there()
        words = ["run", "--local", "--quiet", *(["-m"] if module else []), script, *arguments]
        settings = {"DASK_GPUSCHED__FUSION__COMPILE": "wait",
                    "DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(root)}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "gpusched", *words], env=os.environ | settings, check=False
        )
        new = {path: size for path, size in there().items() if path not in before}
    click.echo(f"{_number(len(new))} compiled, {_size(sum(new.values()))}", err=True)
    context.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


@cache.command("export")
@click.option("--all", "everything", is_flag=True, help=_EVERYTHING)
@click.argument("file", type=output_file())
def export_pack(file: str, everything: bool) -> None:
    """Write kernels into FILE, a pack for other machines.

    Those are taken that this machine can use, with what gpusched.tune has found here. See gpusched
    cache import.
    """
    from gpusched.cli import packs

    with _failing():
        pack, damaged = packs.collect(_directory())
        pack = pack if everything else pack.usable
        for path in damaged:
            click.echo(f"gpusched cache: {path} is damaged, and left out", err=True)
        if not pack.files:
            raise Failed(
                "there are no kernels to export: compile some with 'gpusched cache warm SCRIPT', "
                "or by running a program"
            )
        written = packs.write(pack, Path(file))
    tuned = f" and {_choices(len(pack.tunings))}" if pack.tunings else ""
    click.echo(f"{_number(len(pack.files))}{tuned}, {_size(written)} in {file}")


@cache.command("import")
@click.option("--all", "everything", is_flag=True, help=_EVERYTHING)
@click.argument("file", type=click.Path(path_type=Path))
def import_pack(file: Path, everything: bool) -> None:
    """Take the kernels of FILE, a pack of gpusched cache export.

    A pack is code, and its kernels run as you: import only what you could run as a program of the
    same origin. A file that somebody else owns or may write is refused, and so is one of which any
    part does not verify. Kernels for another processor or other versions are left out, since they
    would not be loaded; an error says if there are no others. What gpusched.tune has found on this
    machine stays, and what it has found elsewhere is put beside it.
    """
    from gpusched.cli import packs

    with _failing():
        pack = packs.read(file)
        chosen = pack if everything else pack.usable
        if not chosen.files:
            raise Failed(_of_no_use(file, pack))
        root = _directory()
        new = packs.install_tunings(chosen, root)
        written = packs.install(chosen, root)
    left = len(pack.files) - len(chosen.files)
    there = len(chosen.files) - written
    notes = [f"{_number(written)} imported", f"{there} {'was' if there == 1 else 'were'} there"]
    notes += [f"{_choices(new)} added"] if chosen.tunings else []
    click.echo(", ".join([*notes, *([f"{left} are for other machines"] if left else [])]))


def _of_no_use(file: Path, pack: Any) -> str:
    from gpusched.cli import packs
    from gpusched.store import emitters

    made = "; ".join(sorted({packs.described(each) for each in pack.made_with.values()}))
    here = packs.described(emitters.made_with())
    # Names and versions are for people, and may be the same.
    same_versions = any(map(packs.is_of_these_versions, pack.made_with))
    others = "features of the processor" if same_versions else "files of gpusched itself"
    alike = f", with other {others}" if here in made else ""
    return (
        f"{file} has no kernel that this machine can use: it was made with {made or 'nothing'}; "
        f"here is {here}{alike}. Make it with the same versions, on the same kind of processor "
        "('gpusched cache warm', 'gpusched cache export')"
    )


def _directory() -> Path:
    from gpusched.store.kernelfiles import directory

    found = directory()
    if found is None:
        raise Failed(
            "kernels are not kept on disk: set gpusched.fusion.cache-directory to a folder"
        )
    return found


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what can go wrong with files into one message."""
    from gpusched.cli.packs import PackError

    try:
        yield
    except (PackError, OSError) as error:
        raise Failed(str(error)) from None


def _number(count: int) -> str:
    return f"{count} kernel" if count == 1 else f"{count} kernels"


def _choices(count: int) -> str:
    return f"{count} choice of gpusched.tune" if count == 1 else f"{count} choices of gpusched.tune"


def _size(count: int) -> str:
    from dask.utils import format_bytes

    return format_bytes(count)
