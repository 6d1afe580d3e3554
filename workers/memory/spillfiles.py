"""Values in files, one a value, each checked when it is read."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask.typing import Key
from distributed.protocol import pickle
from distributed.protocol.compression import decompress, get_compression_settings, maybe_compress
from distributed.protocol.serialize import merge_and_deserialize, serialize_and_split

from gpusched.serialization import frames
from gpusched.workers.memory.sizes import host_nbytes


class LostValueError(KeyError):
    """A value's file is damaged, gone or cannot be read, so that it must be computed again."""


@dataclass(frozen=True)
class Entry:
    """One file."""

    path: Path
    disk_bytes: int
    """As written."""
    memory_bytes: int
    """As an object, by dask's estimate."""


@dataclass
class SpillCounters:
    """What was written and read since the start."""

    written_bytes: int = 0
    read_bytes: int = 0
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    lost: int = 0
    """Values whose file was damaged or gone."""


class SpillFiles(MutableMapping[Key, object]):
    """Values in the files of one folder.

    Parameters
    ----------
    directory
        The folder; made with the first file.

    Notes
    -----
    Thread-safe for different keys: the table of files is behind a lock, reading and writing are
    not. A file gets its final name when it is complete, so that a process that is killed leaves
    no half of one.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.counters = SpillCounters()
        self._entries: dict[Key, Entry] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __setitem__(self, key: Key, value: object) -> None:
        """Write a value.

        Raises
        ------
        TypeError
            If it cannot be serialized.
        OSError
            If it cannot be written, for want of space for one. In both cases nothing changes.
        """
        started = time.perf_counter()
        header, parts = _pack(key, value)
        path = self.directory / f"{next(self._numbers)}.spill"
        written = self._write(path, header, parts)
        entry = Entry(path, written, host_nbytes(value))
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._entries[key] = entry
            self.counters.written_bytes += written
            self.counters.write_seconds += time.perf_counter() - started
        if replaced is not None:
            _remove(replaced.path)

    def __getitem__(self, key: Key) -> object:
        """Read a value.

        Raises
        ------
        LostValueError
            If its file is not what was written. The key is gone then.
        """
        entry = self._entries[key]
        started = time.perf_counter()
        try:
            value = _read(entry.path)
        except Exception as error:
            # Whatever a damaged file does to the libraries that read it, the value is lost.
            with self._lock:
                if self._entries.get(key) is not entry:
                    raise KeyError(key) from error
                del self._entries[key]
                self.counters.lost += 1
            _remove(entry.path)
            raise LostValueError(f"{key!r}: {entry.path} {_reason(error)}") from error
        with self._lock:
            self.counters.read_bytes += entry.disk_bytes
            self.counters.read_seconds += time.perf_counter() - started
        return value

    def __delitem__(self, key: Key) -> None:
        with self._lock:
            entry = self._entries.pop(key)
        _remove(entry.path)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.disk_bytes for entry in list(self._entries.values()))

    @property
    def memory_bytes(self) -> int:
        """Bytes that the values would take in memory."""
        return sum(entry.memory_bytes for entry in list(self._entries.values()))

    def close(self) -> None:
        """Remove the files and the folder; idempotent."""
        with self._lock:
            self._entries.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write(self, path: Path, header: bytes, parts: list[Any]) -> int:
        self.directory.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        try:
            with open(partial, "wb", buffering=0) as file:
                written = frames.write(file, header, parts)
            partial.rename(path)
        except OSError:
            _remove(partial)
            raise
        return written


def _pack(key: Key, value: object) -> tuple[bytes, list[Any]]:
    try:
        header, parts = serialize_and_split(value, ("dask", "pickle"), on_error="raise")
    except Exception as error:
        raise TypeError(f"cannot serialize {key!r}, a {type(value).__name__}: {error}") from error
    setting = get_compression_settings("distributed.worker.memory.spill-compression")
    packed = [maybe_compress(part, compression=setting) for part in parts]
    names = [name for name, _ in packed]
    return pickle.dumps((header, names)), [part for _, part in packed]


def _read(path: Path) -> object:
    with open(path, "rb", buffering=0) as file:
        packed, parts = frames.read(file, os.fstat(file.fileno()).st_size)
    header, names = pickle.loads(packed)
    raw = decompress({"compression": names}, parts)
    return merge_and_deserialize(header, raw)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is gone"
    if isinstance(error, frames.CorruptFrameError):
        return str(error)
    return f"cannot be read: {type(error).__name__}: {error}"


def _remove(path: Path) -> None:
    # It may be gone already, which is what is wanted.
    with suppress(OSError):
        path.unlink()
