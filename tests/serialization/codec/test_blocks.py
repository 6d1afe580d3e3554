"""Blocks: the bytes come back, and damaged blocks neither crash nor take memory."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.serialization.codec import blocks, blosc
from gpusched.serialization.frames import CorruptFrameError
from tests.waiting import PATIENCE

SHORT = 1 << 10
"""Bytes of a block here, so that short buffers have several."""

shuffles = st.sampled_from(sorted(blosc.SHUFFLES))
itemsizes = st.sampled_from([1, 2, 3, 4, 8, 12, 16, 32, 255, 256, 1000])


@pytest.fixture(autouse=True, scope="module")
def _short_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", SHORT)
        yield


@st.composite
def buffers(draw: Any) -> np.ndarray:
    """Of lengths near those of whole blocks, from constant to noise."""
    length = draw(st.integers(0, 3)) * SHORT + draw(st.integers(-3, 3))
    different = draw(st.sampled_from([1, 2, 256]))
    seed = draw(st.integers(0, 9))
    return np.random.default_rng(seed).integers(0, different, max(length, 0), np.uint8)


@given(buffers(), itemsizes, shuffles)
def test_bytes_come_back(data: np.ndarray, itemsize: int, shuffle: str) -> None:
    coded = blocks.encode(data, itemsize, shuffle)
    assert len(coded) == -(-data.nbytes // SHORT)
    assert blocks.decode(coded, data.nbytes, SHORT).tobytes() == data.tobytes()


def test_compressed_blocks_go_while_they_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(20 * SHORT, dtype=np.uint8)
    frames = blocks.encode(data, 1, "none")
    left = []
    real = blocks.blosc.decompress

    def decompress(*arguments: Any) -> None:
        left.append(len(frames))
        real(*arguments)

    monkeypatch.setattr(blocks.blosc, "decompress", decompress)
    monkeypatch.setattr(blocks, "threads", lambda: 1)
    assert (blocks.decode(frames, data.nbytes, SHORT, release=True) == data).all()
    assert (len(left), left[0] > 10, left[-1], frames) == (20, True, 0, [])


@given(buffers(), itemsizes, shuffles)
def test_pending_blocks_become_the_same(data: np.ndarray, itemsize: int, shuffle: str) -> None:
    pending = blocks.pending(data, itemsize, shuffle)
    assert list(blocks.completed(pending)) == blocks.encode(data, itemsize, shuffle)


def test_few_blocks_are_compressed_ahead_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Semaphore(0)

    class Counted(blocks.Pending):
        def encode(self) -> bytes:
            coded = super().encode()
            done.release()
            return coded

    data = np.zeros(SHORT, np.uint8)
    made = blocks.completed(Counted(data, 1, "none") for _ in range(1000))
    next(made)
    for _ in range(blocks.threads() + 1):
        assert done.acquire(timeout=PATIENCE)
    assert not done.acquire(blocking=False)


def test_frames_that_are_not_pending_stay_in_their_places() -> None:
    (pending,) = blocks.pending(np.zeros(9, np.uint8), 1, "none")
    first, second, third = blocks.completed([b"first", pending, b"third"])
    assert (first, third) == (b"first", b"third")
    assert blocks.decode([second], 9, SHORT).tobytes() == bytes(9)


@given(buffers(), itemsizes, shuffles, st.randoms(use_true_random=False))
def test_damaged_blocks_are_refused_or_fill_their_buffer(
    data: np.ndarray, itemsize: int, shuffle: str, chance: random.Random
) -> None:
    """Wrong bytes between the lengths are the checksum's matter, over this."""
    frames = damaged(blocks.encode(data, itemsize, shuffle), chance)
    try:
        found = blocks.decode(frames, data.nbytes, SHORT)
    except CorruptFrameError:
        return
    assert found.shape == data.shape


def damaged(frames: list[bytes], chance: random.Random) -> list[bytes]:
    """Return the frames with some bytes, a length or their number changed."""
    changed = [bytearray(frame) for frame in frames]
    for _ in range(chance.randint(1, 4)):
        if not changed:
            return [chance.randbytes(chance.randint(0, 100))]
        frame = chance.choice(changed)
        match chance.randint(0, 4):
            case 0 | 1 if frame:
                # More often in the header, with its lengths and offsets.
                place = chance.randrange(min(len(frame), chance.choice([40, len(frame)])))
                frame[place] = chance.randrange(256)
            case 2:
                del frame[chance.randint(0, len(frame)) :]
            case 3:
                frame += chance.randbytes(chance.randint(1, 50))
            case 4:
                changed.remove(frame)
    return [bytes(frame) for frame in changed]


@pytest.mark.parametrize("nbytes", [1 << 40, 1 << 62, -1, 1.0, None, True])
def test_bomb_is_refused_before_memory_is_taken(nbytes: Any) -> None:
    (coded,) = blocks.encode(np.zeros(SHORT, np.uint8), 1, "none")
    # A header that agrees with what is claimed.
    claimed = coded[:4] + struct.pack("<I", 1 << 30) + coded[8:]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFrameError, match=r"compressed blocks|lengths of a buffer"):
            blocks.decode([claimed] * 1024, nbytes, 1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("block", [0, -1, 1 << 31, "1", None])
def test_length_of_blocks_is_checked(block: Any) -> None:
    with pytest.raises(CorruptFrameError, match="lengths of a buffer and its blocks"):
        blocks.decode([b""], 9, block)


def test_block_that_says_another_length_is_named() -> None:
    coded = blocks.encode(np.zeros(2 * SHORT, np.uint8), 1, "none")
    coded[1] = coded[1][:4] + struct.pack("<I", SHORT - 1) + coded[1][8:]
    with pytest.raises(CorruptFrameError, match=rf"block 1, .* expected \({SHORT}, "):
        blocks.decode(coded, 2 * SHORT, SHORT)


@pytest.mark.processes
def test_forked_process_has_threads_of_its_own() -> None:
    """distributed's own workers may be forked, after this process has compressed something."""
    program = """
import os
import numpy as np
from gpusched.serialization.codec import blocks, blosc
data = np.zeros(3 * blocks.BLOCK, np.uint8)
blocks.encode(data, 1, "none")
child = os.fork()
blocks.encode(data, 1, "none")
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=PATIENCE, check=True)
