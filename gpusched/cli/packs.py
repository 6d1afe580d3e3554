"""Packs: files that carry compiled kernels from one cache directory to others.

A pack is a zip archive with the sealed machine code as the cache has it, under the same names,
`CONTENTS`, which says what it was made with, and what `gpusched.tune` has found, sealed as well:
tuned kernels are looked for by that. Its kernels are code: a pack is believed as little as the
cache is, and only if nobody but this user and the administrator may write it. Seals say that it is
whole, not who has made it.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.files import is_own, write_whole
from gpusched.store import codefiles, emitters, kernelfiles, tuned

FORMAT = 2
"""Of packs; raised where an older gpusched could not read them."""
CONTENTS = "pack.json"

_NAME = re.compile(
    r"(?:kernels/[0-9a-f]+-[0-9a-f]+/\w+-[0-9a-f]{32}\.code"
    r"|cubins/[0-9a-f]+/\w+-sm_\d+-[0-9a-f]{32}\.cubin)"
)
"""Of a file in a pack, which is its path below the cache directory."""
_AGAIN = "make it again with 'gpusched cache export'"


class PackError(ValueError):
    """A pack cannot be read, written or used; the message says where, why, and what to do."""


@dataclass(frozen=True)
class Pack:
    """Compiled kernels on their way."""

    files: dict[str, bytes]
    """Sealed machine code by its path below a cache directory."""
    made_with: dict[str, dict[str, str]]
    """Versions and processor, by the folders of these paths."""
    tunings: tuned.Choices = field(default_factory=dict)
    """What was found to be the fastest."""

    @property
    def usable(self) -> Pack:
        """What this process could use; the rest is for other machines."""
        return Pack(
            {name: code for name, code in self.files.items() if is_usable(folder(name))},
            self.made_with,
            {key: choice for key, choice in self.tunings.items() if tuned.is_usable(key)},
        )


def folder(name: str) -> str:
    """Return the folder of a file of a pack."""
    return name.rpartition("/")[0]


def is_usable(name: str) -> bool:
    """Return whether a folder's kernels are for this processor and these versions.

    Parameters
    ----------
    name
        Its path below the cache directory.
    """
    kind, _, rest = name.partition("/")
    return rest == (emitters.folder_name() if kind == "kernels" else _toolchain(kind))


def is_of_these_versions(name: str) -> bool:
    """Return whether a folder's kernels are made with these versions, for whatever processor."""
    kind, _, rest = name.partition("/")
    found = rest.partition("-")[0]
    return found == _toolchain(kind)


def _toolchain(kind: str) -> str:
    return emitters.toolchain(emitters.HOST if kind == "kernels" else emitters.CUDA)


def collect(root: Path) -> tuple[Pack, list[Path]]:
    """Return all that a cache directory has, and the files that are damaged and left out.

    Raises
    ------
    gpusched.files.UnsafeFolderError
        If others may write to it.
    """
    pack, damaged = Pack({}, {}), []
    for found in kernelfiles.folders(root):
        where = found.path.relative_to(root).as_posix()
        for path in (path for kernel in found.kernels for path in kernel.paths):
            name = f"{where}/{path.name}"
            levels = kernelfiles.LEVELS
            content = codefiles.read(path, levels) if _NAME.fullmatch(name) else None
            if content is None:
                continue  # A source, or one that another process has removed.
            if _is_whole(name, content):
                pack.files[name] = content
                pack.made_with[where] = found.made_with
            else:
                damaged.append(path)
    path = root / tuned.FILE
    try:
        pack.tunings.update(tuned.decoded(codefiles.read(path) or b"{}"))
    except ValueError:
        damaged.append(path)
    return pack, damaged


def _is_whole(name: str, sealed: bytes) -> bool:
    return codefiles.is_whole(kernelfiles.key_of(name), sealed)


def write(pack: Pack, path: Path) -> int:
    """Write a pack so that no reader ever sees part of it; return its bytes.

    Equal packs are equal files.

    Raises
    ------
    PackError
        If it cannot be written; a file that was there stays as it was.
    """
    contents = {"format": FORMAT, "made_with": {k: pack.made_with[k] for k in sorted(_used(pack))}}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        # Without the time of day, which `writestr` takes where it is given a name only.
        archive.writestr(zipfile.ZipInfo(CONTENTS), json.dumps(contents, indent=1))
        for name in sorted(pack.files):
            entry = zipfile.ZipInfo(name)
            archive.writestr(entry, pack.files[name], zipfile.ZIP_DEFLATED)
        if pack.tunings:
            sealed = codefiles.seal(tuned.FILE, tuned.encoded(pack.tunings))
            archive.writestr(zipfile.ZipInfo(tuned.FILE), sealed)
    try:
        # Others may read it, to copy it; whoever could write it could run code here.
        write_whole(path.absolute(), made.getvalue(), 0o644)
    except OSError as error:
        raise PackError(
            f"cannot write {path}: {error.strerror or error}. Free space there, or name another "
            "place; nothing was changed"
        ) from error
    return len(made.getvalue())


def _used(pack: Pack) -> set[str]:
    return {folder(name) for name in pack.files}


def read(path: Path) -> Pack:
    """Return what a pack holds; nothing of it is loaded.

    Raises
    ------
    PackError
        If others may write the file, or any part of it is damaged or no kernel.
    """
    content = _content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            contents = _contents(path, archive)
            return Pack(dict(_files(path, archive)), contents, _tunings(path, archive))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
            KeyError) as error:  # fmt: skip
        raise PackError(
            f"{path} is not a pack of kernels, or damaged ({error}): {_AGAIN}"
        ) from error


def _content(path: Path) -> bytes:
    """Return a file's content; its folder may be anybody's, since the file is looked at as open."""
    try:
        with open(path, "rb") as file:
            if not is_own(os.fstat(file.fileno())):
                raise PackError(
                    f"{path} holds code, and somebody else owns it or may write it, so it is not "
                    "used. If you trust whoever made it, take a copy of your own: "
                    "cp FILE COPY && chmod go-w COPY"
                )
            return file.read()
    except OSError as error:
        raise PackError(f"cannot read {path}: {error.strerror or error}") from error


def _contents(path: Path, archive: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    try:
        told = json.loads(archive.read(CONTENTS))
        number, made_with = told["format"], told["made_with"]
        found = {str(k): {str(n): str(v) for n, v in m.items()} for k, m in made_with.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise PackError(f"{path} is damaged ({CONTENTS}: {error}): {_AGAIN}") from error
    if number != FORMAT:
        raise PackError(
            f"{path} is a pack of format {number!r}, and this gpusched reads format {FORMAT}: make "
            "it with the version of gpusched that is to use it"
        )
    return found


def _files(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    largest = kernelfiles.largest_size()
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if largest is not None and unpacked > largest:
        raise PackError(
            f"the kernels of {path} take {unpacked} bytes, and gpusched.fusion.cache-size is "
            f"{largest}: set it to more, or to null"
        )
    for entry in archive.infolist():
        if entry.filename in (CONTENTS, tuned.FILE):
            continue
        if _NAME.fullmatch(entry.filename) is None:
            raise PackError(f"{path} holds {entry.filename!r}, which is not a kernel: {_AGAIN}")
        content = archive.read(entry)
        if not _is_whole(entry.filename, content):
            raise PackError(f"{path} is damaged (the seal of {entry.filename}): {_AGAIN}")
        yield entry.filename, content


def _tunings(path: Path, archive: zipfile.ZipFile) -> tuned.Choices:
    if tuned.FILE not in archive.namelist():
        return {}
    try:
        return tuned.decoded(codefiles.unseal(tuned.FILE, archive.read(tuned.FILE)))
    except ValueError as error:
        raise PackError(f"{path} is damaged ({tuned.FILE}: {error}): {_AGAIN}") from error


def install(pack: Pack, root: Path) -> int:
    """Write the kernels of a pack into a cache directory; return how many were not there.

    Raises
    ------
    PackError
        If they cannot be written; those that were written stay.
    """
    written = 0
    for name, content in pack.files.items():
        path = root / name
        try:
            written += _installed(path, content)
            kernelfiles.describe(path.parent, pack.made_with.get(folder(name), {}))
        except OSError as error:
            raise PackError(
                f"cannot write {path}: {error.strerror or error}. {written} kernels were imported "
                "before; free space there, or set gpusched.fusion.cache-directory to another "
                "place, and import again"
            ) from error
    return written


def install_tunings(pack: Pack, root: Path) -> int:
    """Add what a pack has of `gpusched.tune` to a cache directory's; return how much was new.

    Raises
    ------
    PackError
        If it cannot be written.
    """
    path = root / tuned.FILE
    try:
        return tuned.add(path, pack.tunings)
    except OSError as error:
        raise PackError(f"cannot write {path}: {error.strerror or error}") from error


def _installed(path: Path, content: bytes) -> bool:
    codefiles.folder_for(path, kernelfiles.LEVELS)
    if codefiles.read(path, kernelfiles.LEVELS) == content:
        kernelfiles.touch(path)
        return False
    kernelfiles.keep(path, content)
    return True


def described(made_with: dict[str, Any]) -> str:
    """Return in one line what a folder's kernels are made with, and for.

    Examples
    --------
    >>> from gpusched.cli.packs import described
    >>> described({"gpusched": "0.1.0", "numba": "0.66.0", "target": "znver4"})
    'gpusched 0.1.0, numba 0.66.0, for znver4'
    """
    names = [f"{name} {value}" for name, value in made_with.items() if name != "target"]
    return ", ".join([*names, f"for {made_with.get('target', 'an unknown target')}"])
