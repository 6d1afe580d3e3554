"""Values in files: read as written, or told to be lost."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import numpy as np
import pytest

from gpusched.workers.memory.spillfiles import LostValueError, SpillFiles

from .contract import check_different_keys_threadsafe, check_mapping


@pytest.fixture
def files(tmp_path: Path) -> SpillFiles:
    return SpillFiles(tmp_path / "files")


def test_is_a_mapping(files: SpillFiles) -> None:
    check_mapping(files)


def test_threads_with_keys_of_their_own(files: SpillFiles) -> None:
    check_different_keys_threadsafe(files)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6),
        np.asfortranarray(np.arange(24.0).reshape(4, 6)),
        np.arange(24.0)[::-2],
        np.broadcast_to(np.float32(1), (100, 100)),
        np.zeros((0, 3)),
        np.array(5),
        np.arange(5, dtype=">i4"),
        np.array(["a", "bc"], dtype=object),
        np.array(["2026-11-21", "NaT"], dtype="M8[s]"),
        np.random.default_rng(0).random(100_000),
        np.zeros(1_000_000, "i2"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
@pytest.mark.parametrize("compression", [False, "auto", "lz4"])
def test_arrays_come_back(files: SpillFiles, array: np.ndarray, compression: object) -> None:
    with dask.config.set({"distributed.worker.memory.spill-compression": compression}):
        files["key"] = array
        found = files["key"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_array_can_be_written_to(files: SpillFiles) -> None:
    files["key"] = np.arange(10)
    found = files["key"]
    found[0] = 7


def test_compression_is_the_one_that_distributed_would_use(files: SpillFiles) -> None:
    zeros = np.zeros(1_000_000)
    with dask.config.set({"distributed.worker.memory.spill-compression": "lz4"}):
        files["key"] = zeros
    assert files.disk_bytes < zeros.nbytes / 10
    assert files.memory_bytes >= zeros.nbytes
    assert files.counters.written_bytes == files.disk_bytes


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(
        path.read_bytes()[:500] + bytes([path.read_bytes()[500] ^ 1]) + path.read_bytes()[501:]
    ),
    "truncated": lambda path: os.truncate(path, 700),
    "emptied": lambda path: os.truncate(path, 0),
    "extended": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "deleted": Path.unlink,
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir()),
    "other content": lambda path: path.write_text("gpusched" * 1000),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_file_is_a_lost_value(files: SpillFiles, damage: str) -> None:
    files["kept"], files["key"] = 1, np.arange(1000)
    (path,) = [p for p in files.directory.iterdir() if p.stat().st_size > 1000]
    DAMAGES[damage](path)
    with pytest.raises(LostValueError) as caught:
        files["key"]
    assert "'key'" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "key" not in files
    with pytest.raises(KeyError):
        files["key"]
    assert (files["kept"], files.counters.lost) == (1, 1)


def test_value_that_cannot_be_serialized_changes_nothing(files: SpillFiles) -> None:
    files["key"] = 1
    with pytest.raises(TypeError, match="'key', a lock"):
        files["key"] = threading.Lock()
    assert files["key"] == 1
    assert len(list(files.directory.iterdir())) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_an_error_that_changes_nothing(small_disk: Path) -> None:
    files = SpillFiles(small_disk / "files")
    values = np.random.default_rng(0).bytes(100_000)
    files["a"], files["b"] = values, values
    with pytest.raises(OSError, match="No space left"):
        files["b"] = values + b"another"
    with pytest.raises(OSError, match="No space left"):
        files["c"] = values
    assert sorted(files) == ["a", "b"]
    assert files["b"] == values
    assert len(list(files.directory.iterdir())) == 2
    del files["a"]
    files["c"] = values
    assert files["c"] == values
    files.close()


def test_closing_removes_everything(files: SpillFiles) -> None:
    files["a"] = 1
    files.close()
    files.close()
    assert not files.directory.exists()
