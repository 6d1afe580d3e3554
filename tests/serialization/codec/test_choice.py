"""The choice: compressed where it pays for the link, and not where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import dask
import numpy as np
import pytest

from gpusched.serialization import codec
from gpusched.serialization.codec import choice, sampling
from gpusched.serialization.codec.choice import choose
from gpusched.serialization.codec.link import KEY, Link, Peer, Transfer

MIB = 1 << 20
SLOW = Link(1e5)
"""Bytes a second: any machine compresses faster."""
FAST = Link(1e15)
"""As between two threads: no machine compresses faster."""
ZEROS = 1e-9
"""Seconds a byte to compress and decompress them, where a test says what it takes."""

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.integers(0, 256, MIB, np.uint8)
COUNT = np.arange(MIB // 8).view("u1")
SMALL_NUMBERS = RANDOM.integers(0, 1000, MIB // 4, np.int32).view("u1")
TRUTHS = RANDOM.integers(0, 2, MIB, np.uint8)


def test_noise_is_left_as_it_is() -> None:
    assert choose(NOISE, 1, SLOW) is None
    assert choose(NOISE, 8, None) is None


@pytest.mark.parametrize(
    ("data", "itemsize", "shuffles"),
    [(COUNT, 8, {"byte", "bit"}), (SMALL_NUMBERS, 4, {"bit"}), (TRUTHS, 1, {"bit"})],
    ids=["count", "small numbers", "truths"],
)
def test_shuffle_fits_what_is_in_the_buffer(
    data: np.ndarray, itemsize: int, shuffles: set[str]
) -> None:
    for link in (None, SLOW):
        found = choose(data, itemsize, link)
        assert found is not None and found.shuffle in shuffles


def test_fast_link_takes_bytes_as_they_are() -> None:
    assert choose(COUNT, 8, FAST) is None


def test_short_buffers_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "parts", pytest.fail)
    assert choose(COUNT[: 63 << 10], 8, None) is None


def test_link_that_shares_cores_must_gain_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice.blocks, "parallel", lambda nbytes: 8)
    sample = sampling.Sample("byte", 2.0, encoding=0.6e-9, decoding=0.4e-9)
    monkeypatch.setattr(sampling, "_take", lambda part, itemsize, shuffle: sample)
    sampling.least.cache_clear()
    assert choose(COUNT, 8, Link(1e9)) == sample
    assert choose(COUNT, 8, Link(1e9, shares_cores=True)) is None
    sampling.least.cache_clear()


def test_transfer_is_told_the_time_that_coding_takes() -> None:
    transfer = Transfer(SLOW)
    context = {"recipient": {KEY: transfer}}
    codec.encode(COUNT, 8, context)
    before, ready = transfer.decoding, transfer.ready
    codec.encode(NOISE, 1, context)
    assert 0 < before == transfer.decoding < 10
    assert ready is not None and transfer.ready is not None and ready < transfer.ready


def test_what_there_is_no_memory_to_compress_is_sent_as_it_is() -> None:
    data = np.zeros(1 << 20, np.uint8)
    for largest, compressed in ((1 << 20, True), ((1 << 20) - 1, False)):
        context = {"recipient": {KEY: Transfer(Link(1e6), largest=largest)}}
        how, frames = codec.encode(data, 1, context)
        assert (how is not None) is compressed
        assert (sum(memoryview(each).nbytes for each in frames) < data.nbytes) is compressed


def test_transfer_that_must_compress_says_nothing_of_its_link() -> None:
    link = Link(1e6)
    transfer = Transfer(link)
    with dask.config.set({"gpusched.serialization.compression": True}):
        codec.encode(COUNT, 8, {"recipient": {KEY: transfer}})
    transfer.done(1 << 30, begun=0.0, ended=1e9)
    assert link.observations == 0


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str]]]:
    """Addresses of what is compressed, and with which shuffle; noise takes twice what zeros do."""
    found: list[tuple[int, str]] = []
    take = sampling._take

    def spy(part: np.ndarray, itemsize: int, shuffle: str) -> sampling.Sample:
        found.append((part.__array_interface__["data"][0], shuffle))
        seconds = ZEROS if not part.any() else 2 * ZEROS
        return replace(take(part, itemsize, shuffle), encoding=seconds / 2, decoding=seconds / 2)

    monkeypatch.setattr(sampling, "_take", spy)
    sampling.least.cache_clear()
    sampling.least(8, "byte"), sampling.least(8, "bit")
    found.clear()
    yield found
    sampling.least.cache_clear()


def test_sample_is_small_and_begins_with_items(looked_at: list[tuple[int, str]]) -> None:
    data = np.arange(10 * MIB // 8).view("u1")
    assert choose(data, 8, SLOW) is not None
    parts = sampling.parts(data, 8)
    starts = {address - data.__array_interface__["data"][0] for address, _ in looked_at}
    assert {start % 8 for start in starts} == {0}
    assert starts == {0, max(starts) // 2 // 8 * 8, data.nbytes - parts[-1].nbytes}
    assert len(looked_at) * parts[0].nbytes < 512 << 10


def test_what_cannot_pay_is_not_looked_at_to_the_end(looked_at: list[tuple[int, str]]) -> None:
    data = np.concatenate([NOISE] * 4)
    assert choose(data, 8, Link(10 / ZEROS)) is None
    assert looked_at == []
    assert choose(data, 8, SLOW) is None
    assert len({address for address, _ in looked_at}) == 3
    looked_at.clear()
    # Zeros would pay here; noise, which takes longer and stays as long as it is, would not.
    assert choose(data, 8, Link(0.6 / ZEROS, shares_cores=True)) is None
    assert len({address for address, _ in looked_at}) == 1


def test_end_that_differs_from_the_beginning_is_seen() -> None:
    """Zeros with noise behind them: not a ratio of hundreds."""
    data = np.concatenate([np.zeros(MIB // 2, np.uint8), NOISE[: MIB // 2]])
    found = choose(data, 8, SLOW)
    assert found is not None and found.ratio < 4


def slow(peer: Peer) -> Peer:
    for _ in range(5):
        peer.observe(1 << 30, 1000.0)
    return peer


def test_gpu_memory_goes_the_way_that_was_faster() -> None:
    peer = Peer()
    assert choice.directly(1 << 30, Transfer(Link(1e9), peer))
    assert not choice.directly(1 << 30, Transfer(Link(1e15), peer))
    assert not choice.directly(1 << 30, Transfer(Link(1e9), slow(peer)))
    assert not choice.directly(1 << 30, Transfer(Link(1e9)))


def test_opening_memory_does_not_pay_for_little() -> None:
    assert not choice.directly(63 << 10, Transfer(Link(1.0), Peer()))
    assert not choice.directly(100 << 10, Transfer(Link(1e9), Peer()))


def test_the_slower_way_is_tried_again_now_and_then() -> None:
    transfer = Transfer(Link(1e9), slow(Peer()))
    assert sum(choice.directly(1 << 30, transfer) for _ in range(200)) == 4
