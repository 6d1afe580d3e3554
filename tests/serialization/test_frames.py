"""The container of frames: what was written comes back, or it is said that it does not."""

from __future__ import annotations

import io
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.serialization import frames as module
from gpusched.serialization.frames import CorruptFrameError, read, write

lists_of_frames = st.lists(st.binary(max_size=200), max_size=5)
arrays = hnp.arrays(
    st.sampled_from(["u1", "i2", "f4", "f8", "c16", "?"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
SAMPLE = [b"first", b"", bytes(range(256))]


def written(header: bytes, frames: Any) -> bytes:
    file = io.BytesIO()
    size = write(file, header, frames)
    assert size == len(file.getvalue())
    return file.getvalue()


def loaded(content: bytes | bytearray) -> tuple[bytes, list[bytes]]:
    header, frames = read(io.BytesIO(content), len(content))
    return header, [bytes(frame) for frame in frames]


def sealed(content: bytes | bytearray) -> bytes:
    """Return the bytes with a checksum that fits them, as one who forges them would."""
    return bytes(content[:-8]) + struct.pack("<Q", checksum(content))


def checksum(content: bytes | bytearray) -> int:
    header, count = struct.unpack_from("<II", content, 12)
    before_frames = 28 + 8 * count + header
    return xxhash.xxh3_64_intdigest(content[before_frames:-8] + content[:before_frames])


@given(st.binary(max_size=100), lists_of_frames)
def test_what_was_written_comes_back(header: bytes, frames: list[bytes]) -> None:
    assert loaded(written(header, frames)) == (header, frames)


@given(st.lists(arrays, max_size=3), st.sampled_from("CF"))
def test_frames_of_any_format_and_shape(values: list[np.ndarray], order: Any) -> None:
    views = [memoryview(np.asarray(value, order=order)) for value in values]
    _, frames = loaded(written(b"", views))
    assert frames == [value.tobytes(order) for value in values]


def test_frames_longer_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [bytes(range(100)), b"x" * 64, b""]
    content = written(b"header", frames)
    monkeypatch.setattr(module, "_STEP", 32)
    assert written(b"header", frames) == content
    assert loaded(content) == (b"header", frames)


def test_layout_is_the_documented_one() -> None:
    fixed = b"gpusched" + struct.pack("<HHIIQ", 2, 0, 3, 2, 28 + 16 + 3 + 3 + 8)
    content = fixed + struct.pack("<QQ", 1, 2) + b"abc" + b"1" + b"23"
    assert written(b"abc", [b"1", b"23"]) == sealed(content + bytes(8))


def test_frames_can_be_written_to_and_do_not_share_memory() -> None:
    content = written(b"", [b"abc", b"def"])
    _, (first, second) = read(io.BytesIO(content), len(content))
    first[:] = b"xyz"
    assert bytes(second) == b"def"


@pytest.mark.parametrize("place", range(len(written(b"header", SAMPLE))))
def test_every_changed_byte_is_found(place: int) -> None:
    content = bytearray(written(b"header", SAMPLE))
    for bits in (1, 0x80, 0xFF):
        content[place] ^= bits
        with pytest.raises(CorruptFrameError):
            loaded(content)
        content[place] ^= bits


@given(st.binary(max_size=50), lists_of_frames, st.data())
def test_every_flipped_bit_is_found(
    header: bytes, frames: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(written(header, frames))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptFrameError):
        loaded(content)


def test_every_truncation_is_found() -> None:
    content = written(b"header", SAMPLE)
    for length in range(len(content)):
        with pytest.raises(CorruptFrameError):
            loaded(content[:length])


@given(lists_of_frames, st.binary(min_size=1, max_size=20))
def test_appended_bytes_are_found(frames: list[bytes], more: bytes) -> None:
    with pytest.raises(CorruptFrameError, match="total length"):
        loaded(written(b"header", frames) + more)


def test_file_that_is_cut_while_it_is_read() -> None:
    content = written(b"header", SAMPLE)
    for length in range(len(content)):
        with pytest.raises(CorruptFrameError, match="end of the file: expected"):
            read(io.BytesIO(content[:length]), len(content))


@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused(content: bytes) -> None:
    for prefix in (b"", b"gpusched", b"gpusched\x01\x00\x00\x00"):
        with pytest.raises(CorruptFrameError):
            loaded(prefix + content)


@given(st.data())
def test_forged_lengths_are_refused(data: st.DataObject) -> None:
    content = bytearray(written(b"header", [b"x" * 100, b"y"]))
    format_, offset = data.draw(st.sampled_from([("<I", 12), ("<I", 16), ("<Q", 20), ("<Q", 28)]))
    true = struct.unpack_from(format_, content, offset)[0]
    limit = 2 ** (8 * struct.calcsize(format_)) - 1
    forged = data.draw(st.integers(0, limit).filter(lambda value: value != true))
    struct.pack_into(format_, content, offset, forged)
    with pytest.raises(CorruptFrameError, match="length"):
        loaded(sealed(content))


@pytest.mark.parametrize(
    ("format_", "offset", "claim"),
    [
        ("<I", 12, 2**32 - 1),
        ("<I", 16, 2**32 - 1),
        ("<Q", 20, 2**44),
        ("<Q", 28, 2**44),
        ("<Q", 28, 2**64 - 1),
    ],
    ids=["header", "count", "total", "frame", "longest frame"],
)
def test_lengths_that_claim_terabytes_allocate_nothing(
    format_: str, offset: int, claim: int
) -> None:
    content = bytearray(written(b"header", [b"x" * 100]))
    struct.pack_into(format_, content, offset, claim)
    forged = io.BytesIO(sealed(content))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFrameError):
            read(forged, len(content))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (0, "magic: expected b'gpusched', found b'fpusched'"),
        (8, "format version: expected 2, found 3"),
        (10, "flags: expected 0, found 1"),
        (20, "total length: expected 51, found 50"),
        (28, "sum of all lengths: expected 51, found 50"),
    ],
)
def test_message_names_the_check_and_both_values(offset: int, message: str) -> None:
    content = bytearray(written(b"head", [b"abc"]))
    content[offset] ^= 1
    with pytest.raises(CorruptFrameError, match=re.escape(message)):
        loaded(sealed(content))


def test_message_tells_both_checksums() -> None:
    content = bytearray(written(b"head", [b"abc"]))
    expected = content[-8:][::-1].hex()
    content[-9] ^= 1
    found = f"{checksum(content):016x}"
    message = f"checksum: expected '{expected}', found '{found}'"
    with pytest.raises(CorruptFrameError, match=message):
        loaded(content)


class Raw(io.RawIOBase):
    """A file without a buffer that moves few bytes at a time."""

    def __init__(self, content: bytes = b"", step: int | None = 7) -> None:
        self.content, self.step, self.place = content, step, 0

    def write(self, data: Any) -> int | None:
        piece = bytes(data[: self.step or 0])
        self.content = self.content[: self.place] + piece + self.content[self.place + len(piece) :]
        self.place += len(piece)
        return self.step and len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = offset
        return offset

    def readinto(self, buffer: Any) -> int | None:
        piece = self.content[self.place : self.place + min(self.step or 0, len(buffer))]
        buffer[: len(piece)] = piece
        self.place += len(piece)
        return len(piece)


def test_file_that_moves_few_bytes_at_a_time() -> None:
    slow = Raw()
    size = write(slow, b"header", [b"x" * 100])
    assert slow.content == written(b"header", [b"x" * 100])
    slow.seek(0)
    _, (frame,) = read(slow, size)
    assert bytes(frame) == b"x" * 100


@pytest.mark.parametrize("step", [None, 0], ids=["would block", "takes nothing"])
def test_file_that_takes_nothing_is_an_error(step: int | None) -> None:
    with pytest.raises(OSError, match="takes none of the last 44 bytes"):
        write(Raw(step=step), b"header12", [b""])


def test_nothing_valid_is_written_of_what_cannot_be() -> None:
    file = io.BytesIO()
    with pytest.raises(ValueError, match="frame 1 is not contiguous: copy it first"):
        write(file, b"", [b"x", memoryview(np.arange(6)[::2])])
    with pytest.raises(ValueError, match="a header of 4294967296 bytes"):
        write(file, bytes(2**32), [])
    with pytest.raises(CorruptFrameError, match="magic"):
        loaded(file.getvalue())


def test_frames_that_are_made_while_they_are_written() -> None:
    file = io.BytesIO()
    write(file, b"header", (b"x" * k for k in range(3)), count=3)
    assert file.getvalue() == written(b"header", [b"", b"x", b"xx"])


def test_large_frames_are_neither_joined_nor_read_twice(tmp_path: Path) -> None:
    frame = np.random.default_rng(0).bytes(8_000_000)
    path = tmp_path / "frames"
    tracemalloc.start()
    try:
        with open(path, "wb", buffering=0) as file:
            size = write(file, b"", [frame, frame])
        assert tracemalloc.get_traced_memory()[1] < 100_000
        with open(path, "rb", buffering=0) as file:
            _, frames = read(file, size)
        assert tracemalloc.get_traced_memory()[1] < 16_200_000
    finally:
        tracemalloc.stop()
    assert frames == [frame, frame]
