"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.disks import mounted

NOISE = np.random.default_rng(0).bytes(400_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "256k") as folder:
        yield folder


def noise() -> da.Array:
    return da.from_array(np.frombuffer(NOISE, "u1"), chunks=100_000)


def test_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Path) -> None:
    gpusched.save(small_disk / "x", da.ones(3) + 1)
    before = (small_disk / "x").read_bytes()
    with pytest.raises(OSError) as caught:
        gpusched.save(small_disk / "x", noise())
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(small_disk) == ["x"]
    assert (small_disk / "x").read_bytes() == before
    gpusched.save(small_disk / "x", da.ones(4) + 1)
    assert gpusched.load(small_disk / "x").shape == (4,)


def test_missing_folder_is_what_open_says(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gpusched.save(tmp_path / "missing" / "x", noise())


def test_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        gpusched.save(tmp_path, noise())
    assert list(tmp_path.parent.glob(".*.part")) == []


def test_file_is_as_readable_as_others(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", noise())
    (tmp_path / "y").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "xy"}
    assert len(modes) == 1


def test_two_writers_and_a_reader_at_once(tmp_path: Path) -> None:
    arrays = [da.full(30_000, k, chunks=10_000) + da.from_array(np.arange(30_000)) for k in (0, 1)]
    gpusched.save(tmp_path / "x", arrays[0])
    failures: list[BaseException] = []

    def write(k: int) -> None:
        try:
            for _ in range(20):
                gpusched.save(tmp_path / "x", arrays[k])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    writers = [threading.Thread(target=write, args=(k,)) for k in (0, 1)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = gpusched.load(tmp_path / "x").compute(scheduler="sync")
        assert (found - found[0] == np.arange(30_000)).all()
        seen.add(int(found[0]))
    for writer in writers:
        writer.join()
    assert not failures
    assert seen <= {0, 1}
    assert os.listdir(tmp_path) == ["x"]


def test_many_arrays_and_large_ones(tmp_path: Path) -> None:
    smooth = np.arange(4_000_000, dtype="f4").reshape(2000, 2000)
    gpusched.save(tmp_path / "x", da.from_array(smooth, chunks=1000).T[::-1])
    assert (tmp_path / "x").stat().st_size < smooth.nbytes / 2
    found = gpusched.load(tmp_path / "x").compute(scheduler="threads")
    np.testing.assert_array_equal(found, smooth.T[::-1])
