"""Results in files: the same values, computed once, whatever happens in between."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag
import numpy as np
import pytest
import xarray as xr
from dask.distributed import Client

import gpusched
from gpusched.serialization.frames import CorruptFrameError

STRUCTURE = np.dtype([("a", "i4"), ("b", "f8", (2,))])
ARRAYS = {
    "float": da.arange(12.0, chunks=5),
    "irregular": da.ones((7, 3), chunks=((2, 5), (1, 2))),
    "0-d": da.from_array(np.array(3)),
    "empty": da.zeros((0, 4), chunks=(1, 4)),
    "text": da.from_array(np.array(["a", "bcd"]), chunks=1),
    "objects": da.from_array(np.array([{1}, None], dtype=object), chunks=1),
    "structured": da.from_array(np.zeros(4, STRUCTURE), chunks=2),
    "masked": da.ma.masked_greater(da.arange(6, chunks=4), 3),
    "unknown": da.arange(9, chunks=3)[da.arange(9, chunks=3) % 2 == 0],
}


class Counted:
    """Adds one, and counts the chunks it was called with."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, chunk: np.ndarray) -> np.ndarray:
        self.calls += 1
        return chunk + 1

    def __dask_tokenize__(self) -> str:
        return "Counted"


def counted(chunks: int = 4) -> tuple[Counted, da.Array]:
    """Return a function that counts, and an array made by it, the same each time."""
    function = Counted()
    array = da.ones(12, chunks=12 // chunks).map_blocks(function, dtype=float, meta=np.ones(0))
    return function, array


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ARRAYS)
def test_values_chunks_and_dtype_stay(kind: str, fused: bool, tmp_path: Path) -> None:
    x = ARRAYS[kind]
    with gpusched.enable() if fused else gpusched.disable(), dask.config.set(scheduler="sync"):
        kept = gpusched.checkpoint(kind, x, tmp_path)
        again = gpusched.checkpoint(kind, x, tmp_path)
        for found in (kept, again):
            assert found.dtype == x.dtype
            assert str(found.chunks) == str(x.chunks)
            wanted, value = x.compute(), found.compute()
            assert type(value) is type(wanted)
            np.testing.assert_array_equal(value, wanted)


def test_what_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    function, x = counted()
    kept = gpusched.checkpoint("x", x, tmp_path)
    assert function.calls == 4
    again, same = counted()
    later = gpusched.checkpoint("x", same, tmp_path)
    np.testing.assert_array_equal((later * 2).compute(), (kept * 2).compute())
    assert again.calls == 0


def test_only_missing_chunks_are_computed(tmp_path: Path) -> None:
    gpusched.checkpoint("x", counted()[1], tmp_path)
    for number in (0, 2):
        next(tmp_path.glob(f"x/*/{number}.part")).unlink()
    function, x = counted()
    np.testing.assert_array_equal(gpusched.checkpoint("x", x, tmp_path).compute(), np.full(12, 2))
    assert function.calls == 2


def test_chunks_of_a_failed_computation_stay(tmp_path: Path) -> None:
    def fails(chunk: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info[0]["chunk-location"] == (3,) and not (tmp_path / "mended").exists():
            raise RuntimeError("no luck")
        (tmp_path / f"call-{len(list(tmp_path.glob('call-*')))}").touch()
        return chunk

    x = da.ones(4, chunks=1).map_blocks(fails, dtype=float, meta=np.ones(0), name="fails")
    with dask.config.set(scheduler="sync"):
        with pytest.raises(RuntimeError, match="no luck"):
            gpusched.checkpoint("x", x, tmp_path / "kept")
        done = len(list((tmp_path / "kept").glob("x/*/*.part")))
        assert done == len(list(tmp_path.glob("call-*")))
        (tmp_path / "mended").touch()
        assert gpusched.checkpoint("x", x, tmp_path / "kept").sum().compute() == 4
    assert len(list(tmp_path.glob("call-*"))) == 4


def test_other_computation_is_kept_beside(tmp_path: Path) -> None:
    """A loop over steps may use one key: each step reads what the one before has left."""
    x = da.ones(4, chunks=2)
    for _ in range(3):
        x = gpusched.checkpoint("x", x + 1, tmp_path)
    assert x.compute().tolist() == [4, 4, 4, 4]
    assert len(list((tmp_path / "x").iterdir())) == 3
    for _ in range(2):
        function, y = counted()
        y = gpusched.checkpoint("y", gpusched.checkpoint("y", y, tmp_path) * 2, tmp_path)
        assert y.compute().tolist() == [4] * 12
    assert function.calls == 0


def test_other_collections(tmp_path: Path) -> None:
    x = da.arange(6, chunks=3)
    table = xr.DataArray(x, dims="t", coords={"t": np.arange(6)}, name="speed", attrs={"a": 1})
    dataset = table.to_dataset().assign(loaded=("t", np.ones(6)), other=("t", x * 2))
    for name, each in {"array": table, "dataset": dataset}.items():
        kept = gpusched.checkpoint(name, each, tmp_path)
        assert kept.chunks
        xr.testing.assert_identical(kept.compute(), each.compute())
    value = gpusched.checkpoint("value", dask.delayed(sum)([1, 2]), tmp_path)
    assert value.compute() == 3
    bag = dask.bag.from_sequence(range(4), npartitions=2).map(str)
    with dask.config.set(scheduler="sync"):
        assert gpusched.checkpoint("bag", bag, tmp_path).compute() == ["0", "1", "2", "3"]


def test_workers_compute_and_keep_it(tmp_path: Path) -> None:
    with gpusched.local(threads=2) as client:
        x = da.arange(10, chunks=5) ** 2
        assert gpusched.checkpoint("x", x, tmp_path).sum().compute() == 285
        persisted = x.persist()
        assert gpusched.checkpoint("p", persisted, tmp_path).sum().compute() == 285
        assert isinstance(client, Client)


def test_two_at_once(tmp_path: Path) -> None:
    x = da.arange(40, chunks=2) ** 2
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda _: gpusched.checkpoint("x", x, tmp_path), range(4)))
    assert {int(each.sum().compute()) for each in kept} == {int((np.arange(40) ** 2).sum())}
    assert len(list(tmp_path.glob("x/*/*"))) == 20


@pytest.mark.processes
def test_token_is_the_same_in_another_process(tmp_path: Path) -> None:
    program = (
        "import dask.array as da, gpusched, sys, numpy as np\n"
        "def add(chunk):\n"
        "    print('called')\n"
        "    return chunk + np.float64(1)\n"
        "x = da.random.default_rng(3).random(6, chunks=3)\n"
        "x = x.map_blocks(add, dtype=float, meta=np.ones(0))\n"
        "x = (x - x.mean()).map_blocks(lambda c: c * 2, dtype=float)\n"
        "gpusched.checkpoint('x', x, sys.argv[1])\n"
    )
    file = tmp_path / "program.py"
    file.write_text(program)
    command = [sys.executable, str(file), str(tmp_path / "kept")]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout
                     for _ in range(2))  # fmt: skip
    assert first.count("called") == 2
    assert second == ""


def test_damaged_file_is_named(tmp_path: Path) -> None:
    kept = gpusched.checkpoint("x", da.ones(4, chunks=2), tmp_path)
    file = next(tmp_path.glob("x/*/1.part"))
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFrameError, match=r"1\.part: checksum.*remove the file"):
        kept.compute()


def test_bad_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.ones(3)
    for key in ("", "a/b", "..", ".a", "x" * 65, 3):
        with pytest.raises(ValueError, match="cannot be a checkpoint's key"):
            gpusched.checkpoint(key, x, tmp_path)  # type: ignore[arg-type]
    for value in (np.ones(3), 1, None):
        with pytest.raises(TypeError, match="is not a dask collection: call it before compute"):
            gpusched.checkpoint("x", value, tmp_path)
    with pytest.raises(ValueError, match="'x' has no folder: pass directory="):
        gpusched.checkpoint("x", x)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        gpusched.checkpoint("x", x, tmp_path / "file")


def test_folder_is_the_settings(tmp_path: Path) -> None:
    with dask.config.set({"gpusched.jobs.checkpoints": str(tmp_path)}):
        gpusched.checkpoint("x", da.ones(3))
    assert len(list(tmp_path.glob("x/*/0.part"))) == 1
