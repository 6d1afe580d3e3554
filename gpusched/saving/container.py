"""The file: a zip archive that is written whole or not at all, and read with suspicion.

Any program that opens zip archives shows what is inside: text but for the arrays and the code.
Nothing is ever unpacked to the disk, so that names of members lead nowhere.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np
import xxhash

from gpusched.serialization.frames import CorruptFrameError

MANIFEST = "manifest.json"
_NAMES = re.compile(r"manifest\.json|graph\.json|arrays/\d+|code/\d+\.pickle|kernels/\w+\.py")
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members, so that the same computation makes the same file."""
_BEST_RATIO = 100
"""By how much text may be compressed; what compresses better is written as it is."""
_SMALL = 1 << 20
"""Bytes of text that may have been compressed by any factor."""
_STEP = 1 << 20


class Writer:
    """Writes members one after the other; what it wrote is a file once `close` has returned."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", allowZip64=True)
        self.checksums: dict[str, str] = {}
        """xxh3_128 of the members that have no checksum of their own, by name."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        if kind is not None:
            # So that it does not write to the file when it is collected. The disk may be full.
            with suppress(OSError, ValueError):
                self._zip.close()

    def text(self, name: str, text: str) -> None:
        """Write text, compressed."""
        data = text.encode()
        squeezed = len(zlib.compress(data, 6)) * _BEST_RATIO // 2 > len(data) or len(data) < _SMALL
        self._note(name, data)
        self._zip.writestr(_info(name, squeezed), data)

    def data(self, name: str, data: bytes) -> None:
        """Write bytes as they are."""
        self._note(name, data)
        self._zip.writestr(_info(name), data)

    def frames(self, name: str, frames: Iterable[Any]) -> None:
        """Write frames that have a checksum elsewhere, one behind the other."""
        with self._zip.open(_info(name), "w", force_zip64=True) as member:
            for frame in frames:
                member.write(memoryview(frame).cast("B") if memoryview(frame).nbytes else b"")

    def close(self, manifest: dict[str, Any]) -> None:
        """Write the manifest and the archive's directory."""
        text = json.dumps({**manifest, "checksums": self.checksums}, indent=1)
        self._zip.writestr(_info(MANIFEST, len(text) < _SMALL), text)
        self._zip.close()

    def _note(self, name: str, data: bytes) -> None:
        self.checksums[name] = xxhash.xxh3_128_hexdigest(data)


def _info(name: str, squeezed: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED if squeezed else zipfile.ZIP_STORED
    info.external_attr = 0o644 << 16
    return info


class Reader:
    """Reads members of a file from any source.

    Raises `CorruptFrameError` if it is not such an archive, or one that would unpack to far more
    than its own length.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        with _reading("it is damaged, or gpusched.save did not write it"):
            self._zip = zipfile.ZipFile(file)
            members = self._zip.infolist()
        self._members = {info.filename: info for info in members}
        if len(self._members) != len(members):
            raise CorruptFrameError("two members of the archive have the same name")
        if MANIFEST not in self._members:
            raise CorruptFrameError(f"gpusched.save did not write it: it has no {MANIFEST}")
        for info in members:
            _check(info, size)
        if sum(info.compress_size for info in members) > size:
            raise CorruptFrameError("the members of the archive overlap")

    @property
    def names(self) -> list[str]:
        """The names of the members, in the order of the file."""
        return list(self._members)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        found = self._json(MANIFEST, self._read(MANIFEST))
        if not isinstance(found, dict):
            raise CorruptFrameError(f"{MANIFEST}: expected a map, found {found!r:.100}")
        return found

    def json(self, name: str, manifest: dict[str, Any]) -> Any:
        """Return what the text of a member says."""
        return self._json(name, self.data(name, manifest))

    def data(self, name: str, manifest: dict[str, Any]) -> memoryview:
        """Return the bytes of a member, which are those that the manifest means."""
        data = self._read(name)
        checksums = manifest.get("checksums")
        expected = checksums.get(name) if isinstance(checksums, dict) else None
        found = xxhash.xxh3_128_hexdigest(data)
        if found != expected:
            raise CorruptFrameError(f"checksum of {name}: expected {expected}, found {found}")
        return data

    def frames(self, name: str, lengths: list[int]) -> list[memoryview]:
        """Return frames of these lengths, which are all that the member holds."""
        data = self._read(name)
        if not all(type(n) is int and n >= 0 for n in lengths) or sum(lengths) != data.nbytes:
            raise CorruptFrameError(
                f"{name}: {data.nbytes} bytes are not frames of {lengths!r:.99}"
            )
        ends = np.cumsum(lengths, dtype=np.int64).tolist()
        return [data[end - n : end] for n, end in zip(lengths, ends, strict=True)]

    def _read(self, name: str) -> memoryview:
        info = self._members.get(name)
        if info is None:
            raise CorruptFrameError(f"{name} is missing")
        view = np.empty(info.file_size, np.uint8).data
        done = 0
        with _reading(name), self._zip.open(info) as member:
            # The checksum is compared when the end has been reached, hence the empty read.
            while got := member.readinto(view[done : done + _STEP]):  # type: ignore[attr-defined]
                done += got
            member.read(1)
        if done != view.nbytes:
            raise CorruptFrameError(f"{name}: expected {view.nbytes} bytes, found {done}")
        return view

    def _json(self, name: str, data: memoryview) -> Any:
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise CorruptFrameError(f"{name}: {error}") from error


@contextmanager
def _reading(what: str) -> Iterator[None]:
    # What zipfile raises for damaged archives. OSError is the disk's own, and goes on.
    try:
        yield
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        struct.error,
        zlib.error,
    ) as error:
        if isinstance(error, CorruptFrameError):
            raise
        raise CorruptFrameError(f"{what}: {error}") from error


def _check(info: zipfile.ZipInfo, size: int) -> None:
    """Refuse a member that is not gpusched's, or that claims more than the file can hold."""
    name = info.filename
    if not _NAMES.fullmatch(name):
        raise CorruptFrameError(f"{name!r:.200} is not a member of a saved computation")
    end = info.header_offset + info.compress_size
    if not 0 <= info.header_offset <= end <= size or info.file_size < 0:
        raise CorruptFrameError(f"{name} is not inside the file")
    if info.compress_type == zipfile.ZIP_STORED:
        fits = info.file_size == info.compress_size
    elif info.compress_type == zipfile.ZIP_DEFLATED:
        fits = info.file_size <= max(_SMALL, info.compress_size * _BEST_RATIO)
    else:
        raise CorruptFrameError(f"{name} is compressed in a way that is not gpusched's")
    if not fits:
        raise CorruptFrameError(
            f"{name}: {info.compress_size} bytes cannot hold {info.file_size} bytes"
        )
