"""Damage to messages and files, made from any bytes; used by tests and by the fuzzer.

`check` is for a fuzzer: it reads its choices from the bytes it is given, so that one who sees which
branches were taken can steer it.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from gpusched.serialization import frames, sealed, strided
from gpusched.serialization.codec import blocks, blosc
from gpusched.serialization.codec.link import KEY, Link
from gpusched.serialization.frames import CorruptFrameError

SLOW = {"recipient": {KEY: Link(1.0)}}
"""A connection for which everything is compressed that can be."""

BLOCK = 1 << 16
"""Bytes of a block, so that short arrays have several; long enough to be worth a look."""


class Choices:
    """Numbers from bytes, zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def below(self, end: int) -> int:
        """Return a number from 0 to below `end`, 0 if that is 0."""
        length = max(1, (end.bit_length() + 7) // 8)
        return int.from_bytes(self._file.read(length), "little") % end if end else 0

    def of(self, options: Sequence[Any]) -> Any:
        """Return one of them."""
        return options[self.below(len(options))]

    def bytes(self, most: int) -> bytes:
        """Return some bytes."""
        return self._file.read(self.below(most + 1))

    def number(self) -> Any:
        """Return a number such as descriptions hold, or what should not be there."""
        return self.of(
            [0, 1, -1, self.below(256), -self.below(256), self.below(1 << 32), 1 << 40, 1 << 62,
             -(1 << 62), 1.5, None, True, "8", b"", [], {}]
        )  # fmt: skip


@functools.cache
def arrays() -> tuple[np.ndarray, ...]:
    """Return arrays of several kinds, all of which survive a message."""
    count = np.arange(50_000)
    return (
        np.array(7.5),
        np.empty((0, 3), "f4"),
        np.arange(6.0).reshape(2, 3).T[::-1],
        np.broadcast_to(np.array([1, 2], ">i2"), (5, 2)),
        np.array(["2026-11-20"], "M8[s]"),
        count.astype("f4"),
        count[::-1].reshape(100, 500).T,
        (count % 3 == 0),
        np.zeros(300_000, [("a", "f8"), ("b", "i2")])[:20_000],
    )


@functools.cache
def _messages() -> tuple[strided.Message, ...]:
    with _short_blocks():
        return tuple(strided.pack(array, how) for array in arrays() for how in (None, SLOW))


@contextmanager
def _short_blocks() -> Iterator[None]:
    before, blocks.BLOCK = blocks.BLOCK, BLOCK
    try:
        yield
    finally:
        blocks.BLOCK = before


def damage(buffers: list[bytes], choices: Choices) -> list[bytes]:
    """Return buffers with bytes, lengths, order or number changed; perhaps the same."""
    changed = [bytearray(buffer) for buffer in buffers]
    for _ in range(1 + choices.below(4)):
        if not changed:
            break
        number = choices.below(len(changed))
        buffer = changed[number]
        place = choices.below(len(buffer) + 1)
        match choices.below(7):
            case 0 | 1 if place < len(buffer):
                buffer[place] ^= 1 << choices.below(8)
            case 2:
                buffer[place : place + 8] = choices.bytes(16)
            case 3:
                del buffer[place:]
            case 4:
                buffer[place:place] = choices.bytes(64)
            case 5:
                del changed[number]
            case 6:
                changed.append(changed.pop(number))
    return [bytes(buffer) for buffer in changed]


def check(data: bytes) -> None:
    """Damage something, read it, and fail unless that is refused or what comes out is right."""
    choices = Choices(data)
    choices.of(_TARGETS)(choices)


def _check_message(choices: Choices) -> None:
    number = choices.below(len(_messages()))
    header, parts = _messages()[number]
    first, *rest = damage([header["gpusched"], *_plain(parts)], choices) or [b""]
    try:
        found, _ = strided.unpack({**header, "gpusched": first}, rest)
    except CorruptFrameError:
        return
    expected = arrays()[number // 2]
    assert found.dtype == expected.dtype
    assert found.strides == expected.strides or expected.size < 2 or not expected.flags.forc
    np.testing.assert_array_equal(found, expected, strict=True)


def _check_forged(choices: Choices) -> None:
    """Someone has sealed other numbers: any array within the frames is right."""
    header, parts = choices.of(_messages())
    about = sealed.unseal(header["gpusched"], parts)
    for _ in range(1 + choices.below(3)):
        match choices.below(5):
            case 0:
                about[choices.of(["nbytes", "offset"])] = choices.number()
            case 1:
                about[choices.of(["shape", "strides"])] = [
                    choices.number() for _ in range(choices.below(4))
                ]
            case 2:
                about["codec"] = choices.of([None, [], ["blosc-lz4", choices.number()], "zip"])
            case 3:
                about[choices.of([*about, "other"])] = choices.number()
            case 4:
                about["dtype"] = _dtype(choices)
    lengths = about.pop("lengths", None)
    plain = damage(_plain(parts), choices) if choices.below(2) else _plain(parts)
    seal = sealed.seal(about, plain)
    if lengths is None:
        seal = sealed.contain(about)
    try:
        found, _ = strided.unpack({"gpusched": seal}, plain)
    except CorruptFrameError:
        return
    except ModuleNotFoundError as error:
        assert error.name == "ml_dtypes"  # noqa: PT017  most damage raises nothing
        return
    # Such as repeat one element a trillion times are arrays too.
    found[(slice(100),) * found.ndim].tobytes()


def _dtype(choices: Choices) -> Any:
    """Return what is said of a dtype: perhaps one in another, with a number that should not be."""
    plain = [
        "<f8",
        "|O",
        "V9",
        "U1000000000",
        "M8[7s]",
        "f4,i8",
        choices.bytes(20).decode("latin1"),
    ]
    match choices.below(5):
        case 0 | 1:
            return choices.of(plain)
        case 2:
            return ["array", _dtype(choices), [choices.number()]]
        case 3:
            field = ["x", _dtype(choices), choices.number()]
            return ["fields", [field, *[field] * choices.below(2)], choices.number(), False]
    return ["ml_dtypes", choices.of(["bfloat16", "finfo", "__name__", choices.number()])]


def _check_description(choices: Choices) -> None:
    """Whatever msgpack can hold, or cannot."""
    body = choices.bytes(200)
    fixed = sealed._FIXED.pack(sealed.MAGIC_CONTAINED, sealed.VERSION, 0)
    try:
        strided.unpack({"gpusched": fixed + body}, [choices.bytes(50)])
    except CorruptFrameError:
        return
    assert isinstance(msgpack.unpackb(body), dict)


def _check_file(choices: Choices) -> None:
    content = _file()
    (changed,) = damage([content], choices)[:1] or [b""]
    try:
        header, parts = frames.read(io.BytesIO(changed), len(changed))
    except CorruptFrameError:
        return
    assert changed == content
    assert (header, [bytes(part) for part in parts]) == (b"header", [b"first", b"", b"third" * 9])


@functools.cache
def _file() -> bytes:
    file = io.BytesIO()
    frames.write(file, b"header", [b"first", b"", b"third" * 9])
    return file.getvalue()


def _check_blocks(choices: Choices) -> None:
    """Without a checksum over them: the library must keep within its buffers."""
    coding = choices.of(_coded())
    coded = damage(list(coding.coded), choices)
    try:
        assert blocks.decode(coded, coding.nbytes, BLOCK).nbytes == coding.nbytes
    except CorruptFrameError:
        return


@dataclass(frozen=True)
class _Coding:
    nbytes: int
    coded: tuple[bytes, ...]


@functools.cache
def _coded() -> tuple[_Coding, ...]:
    with _short_blocks():
        return tuple(
            _Coding(data.nbytes, tuple(blocks.encode(data, itemsize, shuffle)))
            for data in (np.arange(2000).view("u1"), np.zeros(BLOCK + 9, "u1"))
            for itemsize in (1, 8)
            for shuffle in blosc.SHUFFLES
        )


def _plain(parts: list[Any]) -> list[bytes]:
    return [bytes(part) for part in parts]


_TARGETS: list[Callable[[Choices], None]] = [
    _check_message,
    _check_forged,
    _check_description,
    _check_file,
    _check_blocks,
]
