"""The container of frames: what was written comes back, or it is said that it does not."""

from __future__ import annotations

import io
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.serialization.frames import CorruptFrameError, read, write

lists_of_frames = st.lists(st.binary(max_size=200), max_size=5)


def written(header: bytes, frames: list[bytes]) -> bytes:
    file = io.BytesIO()
    size = write(file, header, frames)
    assert size == len(file.getvalue())
    return file.getvalue()


def loaded(content: bytes) -> tuple[bytes, list[bytes]]:
    header, frames = read(io.BytesIO(content), len(content))
    return header, [bytes(frame) for frame in frames]


@given(st.binary(max_size=100), lists_of_frames)
def test_what_was_written_comes_back(header: bytes, frames: list[bytes]) -> None:
    assert loaded(written(header, frames)) == (header, frames)


@pytest.mark.parametrize("shape", [(3, 4), (0,), (0, 5), ()])
def test_frames_of_any_format(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, "f8")
    _, (frame,) = loaded(written(b"", [array.data]))
    assert frame == array.tobytes()


def test_frames_can_be_written_to() -> None:
    content = written(b"", [b"abc"])
    _, (frame,) = read(io.BytesIO(content), len(content))
    memoryview(frame)[0] = 1


@given(st.binary(max_size=50), lists_of_frames, st.data())
def test_every_flipped_bit_is_found(
    header: bytes, frames: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(written(header, frames))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptFrameError):
        loaded(bytes(content))


@given(lists_of_frames, st.data())
def test_missing_and_additional_bytes_are_found(frames: list[bytes], data: st.DataObject) -> None:
    content = written(b"header", frames)
    with pytest.raises(CorruptFrameError):
        loaded(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(CorruptFrameError):
        loaded(content + data.draw(st.binary(min_size=1, max_size=20)))


@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptFrameError):
        loaded(content)


@pytest.mark.parametrize("place", ["<I", "frames", "<Q"], ids=["header", "count", "total"])
def test_lengths_that_claim_terabytes_allocate_nothing(place: str) -> None:
    content = bytearray(written(b"header", [b"x" * 100]))
    offset, packed = {
        "<I": (12, struct.pack("<I", 2**32 - 1)),
        "frames": (16, struct.pack("<I", 2**32 - 1)),
        "<Q": (24, struct.pack("<Q", 2**50)),
    }[place]
    content[offset : offset + len(packed)] = packed
    tracemalloc.start()
    with pytest.raises(CorruptFrameError):
        read(io.BytesIO(content), len(content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_file_that_writes_in_small_steps() -> None:
    class Slow(io.RawIOBase):
        content = b""

        def write(self, data: memoryview) -> int:  # type: ignore[override]
            self.content += bytes(data[:7])
            return min(7, len(data))

    slow = Slow()
    size = write(slow, b"header", [b"x" * 100])
    assert loaded(slow.content) == (b"header", [b"x" * 100])
    assert size == len(slow.content)
