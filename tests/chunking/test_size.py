"""While fusion is on, `chunks="auto"` has the chosen size, unless the user has set another."""

from __future__ import annotations

import json
import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import parse_bytes

import gpusched
from gpusched.chunking import chosen, size
from gpusched.chunking.chunk_bytes import Choice
from gpusched.chunking.size import KEY, ChunkSize
from gpusched.chunking.target import Target

MIB = 1 << 20
SHAPE = (8192, 1024)
"""64 MiB of float64: less than dask's own chunks."""


@pytest.fixture(autouse=True)
def two_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose 2 MiB, so that the tests hold on every machine."""
    target = Target("cpu", 2, 1 << 30, 1e9, 1e-4, "a machine")
    monkeypatch.setattr(size, "choose", lambda: Choice(2 * MIB, "as told", target))
    monkeypatch.setattr(size, "_chosen", [])


def largest(x: da.Array) -> int:
    return max(block.nbytes for block in map(x.blocks.__getitem__, np.ndindex(x.numblocks)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.ones(SHAPE),
        lambda: da.zeros(SHAPE, chunks="auto"),
        lambda: da.from_array(np.zeros(SHAPE), chunks="auto"),
        lambda: da.random.default_rng(0).random(SHAPE),
        lambda: da.ones(SHAPE, chunks=SHAPE).rechunk("auto"),
        lambda: da.ones(SHAPE, chunks=("auto", 1024)),
        lambda: da.arange(SHAPE[0] * SHAPE[1]),
    ],
    ids=["ones", "zeros", "from_array", "random", "rechunk", "one-axis", "arange"],
)
def test_auto_chunks_have_the_chosen_size(make: object) -> None:
    with gpusched.enable():
        assert MIB // 2 <= largest(make()) <= 2 * MIB
    assert largest(make()) == 64 * MIB


def test_what_the_user_has_set_stays() -> None:
    for value in ("128MiB", "16 MiB", 8 * MIB):
        with dask.config.set({KEY: value}), gpusched.enable():
            assert dask.config.get(KEY) == value
            assert largest(da.ones(SHAPE)) <= parse_bytes(value)
    with gpusched.enable(), dask.config.set({KEY: "1 MiB"}):
        assert largest(da.ones(SHAPE)) <= MIB
    with gpusched.enable():
        assert largest(da.ones(SHAPE, chunks="4 MiB")) > 2 * MIB
    assert dask.config.get(KEY) == "128MiB"


def test_switched_on_and_off_again_and_again() -> None:
    default = dask.config.get(KEY)
    with gpusched.enable():
        with gpusched.disable():
            assert largest(da.ones(SHAPE)) == 64 * MIB
        with gpusched.enable():
            assert largest(da.ones(SHAPE)) <= 2 * MIB
        assert largest(da.ones(SHAPE)) <= 2 * MIB
    assert dask.config.get(KEY) is default
    with dask.config.set({"gpusched.chunks.automatic": False}), gpusched.enable():
        assert largest(da.ones(SHAPE)) == 64 * MIB


def test_the_size_is_a_number_like_others() -> None:
    found = ChunkSize()
    assert found == 2 * MIB and found > 1 and not found < 1 and max(1, found) == 2 * MIB
    assert found / 8 == MIB / 4 and 4 * found == 8 * MIB and int(found) == parse_bytes(found)
    assert str(found) == repr(found) == str(2 * MIB) and f"{found:,}" == "2,097,152"
    assert type(pickle.loads(pickle.dumps(found))) is ChunkSize
    assert json.loads(json.dumps([found])) == [128 * MIB]


def test_explanations_say_why() -> None:
    with gpusched.enable():
        x = da.ones(SHAPE, chunks=1024)
        assert chosen() is None
        assert gpusched.explain(x + 1 - x * 2).chunks == ""
        x = da.random.default_rng(0).random(SHAPE)
        found = gpusched.explain(x * 2 + 1)
    assert found.to_dict()["chunks"] == "chunks of 2.00 MiB: as told"
    assert 'chunks="auto" meant chunks of 2.00 MiB: as told.' in found.text()
    assert "meant chunks of 2.00 MiB" in found.html()


def test_values_are_the_same() -> None:
    values = np.random.default_rng(0).random(SHAPE)
    with gpusched.enable():
        found = (da.from_array(values) * 2 + 1).mean(axis=0).compute()
    np.testing.assert_allclose(found, (values * 2 + 1).mean(axis=0))
