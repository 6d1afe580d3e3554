"""What was spilled is damaged, gone, or cannot be written: never wrong data, and no hang."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import wait

from tests.disks import mounted
from tests.waiting import PATIENCE, wait_for

from .conftest import Harmed

Start = Callable[..., Harmed]

CHUNKS, CHUNK = 40, 1_000_000
SMALL = {"memory_limit": "400 MiB"}


def spill_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.spill"))


def flip(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 16]))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": flip,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "deleted": Path.unlink,
}


def even(block_id: tuple[int]) -> np.ndarray:
    start = block_id[0] * CHUNK
    return np.arange(start, start + CHUNK) * 2.0


def fill(harmed: Harmed) -> da.Array:
    """Keep more in the workers' memory than they may hold.

    One task makes each chunk: files of intermediate results would go away under the test's hands.
    """
    x = da.map_blocks(even, chunks=((CHUNK,) * CHUNKS,), dtype=float).persist()
    wait(x)
    return x


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_files_are_computed_again(start: Start, tmp_path: Path, damage: str) -> None:
    harmed = start(1, **SMALL)
    x = fill(harmed)
    files = wait_for(lambda: len(spill_files(tmp_path)) >= 8 and spill_files(tmp_path))
    for path in files[::2]:
        DAMAGES[damage](path)
    np.testing.assert_array_equal(x[::1000].compute(), np.arange(0, CHUNKS * CHUNK, 1000) * 2.0)
    lost = [event for _, event in harmed.client.get_events("gpusched-lost")]
    assert lost
    assert all("spill" in event["reason"] for event in lost)


@pytest.mark.parametrize(
    "damage",
    [pytest.param(d, marks=pytest.mark.essential if d == "flipped" else ()) for d in DAMAGES],
)
def test_damaged_file_that_a_client_asks_for(start: Start, tmp_path: Path, damage: str) -> None:
    harmed = start(1, **SMALL)
    futures = harmed.client.map(lambda k: np.full(CHUNK, float(k)), range(CHUNKS))
    wait(futures)
    wait_for(lambda: len(spill_files(tmp_path)) >= 8)
    for path in spill_files(tmp_path):
        DAMAGES[damage](path)
    for k in (0, 1, 2):
        np.testing.assert_array_equal(futures[k].result(timeout=PATIENCE), np.full(CHUNK, float(k)))


def test_damaged_file_that_another_worker_asks_for(start: Start, tmp_path: Path) -> None:
    harmed = start(2, **SMALL)
    # On one worker alone: two would have room for them, and one that pauses would leave some to
    # the other.
    futures = harmed.client.map(lambda k: np.full(CHUNK, float(k)), range(CHUNKS), workers=[0])
    wait(futures)
    wait_for(lambda: len(spill_files(tmp_path)) >= 8)
    for path in spill_files(tmp_path):
        flip(path)
    sums = harmed.client.map(lambda x: float(x[0]), futures, workers=[1])
    assert harmed.client.gather(sums) == [float(k) for k in range(CHUNKS)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "60m", "--lazy") as folder:
        yield folder


def test_full_disk_pauses_the_worker_and_says_so(start: Start, small_disk: Path) -> None:
    options = {"local_directory": str(small_disk)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        harmed = start(1, worker_options=options, **SMALL)
        x = [harmed.client.submit(noise, k) for k in range(60)]
        wait_for(lambda: any("cannot spill" in str(w.message) for w in told))
        wait_for(lambda: statuses(harmed) == ["paused"])
    (message, *_) = [str(w.message) for w in told if "cannot spill" in str(w.message)]
    assert str(small_disk) in message
    assert "No space left on device" in message
    # What has been computed is right, wherever it lies, and with less to keep the worker goes on.
    done = [k for k, future in enumerate(x) if future.status == "finished"]
    for k in (done[0], done[-1]):
        np.testing.assert_array_equal(x[k].result(timeout=PATIENCE), noise(k))
    del x[2:]
    wait_for(lambda: statuses(harmed) == ["running"])
    assert harmed.client.submit(lambda: 7).result(timeout=PATIENCE) == 7


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(CHUNK)


def statuses(harmed: Harmed) -> list[str]:
    return [
        w["status"]
        for w in harmed.client.sync(harmed.client.scheduler.identity)["workers"].values()
    ]


class Unpicklable:
    """Can be written, and never read."""

    def __init__(self) -> None:
        self.weight = np.ones(CHUNK)

    def __sizeof__(self) -> int:
        return self.weight.nbytes

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("told by the value")


def test_value_that_cannot_be_read_is_an_error_and_no_endless_loop(start: Start) -> None:
    harmed = start(1, memory_limit="400 MiB")
    made = harmed.client.submit(Unpicklable)
    wait(made)
    others = [harmed.client.submit(noise, k) for k in range(40)]
    wait(others)
    used = harmed.client.submit(lambda value: value.weight[0], made)
    with pytest.raises(RuntimeError, match="told by the value"):
        used.result(timeout=PATIENCE)
