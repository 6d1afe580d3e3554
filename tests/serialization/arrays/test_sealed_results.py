"""Results of one worker as one message: whatever changes in it is noticed."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from distributed import protocol
from distributed.protocol import to_serialize

from gpusched.serialization.arrays.sealed_results import Results
from gpusched.serialization.frames import CorruptFrameError
from gpusched.workers.outgoing import checked

DATA = {
    "bytes": b"as they are",
    ("a tuple", 1): {"some": b"bytes", "numbers": np.arange(3), 3: [1, {"two"}]},
    "array": np.arange(6.0).reshape(2, 3).T,
    "arrays": [np.ones(2), np.zeros(1, "i1")],
    "text": "pickled",
    "buffers": Exception(bytearray(b"out of band")),
}


def written(data: dict[Any, Any], **context: Any) -> list[Any]:
    """Return the frames of what a worker sends."""
    message = {"status": "OK", "data": to_serialize(Results(data))}
    return [bytes(frame) for frame in protocol.dumps(message, context=context)]


def same(found: Any, expected: Any) -> bool:
    return repr(found) == repr(expected)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_results_arrive_as_they_were(compression: str | None) -> None:
    data = {**DATA, "long": b"0" * 100_000, "large": np.zeros(100_000)}
    frames = written(data, compression=compression)
    assert same(protocol.loads(frames)["data"], data)
    if compression is not None:
        assert sum(map(len, frames)) < 100_000
    assert protocol.loads(written({}))["data"] == {}


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_no_byte_changes_unnoticed(
    compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It logs every error with its frames.
    monkeypatch.setattr(logging.getLogger("distributed.protocol.core"), "disabled", True)
    data = {"long": b"0123" * 3_000} if compression else DATA
    frames = written(data, compression=compression)
    for number, frame in enumerate(frames):
        for place in range(number % 5, len(frame), 1 + 4 * (len(frame) > 100)):
            damaged = bytearray(frame)
            damaged[place] ^= 1 << (place % 8)
            try:
                found = protocol.loads([*frames[:number], bytes(damaged), *frames[number + 1 :]])
            except CorruptFrameError:
                continue
            except Exception:
                # The envelope is distributed's, with errors of its own.
                if number >= 2:
                    raise
                continue
            # The envelope may name no result any more, and those that it names are right.
            asked = {
                key: value for key, value in dict(found.get("data", {})).items() if key in data
            }
            assert not asked or same(asked, data), (number, place)


def test_frames_that_are_missing_or_too_many_are_noticed() -> None:
    header, frames = protocol.serialize(Results(DATA))
    for damaged in (frames[:-1], [*frames, b""], [*frames[:-2], frames[-1], frames[-2]]):
        with pytest.raises(CorruptFrameError):
            protocol.deserialize(header, damaged)


def test_bytes_of_arrays_are_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusched.serialization.arrays import sealed_results

    read: list[int] = []
    theirs = sealed_results._checksum

    def counting(frames: list[memoryview]) -> int:
        read.append(sum(frame.nbytes for frame in frames))
        return theirs(frames)

    monkeypatch.setattr(sealed_results, "_checksum", counting)
    protocol.serialize(Results({"a": np.ones(1000), "b": [np.ones(1000)], "c": bytes(7)}))
    assert read == [7]


@pytest.mark.parametrize(
    ("address", "receiver", "wrapped"),
    [("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", True), ("tls://127.0.0.1:1", "tls://b:2", True),
     ("tcp://127.0.0.1:1", None, False), ("inproc://127.0.0.1/1/2", "inproc://1", False),
     ("ucx://127.0.0.1:1", "ucx://127.0.0.1:2", False)],
)  # fmt: skip
def test_bytes_for_workers_are_checked(address: str, receiver: str | None, wrapped: bool) -> None:
    class Comm:
        peer_address = address

    assert isinstance(checked(Comm(), receiver), Comm) is not wrapped  # type: ignore[arg-type]
