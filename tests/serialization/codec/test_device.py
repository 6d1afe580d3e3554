"""Buffers on a GPU: what is shuffled there is what c-blosc shuffles; staging is bounded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.serialization import codec
from gpusched.serialization.codec import blocks, blosc, byte_shuffle, device, staging
from gpusched.serialization.codec.blosc import Header
from gpusched.serialization.codec.link import KEY, Link
from gpusched.serialization.frames import CorruptFrameError

EMULATED = Path(__file__).parents[1] / "arrays/emulated/cupy.py"
SHORT = 1 << 16
KINDS = {
    "count": np.arange(40_000).view("u1"),
    "noise": np.random.default_rng(0).integers(0, 256, 200_001, np.uint8),
    "half": np.r_[np.zeros(SHORT, "u1"), np.random.default_rng(1).integers(0, 256, SHORT, "u1")],
    "few": np.arange(17, dtype="u1"),
    "none": np.empty(0, "u1"),
}


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(blocks, "BLOCK", SHORT)
    monkeypatch.setattr(device, "_streams", threading.local())
    staging._of.cache_clear()
    yield
    staging._of.cache_clear()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Take CuPy's place."""
    spec = spec_from_file_location("cupy", EMULATED)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@given(st.integers(1, 3000), st.integers(2, 40), st.sampled_from([1 << 16, 1 << 19, 1000]))
def test_turning_is_undone(nbytes: int, itemsize: int, inner: int) -> None:
    inner = max(inner // itemsize, 1) * itemsize
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    turned = byte_shuffle.shuffle(data, itemsize, inner)
    assert byte_shuffle.unshuffle(turned, itemsize, inner).tobytes() == data.tobytes()


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 12, 16, 32, 255, 256])
@pytest.mark.parametrize("shuffle", ["none", "byte", "bit"])
@pytest.mark.parametrize("kind", KINDS)
def test_host_and_device_read_each_others_blocks(
    cupy: Any, kind: str, shuffle: str, itemsize: int
) -> None:
    data = KINDS[kind]
    from_device = device.encode(cupy.of(data), itemsize, shuffle)
    from_host = blocks.encode(data, itemsize, shuffle)
    for frames in (from_device, from_host):
        assert blocks.decode(frames, data.size, SHORT).tobytes() == data.tobytes()
        assert device.decode(frames, data.size, SHORT).get().tobytes() == data.tobytes()


def test_device_shuffles_as_well_as_the_host(cupy: Any) -> None:
    data = KINDS["count"]
    coded = device.encode(cupy.of(data), 8, "byte")
    assert all(Header.of(frame).is_shuffled for frame in coded)
    assert sum(map(len, coded)) < 1.1 * sum(map(len, blocks.encode(data, 8, "byte")))


def test_device_unshuffles_what_the_host_has_shuffled(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    coded = blocks.encode(KINDS["count"], 8, "byte")
    expanded = []
    decompress = blosc.decompress

    def spy(frame: Any, part: np.ndarray) -> None:
        expanded.append(Header.of(frame).is_shuffled)
        decompress(frame, part)

    monkeypatch.setattr(blosc, "decompress", spy)
    device.decode(coded, KINDS["count"].size, SHORT)
    assert expanded == [False] * len(coded)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_go_down_and_up(cupy: Any, kind: str) -> None:
    down = device.download(cupy.of(KINDS[kind]))
    assert down.tobytes() == KINDS[kind].tobytes()
    assert device.upload(down).get().tobytes() == KINDS[kind].tobytes()


def test_each_thread_waits_for_its_own_stream_and_the_callers(cupy: Any) -> None:
    before = cupy.cuda.get_current_stream().synchronized
    device.download(cupy.of(KINDS["noise"]))
    assert cupy.cuda.get_current_stream().synchronized == before + 1
    assert 0 < len(cupy.Stream.made) <= blocks.threads()
    assert all(stream.non_blocking and len(stream.threads) == 1 for stream in cupy.Stream.made)
    assert sum(stream.synchronized for stream in cupy.Stream.made) == len(
        blocks.split(KINDS["noise"])
    )


def test_staging_is_bounded_and_used_again(cupy: Any) -> None:
    for _ in range(3):
        device.encode(cupy.of(np.zeros(100 * SHORT, "u1")), 8, "byte")
    assert 0 < staging.staging().made <= blocks.threads() + 2


def test_staging_waits_when_all_is_lent(cupy: Any) -> None:
    pool = staging.Staging(1, 10)
    with pool.lend():
        assert not pool._lent.acquire(blocking=False)
    with pool.lend():
        assert pool.made == 1


def test_buffer_comes_back_after_an_error(cupy: Any) -> None:
    pool = staging.Staging(1, 10)
    with pytest.raises(RuntimeError), pool.lend():
        raise RuntimeError
    with pool.lend():
        assert pool.made == 1


def test_damaged_blocks_are_refused(cupy: Any) -> None:
    frames = blocks.encode(KINDS["count"], 8, "byte")
    with pytest.raises(CorruptFrameError, match="cannot hold"):
        device.decode(frames, 1 << 40, SHORT)
    with pytest.raises(CorruptFrameError, match="expected at most"):
        device.decode(blocks.encode(KINDS["few"], 1, "none"), 17, 1 << 29)


@pytest.mark.parametrize("bandwidth", [1.0, 1e15])
@pytest.mark.parametrize("kind", KINDS)
def test_codec_takes_buffers_on_a_device(cupy: Any, kind: str, bandwidth: float) -> None:
    data = KINDS[kind]
    context = {"recipient": {KEY: Link(bandwidth)}}
    how, frames = codec.encode(cupy.of(data), 8, context)
    assert all(isinstance(frame, bytes | np.ndarray) for frame in frames)
    assert bytes(codec.decode(how, list(frames), data.size)) == data.tobytes()
    assert codec.decode_to_device(how, frames, data.size).get().tobytes() == data.tobytes()
    assert (how is not None) == (bandwidth == 1.0 and kind in ("count", "half"))
