"""What a file without trust may hold: every number is checked before NumPy sees it."""

from __future__ import annotations

import base64
import copy
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.saving import bitgenerators, elements
from gpusched.saving.arguments import check_argument, check_arguments
from gpusched.serialization import dtypes, sealed
from gpusched.serialization.frames import CorruptFrameError
from tests.saving.forging import archive, originals, states
from tests.saving.fuzz import one

KINDS = bitgenerators.KINDS


def changed(state: Any, path: tuple[str, ...], number: Any) -> Any:
    """Return a state with one thing in it replaced."""
    state = copy.deepcopy(state)
    *outer, last = path
    place = state
    for name in outer:
        place = place[name]
    place[last] = number
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_bit_generators_are_restored(kind: Any) -> None:
    bits = kind(3)
    np.random.Generator(bits).integers(9, size=5, dtype="u4")
    again = bitgenerators.restore(kind, bits.state)
    assert again is not bits
    assert (again.random_raw(700) == bits.random_raw(700)).all()


POSITIONS: list[tuple[Any, tuple[str, ...]]] = [
    (np.random.MT19937, ("state", "pos")),
    (np.random.Philox, ("buffer_pos",)),
]


@pytest.mark.parametrize("number", [-(2**31), -1, 625, 10**9, 2**40, 3.0, True, None, "1"])
@pytest.mark.parametrize(("kind", "path"), POSITIONS)
def test_positions_outside_of_the_buffer_are_refused(kind: Any, path: Any, number: Any) -> None:
    # NumPy takes them, and the next number drawn is read from elsewhere in memory, or crashes.
    with pytest.raises(CorruptFrameError, match=rf"{path[-1]}: .* is not 0 to"):
        bitgenerators.restore(kind, changed(kind(0).state, path, number))


@pytest.mark.parametrize(
    ("kind", "path", "part"),
    [
        (np.random.MT19937, ("state", "key"), np.arange(623, dtype="u4")),
        (np.random.MT19937, ("state", "key"), np.arange(624, dtype="u8")),
        (np.random.MT19937, ("state", "key"), [1] * 624),
        (np.random.Philox, ("buffer",), np.arange(3, dtype="u8")),
        (np.random.SFC64, ("state",), 5),
        (np.random.PCG64, ("state", "inc"), 2**128),
        (np.random.PCG64, ("has_uint32",), 2),
        (np.random.PCG64, ("more",), 1),
        (np.random.PCG64, ("bit_generator",), "MT19937"),
    ],
)
def test_other_parts_of_states_are_refused(kind: Any, path: Any, part: Any) -> None:
    with pytest.raises(CorruptFrameError):
        bitgenerators.restore(kind, changed(kind(0).state, path, part))


def test_file_with_a_position_outside_of_the_buffer_is_refused(tmp_path: Path) -> None:
    found = copy.deepcopy(originals()[0])
    position = states()["Philox"]["dict"][3]
    assert position == ["buffer_pos", 4]
    for number in (4, -2_000_000_000):
        bits = copy.deepcopy(states()["Philox"])
        bits["dict"][3] = ["buffer_pos", number]
        held = {"bit generator": ["numpy.random.Philox", bits]}
        found["graph.json"]["programs"][0]["steps"][0]["args"].append(held)
        (tmp_path / "x").write_bytes(archive(found))
        if number == 4:
            gpusched.load(tmp_path / "x")
    with pytest.raises(CorruptFrameError, match=r"Philox\.buffer_pos: -2000000000 is not 0 to 4"):
        gpusched.load(tmp_path / "x")


def test_file_that_refers_to_memory_of_another_process_is_refused(tmp_path: Path) -> None:
    found = copy.deepcopy(originals()[0])
    found["arrays/0"] = b""
    about = {"shape": [2], "strides": [8], "offset": 0, "dtype": "<f8", "nbytes": 16,
             "codec": ["device-memory", bytes(64), 0, os.getpid(), 0.0], "writeable": True,
             "extra": {}}  # fmt: skip
    seal = base64.b64encode(sealed.seal(about, [])).decode()
    found["graph.json"]["arrays"][0] = {"sealed": seal, "frames": []}
    (tmp_path / "x").write_bytes(archive(found))
    with pytest.raises(CorruptFrameError, match="codec: expected"):
        gpusched.load(tmp_path / "x")


FIELD = ["x", "<f8", 0]
HOSTILE: list[Any] = [
    # Offset and size together are more than C's int holds: NumPy's own check overflows.
    ["fields", [["x", "<f8", 2**31 - 4]], 16, False],
    ["fields", [["x", "<f8", 2**32]], 2**32 + 8, False],
    ["fields", [["x", "<f8", -8]], 16, False],
    ["fields", [["x", "<f8", 9]], 16, False],
    ["fields", [["x", "<f8", 2**31 - 8]], 2**31 - 1, False],
    ["fields", [["x", "|V1073741824", 0], ["y", "|V1073741824", 2**30]], 2**31, False],
    ["fields", [["x", ["fields", [["y", "<f8", 2**31 - 4]], 16, False], 0]], 16, False],
    ["fields", [["x", "<f8", True]], 16, False],
    ["fields", [["x", "<f8", 1.0]], 16, False],
    ["fields", [["x", "<f8", 0, 5]], 16, False],
    ["fields", [[5, "<f8", 0]], 16, False],
    ["fields", [FIELD, FIELD], 16, False],
    ["fields", [FIELD], 0, False],
    ["fields", [FIELD], -16, False],
    ["fields", [["x", "<f8", 1]], 16, True],
    ["array", "<f8", [2**29]],
    ["array", "<f8", [-1]],
    ["array", "<f8", [0]],
    ["array", "<f8", [2**16] * 4],
    ["array", ["array", "<f8", [2**20]], [2**20]],
    "|V2147483647", "|S1073741825", "<U536870912", "<M8[0s]", "<M8[2147483648s]", "<f8,<i4",
    ["ml_dtypes", "__name__"],
]  # fmt: skip


@pytest.mark.parametrize("described", HOSTILE, ids=str)
def test_dtypes_with_such_numbers_are_refused(described: Any) -> None:
    if described[0] == "ml_dtypes":
        pytest.importorskip("ml_dtypes")
    with pytest.raises(CorruptFrameError):
        dtypes.parse(described)


def test_dtypes_that_no_file_may_describe_are_not_plain() -> None:
    assert dtypes.is_plain(np.dtype("V1073741824"))
    assert not dtypes.is_plain(np.dtype("V1073741825"))
    assert not dtypes.is_plain(np.dtype([((5, "x"), "f8")]))


NO_VALUES = [
    np.array([0, 1, 2], "u1").view(bool),
    np.array([2], "u1").view([("a", "?")]),
    np.array([[1, 255]], "u1").view([("a", "?", 2)]),
    np.array([0x110000], "u4").view("U1"),
    np.array([[65, 2**31]], "u4").view("U2"),
    np.array([0x110000], ">u4").view(">U1"),
    np.array([0x110000], "u4").view("U1")[0:1].reshape(()),
]


@pytest.mark.parametrize("array", NO_VALUES, ids=range(len(NO_VALUES)))
def test_bytes_that_are_no_values_are_refused(array: np.ndarray) -> None:
    with pytest.raises(CorruptFrameError, match=r"is not a (bool|character)"):
        elements.check(array)


def test_values_are_looked_at_once_where_they_repeat() -> None:
    elements.check(np.broadcast_to(np.array([True, False]), (2**40, 2)))
    elements.check(np.array(["é", "\U0010ffff"])[::-1])
    elements.check(np.ones(3, [("a", "?", 2), ("b", "U3")])[::2])


def test_elements_that_overlap_are_refused() -> None:
    views = np.lib.stride_tricks.as_strided(np.zeros(2**20, bool), (2**19, 2**19), (1, 1))
    with pytest.raises(CorruptFrameError, match="overlap"):
        elements.check(views)


NO_ARGUMENTS: list[Any] = [
    "V2147483647,V2147483647",
    "f8, V2147483647",
    {"x": ("f8", 2**31 - 4)},
    {"names": ["x"], "formats": ["f8"], "offsets": [2**31 - 4], "itemsize": 16},
    [("x", "V2147483647"), ("y", "V2147483647")],
    [(("title", "x"), "V2147483647")],
    [1, [{"x": ("f8", 8)}]],
]


@pytest.mark.parametrize("value", NO_ARGUMENTS, ids=str)
def test_numpys_own_forms_of_dtypes_are_no_arguments(value: Any) -> None:
    for call in (([3, value], {}), ([3], {"dtype": value}), ([3, (1, value)], {})):
        with pytest.raises(CorruptFrameError, match="is not an argument"):
            check_arguments(np.zeros, *call)


@pytest.mark.parametrize(
    "value", ["ij,jk->ik", "float64", {0: 1, 1: (2, 0)}, [("a", 1)][:0], [(1, 2)], "2020-01-01"]
)
def test_other_values_are_arguments(value: Any) -> None:
    check_argument(value)


@given(st.integers(0, 2**40))
def test_forged_files_do_no_harm(tmp_path_factory: pytest.TempPathFactory, number: int) -> None:
    one(random.Random(number), number, tmp_path_factory.getbasetemp() / "forged")
