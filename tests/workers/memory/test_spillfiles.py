"""Values in files: read as written, or told to be lost."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.serialization import frames
from gpusched.workers.memory import spillfiles
from gpusched.workers.memory.spillfiles import (
    LostValueError,
    SpillFiles,
    UnreadableValueError,
)
from tests.disks import mounted

from .contract import check_different_keys_threadsafe, check_mapping, check_same_key_threadsafe

SETTING = "distributed.worker.memory.spill-compression"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SpillFiles]:
    spilled = SpillFiles(tmp_path / "files")
    yield spilled
    spilled.close()


def names(files: SpillFiles) -> set[str]:
    return {path.name for path in files.directory.iterdir()}


def file_of(files: SpillFiles, key: str) -> Path:
    """Write a value, and return the file that it came to be in."""
    before = names(files) if files.directory.exists() else set()
    files[key] = np.arange(1000)
    (name,) = names(files) - before
    return files.directory / name


def test_is_a_mapping(files: SpillFiles) -> None:
    check_mapping(files)
    assert (files.disk_bytes, files.memory_bytes, names(files)) == (0, 0, set())


def test_threads_with_keys_of_their_own(files: SpillFiles) -> None:
    check_different_keys_threadsafe(files)
    assert len(names(files)) == len(files)
    assert files.disk_bytes == sum(path.stat().st_size for path in files.directory.iterdir())


def test_threads_that_set_and_read_one_key(files: SpillFiles) -> None:
    check_same_key_threadsafe(files)
    assert len(names(files)) == 1
    assert files.counters.lost == 0


ARRAYS = {
    "C": np.arange(24.0).reshape(4, 6),
    "Fortran": np.asfortranarray(np.arange(24.0).reshape(4, 6)),
    "transposed": np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
    "reversed": np.arange(24.0)[::-2],
    "column": np.arange(24).reshape(4, 6)[:, 2],
    "inner block": np.arange(10_000.0).reshape(100, 100)[10:60, 20:70],
    "unaligned": np.frombuffer(bytearray(b"x" + bytes(range(64))), "u1")[1:].view("f8"),
    "broadcast": np.broadcast_to(np.float32(1), (100, 100)),
    "broadcast rows": np.broadcast_to(np.arange(5), (7, 5)),
    "empty": np.zeros((0, 3)),
    "no dimension": np.array(5),
    "big-endian": np.arange(5, dtype=">i4"),
    "bool": np.array([True, False]),
    "complex": np.arange(4) * (1 + 2j),
    "half": np.arange(4, dtype="f2"),
    "long double": np.arange(4, dtype="g"),
    "dates": np.array(["2026-11-21", "NaT"], dtype="M8[s]"),
    "durations": np.array([1, 2], dtype="m8[ms]"),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "objects": np.array(["a", {"b": 1}], dtype=object),
    "records": np.array([(1, 2.0, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    "random": np.random.default_rng(0).random(100_000),
    "zeros": np.zeros(1_000_000, "i2"),
    "several pieces": np.repeat(np.arange(120_000.0), 10).reshape(1000, 1200).T,
}


@pytest.mark.parametrize("name", list(ARRAYS))
@pytest.mark.parametrize("compression", [False, "auto", "lz4", "zlib"])
def test_arrays_come_back(tmp_path: Path, name: str, compression: object) -> None:
    array = ARRAYS[name]
    with dask.config.set({SETTING: compression}):
        files = SpillFiles(tmp_path / "files")
    files["key"] = array
    found = files["key"]
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.flags.writeable == array.flags.writeable
    np.testing.assert_array_equal(found, array)
    if array.flags.contiguous or array.flags.f_contiguous:
        assert found.strides == array.strides


@pytest.mark.parametrize(
    "value",
    [None, b"", b"abc", bytearray(b"x" * 20_000), "text", [], {"a": {1, 2}}, ("x" * 100_000, 1.5)],
    ids=lambda value: type(value).__name__,
)
def test_other_values_come_back(files: SpillFiles, value: object) -> None:
    files["key"] = value
    assert files["key"] == value
    assert type(files["key"]) is type(value)


def test_arrays_in_collections_come_back_writable(files: SpillFiles) -> None:
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    files["key"] = {"list": [np.arange(3), np.zeros(2)], "masked": masked}
    found: Any = files["key"]
    found["list"][0][0] = 7
    np.testing.assert_array_equal(found["list"][0], [7, 1, 2])
    assert found["masked"].mask.tolist() == [True, False]


@pytest.mark.parametrize("key", ["text", b"bytes", 1, 1.5, ("name", 0, 1), "../up", "a\0/\nb"])
def test_any_key_of_dask_will_do(files: SpillFiles, key: Any) -> None:
    files[key] = "value"
    assert files[key] == "value"
    assert list(files) == [key]
    del files[key]
    assert names(files) == set()


def test_numbers_of_bytes_are_counted(files: SpillFiles) -> None:
    zeros = np.zeros(1_000_000)
    files["key"] = zeros
    assert files.disk_bytes < zeros.nbytes / 10, "distributed compresses unless given otherwise"
    assert files.memory_bytes >= zeros.nbytes
    (path,) = files.directory.iterdir()
    assert files.counters.written_bytes == files.disk_bytes == path.stat().st_size
    assert files.counters.write_seconds > 0 == files.counters.read_seconds
    for _ in range(2):
        files["key"]
    assert files.counters.read_bytes == 2 * files.disk_bytes
    assert files.counters.read_seconds > 0
    files["key"] = 1
    assert files.counters.written_bytes > files.disk_bytes
    del files["key"]
    assert (files.disk_bytes, files.memory_bytes) == (0, 0)


def test_unknown_compression_is_refused_at_once(tmp_path: Path) -> None:
    with dask.config.set({SETTING: "rar"}), pytest.raises(ValueError, match=f"{SETTING}=rar"):
        SpillFiles(tmp_path)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped": (flip, "is damaged: checksum: expected"),
    "truncated": (lambda path: os.truncate(path, 700), "is damaged: total length: expected 700"),
    "emptied": (lambda path: os.truncate(path, 0), "is damaged: size: expected at least"),
    "zeros": (lambda path: path.write_bytes(bytes(8200)), "is damaged: magic: expected"),
    "extended": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "is damaged: total"),
    "deleted": (Path.unlink, "is gone"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: [Errno 21]"),
    "a loop": (lambda path: (path.unlink(), path.symlink_to(path)), "cannot be read: [Errno 40]"),
    "text": (lambda path: path.write_text("gpusched" * 1000), "is damaged: format version"),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_file_is_a_lost_value(files: SpillFiles, damage: str) -> None:
    files["kept"] = 1
    kept = files.disk_bytes
    path = file_of(files, "key")
    do_damage, reason = DAMAGES[damage]
    do_damage(path)
    with pytest.raises(LostValueError) as caught:
        files["key"]
    assert str(caught.value).startswith(f"'key': {path} {reason}")
    assert "key" not in files
    assert not path.is_file()
    with pytest.raises(KeyError):
        files["key"]
    assert (files["kept"], files.disk_bytes, files.counters.lost) == (1, kept, 1)


def test_file_that_cannot_be_removed_is_told(
    files: SpillFiles, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(files, "key")
    path.unlink()
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        del files["key"]
    assert f"cannot remove {path}" in caplog.text
    assert len(files) == 0
    path.rmdir()


def test_file_of_another_value_is_a_lost_value(files: SpillFiles) -> None:
    mine, other = file_of(files, "mine"), file_of(files, "other")
    mine.write_bytes(other.read_bytes())
    message = f"is damaged: name: expected '{mine.name}', found b'{other.name}'"
    with pytest.raises(LostValueError, match=message):
        files["mine"]
    np.testing.assert_array_equal(files["other"], np.arange(1000))


def test_file_that_others_removed_can_be_deleted_or_set_again(files: SpillFiles) -> None:
    for action in (lambda: files.pop("key", None), lambda: files.__setitem__("key", 2)):
        file_of(files, "key").unlink()
        action()
    assert files["key"] == 2


def test_two_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    first, second = SpillFiles(tmp_path / "files"), SpillFiles(tmp_path / "files")
    first["key"], second["key"] = "first", "second"
    assert (first["key"], second["key"]) == ("first", "second")
    first.close()
    assert second["key"] == "second"
    second.close()
    assert not first.directory.exists()


HOOKS: dict[str, Callable[[], object]] = {}


def run_hook(name: str) -> object:
    return HOOKS[name]()


class Hooked:
    """Runs a function while it is written, and another while it is read."""

    def __reduce__(self) -> Any:
        HOOKS["write"]()
        return run_hook, ("read",)


def test_value_that_cannot_be_serialized_changes_nothing(files: SpillFiles) -> None:
    files["key"] = 1
    before = files.disk_bytes, files.memory_bytes, names(files)
    with pytest.raises(TypeError, match="cannot serialize 'key', a lock: TypeError: cannot"):
        files["key"] = threading.Lock()
    assert files["key"] == 1
    assert (files.disk_bytes, files.memory_bytes, names(files)) == before


def test_value_that_cannot_be_made_again_is_an_error_of_its_own(files: SpillFiles) -> None:
    # Were it lost, it would be computed again, and again.
    HOOKS.update(write=lambda: None, read=lambda: {}["missing"])
    files["key"] = Hooked()
    for _ in range(2):
        with pytest.raises(UnreadableValueError, match="no value can be made from it: KeyErr"):
            files["key"]
    assert files.counters.lost == 0


def test_want_of_memory_does_not_lose_a_value(files: SpillFiles) -> None:
    def fail() -> None:
        raise MemoryError

    HOOKS.update(write=lambda: None, read=fail)
    files["key"] = Hooked()
    with pytest.raises(MemoryError):
        files["key"]
    HOOKS["read"] = lambda: "found"
    assert files["key"] == "found"
    HOOKS["write"] = fail
    with pytest.raises(MemoryError):
        files["key"] = Hooked()
    assert (files["key"], files.counters.lost) == ("found", 0)


def test_value_that_is_deleted_or_replaced_while_it_is_read(
    files: SpillFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = spillfiles._read

    def delete(path: Path) -> Any:
        del files["key"]
        raise OSError("as if the file were gone")

    def replace(path: Path) -> Any:
        monkeypatch.setattr(spillfiles, "_read", read)
        files["key"] = "new"
        raise OSError("as if the file were gone")

    monkeypatch.setattr(spillfiles, "_read", delete)
    files["key"] = "old"
    with pytest.raises(KeyError) as caught:
        files["key"]
    assert not isinstance(caught.value, LostValueError)
    monkeypatch.setattr(spillfiles, "_read", replace)
    files["key"] = "old"
    assert files["key"] == "new"
    assert files.counters.lost == 0


def test_closing_removes_what_is_its_own(files: SpillFiles) -> None:
    files["a"], files["b"] = 1, 2
    other = files.directory / "of somebody else"
    other.touch()
    files.close()
    assert names(files) == {other.name}
    other.unlink()
    files.close()
    files.close()
    assert not files.directory.exists()
    assert (len(files), files.disk_bytes, files.memory_bytes) == (0, 0, 0)
    with pytest.raises(KeyError):
        files["a"]
    with pytest.raises(ValueError, match=r"cannot store 'a': the files in .* are closed"):
        files["a"] = 1


def test_closing_takes_a_value_that_is_being_written(files: SpillFiles) -> None:
    HOOKS["write"] = files.close
    files["key"] = Hooked()
    assert len(files) == 0
    assert not files.directory.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "256k") as folder:
        yield folder


@pytest.fixture
def small_files(tmp_path: Path) -> Iterator[Path]:
    """Give a folder, while no file may be longer than 150,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limits[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def check_failed_write(files: SpillFiles, code: int) -> None:
    """Check that a value which does not fit changes nothing."""
    values = np.random.default_rng(0).bytes(100_000)
    files["a"], files["b"] = values, values
    before = files.disk_bytes, files.memory_bytes, names(files), files.counters.written_bytes
    for key in ("b", "c"):
        with pytest.raises(OSError) as caught:
            files[key] = values * 2
        assert caught.value.errno == code
    after = files.disk_bytes, files.memory_bytes, names(files), files.counters.written_bytes
    assert before == after
    assert sorted(files) == ["a", "b"]
    assert files["b"] == values
    del files["a"]
    files["c"] = values
    assert files["c"] == values
    files.close()
    assert not files.directory.exists()


@pytest.mark.processes
def test_full_disk_is_an_error_that_changes_nothing(small_disk: Path) -> None:
    check_failed_write(SpillFiles(small_disk / "files"), errno.ENOSPC)


def test_file_that_may_not_grow_is_an_error_that_changes_nothing(small_files: Path) -> None:
    check_failed_write(SpillFiles(small_files / "files"), errno.EFBIG)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=repr)
def test_half_a_file_is_removed(
    files: SpillFiles, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def half(file: Any, header: bytes, *parts: Any) -> int:
        file.write(header)
        assert [name.endswith(".partial") for name in names(files)].count(True) == 1
        raise error

    files["key"] = 1
    before = names(files)
    monkeypatch.setattr(frames, "write", half)
    with pytest.raises(type(error)):
        files["key"] = 2
    assert (files["key"], names(files)) == (1, before)


KILLED = """
import resource, signal, sys
from gpusched.workers.memory.spillfiles import SpillFiles
files = SpillFiles(sys.argv[1])
files["whole"] = "whole"
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
# Python ignores the signal that the kernel sends; without that it ends the process in its write.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
files["half"] = __import__("os").urandom(1_000_000)
"""


@pytest.mark.processes
def test_process_that_is_killed_leaves_no_half_file_under_its_name(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGXFSZ
    (partial,) = tmp_path.glob("*.partial")
    assert partial.stat().st_size == 300_000
    (path,) = tmp_path.glob("*.spill")
    with open(path, "rb") as file:
        frames.read(file, path.stat().st_size)
