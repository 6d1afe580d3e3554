"""Values in files, one a value, each checked when it is read."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dask.typing import Key
from distributed.protocol.compression import get_compression_settings

from gpusched import events
from gpusched.nvtx_ranges import Kind, shown
from gpusched.serialization import codec, frames
from gpusched.serialization.codec import blocks
from gpusched.store.statistics import updating
from gpusched.workers.memory import packing
from gpusched.workers.memory.sizes import host_nbytes

logger = logging.getLogger(__name__)

_USUAL_BANDWIDTH = 500e6
"""Bytes per second, of a disk that was not written to yet."""
_MOST_BANDWIDTH = 1e9
"""Bytes per second. Short bursts are faster, since the page cache takes them, until it is full."""


class LostValueError(KeyError):
    """A value's file is damaged, gone or cannot be read, so that it must be computed again."""

    def __str__(self) -> str:
        """Return the message as it is; a KeyError would quote it."""
        return str(self.args[0])


class UnreadableValueError(RuntimeError):
    """A value was written, and its own code cannot make it from what it had written."""


Form = tuple[tuple[int, ...], np.dtype]
"""The shape and dtype of an array of NumPy's own class that has no Python objects."""


def form(value: object) -> Form | None:
    """Return the form of an array; None if it is another object, or of a class of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.workers.memory.spillfiles import form
    >>> form(np.zeros((2, 3))), form(np.ma.zeros(2)), form([1, 2])
    (((2, 3), dtype('float64')), None, None)
    """
    if type(value) is not np.ndarray or value.dtype.hasobject:
        return None
    return value.shape, value.dtype


@dataclass(frozen=True)
class Entry:
    """One file."""

    path: Path
    disk_bytes: int
    """As written."""
    memory_bytes: int
    """As an object, by dask's estimate."""
    array: Form | None = None


@dataclass
class SpillCounters:
    """What was written and read since the start."""

    written_bytes: int = 0
    """Sizes of the files."""
    read_bytes: int = 0
    """Sizes of the files."""
    write_seconds: float = 0.0
    """With serialization and compression."""
    read_seconds: float = 0.0
    """With checks, decompression and deserialization."""
    lost: int = 0
    """Values whose file was damaged or gone."""


class SpillFiles(MutableMapping[Key, object]):
    """Values in the files of one folder.

    They are serialized by distributed. Arrays are compressed where writing takes less time for it,
    while they are written; other values as ``distributed.worker.memory.spill-compression`` says
    when this is made, which switches off both where it is false. Arrays that were writable come
    back writable. Raises `ValueError` if the compression is not one that distributed knows.

    Parameters
    ----------
    directory
        The folder; made with the first file. Other files in it are left alone.

    Notes
    -----
    Thread-safe for different keys: the table of files is behind a lock; serializing, reading and
    writing are not. Of two threads that set the same key, the later to end wins; one that reads
    meanwhile gets either value. A file gets its final name when it is complete, so that a process
    that is killed leaves no half of one under it. Names never repeat, in other processes either.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.workers.memory.spillfiles import SpillFiles
    >>> files = SpillFiles(tempfile.mkdtemp())
    >>> files["x"] = [1, 2]
    >>> files["x"], len(files)
    ([1, 2], 1)
    >>> files.close()
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.counters = SpillCounters()
        self._disk = codec.Link(_USUAL_BANDWIDTH, most=_MOST_BANDWIDTH)
        self._compression = get_compression_settings("distributed.worker.memory.spill-compression")
        self._entries: dict[Key, Entry] = {}
        self._disk_bytes = self._memory_bytes = 0
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._closed = False
        self._lock = threading.Lock()

    def __setitem__(self, key: Key, value: object) -> None:
        """Write a value.

        Raises `TypeError` if it cannot be serialized. Raises `OSError` if it cannot be written, for
        want of space for one. In both cases nothing changes. Raises `ValueError` if this is closed.
        """
        self._require_open(key)
        started = time.perf_counter()
        entry = self._write(key, value)
        if events.active:
            events.record_since("spill", "to disk", started, entry.memory_bytes, key)
        with self._lock:
            self.counters.written_bytes += entry.disk_bytes
            with updating() as total:
                total.spilled_bytes += entry.disk_bytes
            self.counters.write_seconds += time.perf_counter() - started
            # Closing while the file was written has taken this value with all others.
            closed = self._closed
            outdated = entry if closed else self._put(key, entry)
        if outdated is not None:
            _remove(outdated.path)
        if closed:
            self._remove_directory()

    def __getitem__(self, key: Key) -> object:
        """Read a value.

        Raises `LostValueError` if its file is not what was written. The key is gone then. Raises
        `UnreadableValueError` if its file is whole, and no value can be made from it. The file
        stays, since computing the value again would end the same way. Raises `MemoryError` if there
        is no room for it. The file stays.
        """
        with self._lock:
            entry = self._entries[key]
        started = time.perf_counter()
        try:
            stored = _read(entry.path)
        except (OSError, frames.CorruptFrameError) as error:
            if self._lose(key, entry):
                reason = f"{key!r}: {entry.path} {_reason(error)}"
                raise LostValueError(reason) from error
        else:
            value = _rebuild(key, entry.path, *stored)
            if events.active:
                events.record_since("unspill", "from disk", started, entry.memory_bytes, key)
            with self._lock:
                self.counters.read_bytes += entry.disk_bytes
                with updating() as total:
                    total.unspilled_bytes += entry.disk_bytes
                self.counters.read_seconds += time.perf_counter() - started
            return value
        # Set again or deleted by another thread while its file was read.
        return self[key]

    def __delitem__(self, key: Key) -> None:
        with self._lock:
            entry = self._pop(key)
        _remove(entry.path)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys that there are now, whatever other threads do meanwhile."""
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def array_of(self, key: Key) -> Form | None:
        """Return the form of a value that is an array; None if it is none, or not here."""
        entry = self._entries.get(key)
        return None if entry is None else entry.array

    def sizes(self, keys: Iterable[Key]) -> tuple[int, int]:
        """Return the bytes of some values, and of their files."""
        with self._lock:
            found = [self._entries[key] for key in keys if key in self._entries]
        return sum(each.memory_bytes for each in found), sum(each.disk_bytes for each in found)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files."""
        return self._disk_bytes

    @property
    def memory_bytes(self) -> int:
        """Bytes that the values would take in memory."""
        return self._memory_bytes

    def close(self) -> None:
        """Remove the files, and the folder unless others use it; idempotent."""
        with self._lock:
            self._closed = True
            entries = [self._pop(key) for key in list(self._entries)]
        for entry in entries:
            _remove(entry.path)
        self._remove_directory()

    def _require_open(self, key: Key) -> None:
        if self._closed:
            raise ValueError(f"cannot store {key!r}: the files in {self.directory} are closed")

    # The lock must be held for the following two.
    def _pop(self, key: Key) -> Entry:
        entry = self._entries.pop(key)
        self._disk_bytes -= entry.disk_bytes
        self._memory_bytes -= entry.memory_bytes
        return entry

    def _put(self, key: Key, entry: Entry) -> Entry | None:
        outdated = self._pop(key) if key in self._entries else None
        self._entries[key] = entry
        self._disk_bytes += entry.disk_bytes
        self._memory_bytes += entry.memory_bytes
        return outdated

    def _lose(self, key: Key, entry: Entry) -> bool:
        """Remove an entry whose file is bad; return False if it is another's turn already."""
        with self._lock:
            if self._entries.get(key) is not entry:
                return False
            self._pop(key)
            self.counters.lost += 1
        _remove(entry.path)
        return True

    @shown(Kind.SPILL, "to disk")
    def _write(self, key: Key, value: object) -> Entry:
        header, parts = self._pack(key, value)
        path = self.directory / f"{self._prefix}-{next(self._numbers)}.spill"
        partial = path.with_suffix(".partial")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(partial, "xb", buffering=0) as file:
                started = time.perf_counter()
                made = blocks.completed(parts)
                written = frames.write(file, _named(path, header), made, len(parts))
                seconds = time.perf_counter() - started
            partial.rename(path)
        except BaseException:
            # An interrupt must not leave half a file either.
            _remove(partial)
            raise
        if not any(isinstance(part, blocks.Pending) for part in parts):
            self._disk.observe(written, seconds)
        return Entry(path, written, host_nbytes(value), form(value))

    def _pack(self, key: Key, value: object) -> tuple[bytes, list[Any]]:
        disk = None if self._compression is None else self._disk
        try:
            return packing.pack(value, self._compression, disk)
        except TypeError as error:
            raise TypeError(f"cannot serialize {key!r}, a {error}") from error

    def _remove_directory(self) -> None:
        try:
            self.directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                logger.warning("cannot remove the folder %s: %s", self.directory, error)


def _named(path: Path, header: bytes) -> bytes:
    return path.name.encode() + header


@shown(Kind.SPILL, "from disk")
def _read(path: Path) -> tuple[bytes, list[Any]]:
    with open(path, "rb", buffering=0) as file:
        header, parts = frames.read(file, os.fstat(file.fileno()).st_size)
    name, packed = header[: len(path.name)], header[len(path.name) :]
    if name != path.name.encode():
        # Whole, but another value's.
        raise frames.CorruptFrameError(f"name: expected {path.name!r}, found {name!r}")
    return packed, parts


def _rebuild(key: Key, path: Path, packed: bytes, parts: list[Any]) -> Any:
    try:
        return packing.unpack(packed, parts)
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadableValueError(
            f"{key!r}: {path} is whole, but no value can be made from it: "
            f"{type(error).__name__}: {error}"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is gone"
    if isinstance(error, frames.CorruptFrameError):
        return f"is damaged: {error}"
    return f"cannot be read: {error}"


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot remove %s: %s", path, error)
