"""Damaged and hostile files: a clear error or the right result, and nothing is run."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.saving import FormatError, UntrustedError, describe
from gpusched.serialization.frames import CorruptFrameError
from tests.saving.forging import Members, archive

VALUES = np.arange(3000.0).reshape(60, 50)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "x"
    x = da.from_array(VALUES, chunks=30)
    gpusched.save(path, {"x": (x * 2 + 1).sum(axis=0), "y": da.random.default_rng(0).random(9)})
    return path.read_bytes()


def check(path: Path) -> None:
    """Check that a file is refused, or holds what was saved."""
    try:
        loaded = gpusched.load(path)
    except (CorruptFrameError, FormatError, UntrustedError):
        return
    found = loaded["x"].compute(scheduler="sync")
    np.testing.assert_array_equal(found, (VALUES * 2 + 1).sum(axis=0))


@given(st.data())
def test_changed_bytes(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
    (tmp_path / "x").write_bytes(damaged)
    check(tmp_path / "x")


def test_every_byte_of_the_directory(tmp_path: Path, whole: bytes) -> None:
    start = whole.index(b"PK\x01\x02")
    for place in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        (tmp_path / "x").write_bytes(damaged)
        check(tmp_path / "x")


@pytest.mark.parametrize("kept", [0, 1, 21, 0.5, 0.99])
def test_truncated(tmp_path: Path, whole: bytes, kept: float) -> None:
    length = int(len(whole) * kept) if isinstance(kept, float) else kept
    (tmp_path / "x").write_bytes(whole[:length])
    told = f"^{re.escape(str(tmp_path / 'x'))}: "
    with pytest.raises(CorruptFrameError, match=told):
        gpusched.load(tmp_path / "x")
    with pytest.raises(CorruptFrameError, match=told):
        describe(tmp_path / "x")


def test_other_files_are_not_called_damaged_archives(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    np.savez(tmp_path / "x.npz", VALUES)
    with pytest.raises(CorruptFrameError, match=r"damaged, or gpusched\.save did not write it"):
        gpusched.load(tmp_path / "x.py")
    with pytest.raises(CorruptFrameError, match=r"gpusched\.save did not write it: it has no "):
        gpusched.load(tmp_path / "x.npz")


def test_missing_file_is_what_open_says(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gpusched.load(tmp_path / "x")
    with pytest.raises(IsADirectoryError):
        gpusched.load(tmp_path)


# Files whose checksums are right --------------------------------------------------------


def members(whole: bytes, path: Path) -> Members:
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as file:
        found: Members = {name: file.read(name) for name in file.namelist()}
    for name in ("manifest.json", "graph.json"):
        found[name] = json.loads(found[name])
    return found


def forge(found: Members, path: Path) -> Path:
    """Write members as an archive that holds together."""
    path.write_bytes(archive(found))
    return path


def forge_call(whole: bytes, path: Path, call: Any, args: Any) -> Path:
    found = members(whole, path)
    found["graph.json"]["programs"][0] = {
        "steps": [{"call": call, "args": args, "kwargs": []}], "result": {"step": 0}
    }  # fmt: skip
    return forge(found, path)


def test_forged_file_that_changes_nothing_is_loaded(tmp_path: Path, whole: bytes) -> None:
    check(forge(members(whole, tmp_path / "x"), tmp_path / "x"))


DRAW = {"function": "dask.array.random._apply_random_func"}
PCG = {"function": "numpy.random.PCG64"}
FORBIDDEN: dict[str, tuple[Any, Any]] = {
    "system": ({"function": "os.system"}, ["touch harmed"]),
    "eval": ({"function": "builtins.eval"}, ["open('harmed', 'w')"]),
    "getattr": ({"function": "builtins.getattr"}, [1, "__class__"]),
    "save": ({"function": "numpy.save"}, ["harmed", [1]]),
    "load": ({"function": "numpy.load"}, ["harmed"]),
    "attribute": ({"function": "numpy.add.__class__"}, []),
    "method": ({"method": "tofile"}, [[1], "harmed"]),
    "number": (5, []),
    "partial of nothing": ({"partial": [5, [], []]}, []),
    "code": ({"code": 0}, []),
    "unknown kind": ({"import": "os"}, []),
    "private method": (DRAW, [PCG, "__reduce__", 0, None, [], {"dict": []}]),
    "file of a generator": (DRAW, [PCG, "bit_generator", 0, None, [], {"dict": []}]),
    "method that is an input": (DRAW, [PCG, {"input": 0}, 0, None, [], {"dict": []}]),
    "draw by another function": (
        {"function": "dask.utils.apply"}, [DRAW, [PCG, "__reduce__", 0, None, [], {"dict": []}]]
    ),
    "draw by a partial application": ({"partial": [DRAW, [], []]}, [PCG, "random"]),
    "later result": ({"function": "operator.neg"}, [{"step": 0}]),
    "missing input": ({"function": "operator.neg"}, [{"input": 99}]),
    "missing array": ({"function": "operator.neg"}, [{"array": 99}]),
    "dtype with objects": ({"function": "numpy.ones"}, [3, {"dtype": "O"}]),
    "words of a seed": ({"seed": [1, {"tuple": []}, 10**12, 0]}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FORBIDDEN))
def test_calls_that_are_not_allowed(
    tmp_path: Path, whole: bytes, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = forge_call(whole, tmp_path / "x", *FORBIDDEN[name])
    with pytest.raises(CorruptFrameError):
        gpusched.load(path)
    assert os.listdir(tmp_path) == ["x"]


def change_result(found: Members) -> None:
    found["graph.json"]["result"] = {"output": 7}


def remove_task(found: Members) -> None:
    del found["graph.json"]["tasks"][-1]


def repeat_task(found: Members) -> None:
    found["graph.json"]["tasks"].append(found["graph.json"]["tasks"][0])


def make_cycle(found: Members) -> None:
    for task in found["graph.json"]["tasks"]:
        task[2] = [{"key": task[0]} for _ in task[2]] or [{"key": task[0]}]


def claim_blocks(found: Members) -> None:
    found["graph.json"]["outputs"][0]["chunks"] = {"tuple": [{"tuple": [1] * 1000}] * 30}


def claim_elements(found: Members) -> None:
    found["graph.json"]["arrays"][0]["frames"] = [2**50]


def nest(found: Members) -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]
    found["graph.json"]["programs"][0]["result"] = value


def drop_array(found: Members) -> None:
    del found["arrays/0"]


def drop_graph(found: Members) -> None:
    found["graph.json"] = [1, 2]


def other_format(found: Members) -> None:
    found["manifest.json"]["format"] = "other"


CHANGES: list[Callable[[Members], None]] = [
    change_result, remove_task, repeat_task, make_cycle, claim_blocks, claim_elements, nest,
    drop_array, drop_graph, other_format,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_graph_that_does_not_hold_together(
    tmp_path: Path, whole: bytes, change: Callable[[Members], None]
) -> None:
    found = members(whole, tmp_path / "x")
    change(found)
    with pytest.raises(CorruptFrameError):
        gpusched.load(forge(found, tmp_path / "x"))


def changed(value: Any, chance: random.Random) -> Any:
    """Return JSON with something in it replaced, removed, or put elsewhere."""
    odd = [None, True, -1, 2**70, 0.5, "", "x" * 50, [], {}, [[]], {"input": 0}, {"dict": [[1]]}]
    if not isinstance(value, list | dict) or not value or chance.random() < 0.1:
        return copy.deepcopy(chance.choice(odd))
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = chance.choice(places)
    if chance.random() < 0.1:
        del value[place]
    else:
        value[place] = changed(value[place], chance)
    return value


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_changed_graph(tmp_path: Path, whole: bytes, chance: random.Random, count: int) -> None:
    found = members(whole, tmp_path / "x")
    for _ in range(count):
        found["graph.json"] = changed(found["graph.json"], chance)
    forge(found, tmp_path / "x")
    with contextlib.suppress(CorruptFrameError):
        gpusched.load(tmp_path / "x")


# Archives ---------------------------------------------------------------------------------


def test_newer_format(tmp_path: Path, whole: bytes) -> None:
    found = members(whole, tmp_path / "x")
    found["manifest.json"] |= {"version": 99, "made with": {"gpusched": "9.1"}}
    for read in (gpusched.load, describe):
        with pytest.raises(FormatError, match=r"format 99, written by gpusched 9\.1.*up to 1"):
            read(forge(found, tmp_path / "x"))


def test_versions_may_differ(tmp_path: Path, whole: bytes) -> None:
    found = members(whole, tmp_path / "x")
    found["manifest.json"]["made with"] = {"gpusched": "0.0.1", "numpy": "2.0", "dask": "1"}
    check(forge(found, tmp_path / "x"))
    assert describe(tmp_path / "x")["made with"]["numpy"] == "2.0"


@pytest.mark.parametrize("name", ["../harmed", "/tmp/harmed", "arrays/../../harmed", "extra"])
def test_names_that_lead_elsewhere(tmp_path: Path, whole: bytes, name: str) -> None:
    found = members(whole, tmp_path / "x")
    found[name] = b"harm"
    with pytest.raises(CorruptFrameError, match="is not a member"):
        gpusched.load(forge(found, tmp_path / "x"))


def test_bomb(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", b" " * (200 << 20))
    with pytest.raises(CorruptFrameError, match="cannot hold"):
        gpusched.load(tmp_path / "x")


def test_bomb_of_brackets(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as file:
        file.writestr("manifest.json", b"[" * 500_000)
    with pytest.raises(CorruptFrameError):
        gpusched.load(tmp_path / "x")


def test_two_members_of_one_name(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "x").write_bytes(whole)
    with pytest.warns(UserWarning), zipfile.ZipFile(tmp_path / "x", "a") as file:
        file.writestr("manifest.json", "{}")
    with pytest.raises(CorruptFrameError, match="same name"):
        gpusched.load(tmp_path / "x")


def test_code_is_not_read_if_it_was_replaced(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", da.ones(3).map_blocks(lambda block: block + 1))
    found = members((tmp_path / "x").read_bytes(), tmp_path / "x")
    found["code/0.pickle"] = b"cos\nsystem\n(S'touch harmed'\ntR."
    with pytest.raises(CorruptFrameError, match=r"checksum of code/0\.pickle"):
        gpusched.load(forge(found, tmp_path / "x"), trust=True)
