"""Serializing arrays: ``python -m tests.benchmarks.serialization [--repeat 5] [--size 64]``.

Each kind of data is serialized and deserialized by gpusched (compression off, on, and chosen for
another host), by distributed's own functions with each of its compressions, and by blosc2 where it
is installed; and it is spilled to files and read again. Contenders take turns in one process.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dask
import numpy as np
from distributed.protocol import dumps, loads, numpy, to_serialize
from distributed.protocol.serialize import (
    dask_deserialize,
    dask_dumps,
    dask_loads,
    dask_serialize,
    register_serialization_family,
)
from distributed.spill import SpillBuffer

import gpusched.serialization
from gpusched.workers.device import HostDevice
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
from tests.benchmarks import report
from tests.benchmarks.cluster import spill_and_unspill
from tests.benchmarks.fields import KINDS, field

CHUNKS = 8
_ORDER = random.Random(0)
_MODE = "gpusched.serialization.compression"
_SPILL = "distributed.worker.memory.spill-compression"
_BETWEEN_HOSTS = {"sender": {"address": "tcp://a:1"}, "recipient": {"address": "tcp://b:1"}}

Times = dict[str, tuple[list[float], list[float]]]
"""Seconds there and back, by contender."""


@contextmanager
def plain_distributed() -> Iterator[None]:
    """Let distributed's own functions serialize NumPy's arrays."""
    gpusched.serialization.register()
    ours = dask_serialize.dispatch(np.ndarray), dask_deserialize.dispatch(np.ndarray)
    register_serialization_family("dask", dask_dumps, dask_loads)
    dask_serialize.register(np.ndarray, numpy.serialize_numpy_ndarray)
    dask_deserialize.register(np.ndarray, numpy.deserialize_numpy_ndarray)
    try:
        yield
    finally:
        dask_serialize.register(np.ndarray, ours[0])
        dask_deserialize.register(np.ndarray, ours[1])
        gpusched.serialization.register()


@contextmanager
def mode(value: object) -> Iterator[None]:
    """Set whether gpusched compresses."""
    with dask.config.set({_MODE: value}):
        yield


def message(array: np.ndarray, compression: str | None = None) -> list[Any]:
    """Return the frames that a connection between two hosts would write."""
    context = {**_BETWEEN_HOSTS, "compression": compression}
    # As over TCP, which splits long frames.
    frames: list[Any] = dumps(
        {"x": to_serialize(array)}, context=context, frame_split_size=64 << 20
    )
    return frames


def received(frames: list[Any]) -> Any:
    """Return the array, from frames that are in memory of the receiver."""
    return loads([np.frombuffer(frame, np.uint8).data for frame in frames])["x"]


def compressors() -> dict[str, tuple[Any, Callable[..., Any], Callable[..., Any]]]:
    """Return, by name, where each works, and its functions there and back."""
    found: dict[str, Any] = {
        "gpusched auto": (functools.partial(mode, "auto"), message, received),
        "gpusched on": (functools.partial(mode, True), message, received),
        "gpusched off": (functools.partial(mode, False), message, received),
    }
    names: list[str | None] = [None, "lz4", *(["zstd"] if find_spec("zstandard") else [])]
    for name in names:
        there = functools.partial(message, compression=name)
        found[f"distributed {name or 'off'}"] = (plain_distributed, there, received)
    if find_spec("blosc2"):
        import blosc2

        pack = functools.partial(_blosc2, blosc2)
        found["blosc2"] = (functools.partial(mode, False), pack, _from_blosc2)
    return found


def _blosc2(blosc2: Any, array: np.ndarray) -> list[bytes]:
    return [blosc2.compress2(array, codec=blosc2.Codec.LZ4, clevel=1, typesize=array.itemsize)]


def _from_blosc2(frames: list[bytes]) -> Any:
    import blosc2

    target = np.empty(int.from_bytes(frames[0][4:8], "little"), np.uint8)
    blosc2.decompress2(frames[0], dst=target)
    return target


def exchange(chunks: list[np.ndarray], repeat: int) -> tuple[Times, dict[str, float]]:
    """Return the seconds by contender, and how many bytes it makes one of."""
    contenders = compressors()
    times: Times = {name: ([], []) for name in contenders}
    ratios: dict[str, float] = {}
    for turn in range(repeat + 1):
        for name in _ORDER.sample(list(contenders), len(contenders)):
            surroundings, there, back = contenders[name]
            with surroundings():
                begun = perf_counter()
                messages = [there(chunk) for chunk in chunks]
                middle = perf_counter()
                for frames, chunk in zip(messages, chunks, strict=True):
                    assert back(frames).nbytes == chunk.nbytes
                ended = perf_counter()
            if turn:
                times[name][0].append(middle - begun)
                times[name][1].append(ended - middle)
            sent = sum(memoryview(frame).nbytes for frames in messages for frame in frames)
            ratios[name] = sum(chunk.nbytes for chunk in chunks) / sent
            del messages
    return times, ratios


def stores(folder: Path) -> dict[str, tuple[Any, Callable[[], Any]]]:
    """Return, by name, where each store works, and what makes it."""
    found: dict[str, Any] = {}
    for value in ("auto", True, False):
        name = {True: "on", False: "off"}.get(value, value)  # type: ignore[call-overload]
        found[f"gpusched {name}"] = (
            functools.partial(mode, value),
            lambda name=name: Store(HostDevice(), SpillFiles(folder / name)),
        )
    for name in ["off", "lz4", *(["zstd"] if find_spec("zstandard") else [])]:
        found[f"distributed {name}"] = (
            functools.partial(_distributed_spills, None if name == "off" else name),
            lambda name=name: SpillBuffer(str(folder / f"theirs {name}"), target=sys.maxsize),
        )
    return found


@contextmanager
def _distributed_spills(compression: str | None) -> Iterator[None]:
    with plain_distributed(), dask.config.set({_SPILL: compression}):
        yield


def spill(chunks: list[np.ndarray], repeat: int, disk: str) -> tuple[Times, dict[str, float]]:
    """Return the seconds by store, and how many bytes it makes one of."""
    times: Times = {}
    ratios: dict[str, float] = {}
    for turn in range(repeat + 1):
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            contenders = stores(Path(folder))
            for name in _ORDER.sample(list(contenders), len(contenders)):
                surroundings, make = contenders[name]
                with surroundings():
                    store, sizes = make(), []
                    count = functools.partial(_note_size, Path(folder), sizes)
                    there, back = spill_and_unspill(store, chunks, count)
                    store.close()
                if turn:
                    times.setdefault(name, ([], []))
                    times[name][0].append(there)
                    times[name][1].append(back)
                ratios[name] = sum(chunk.nbytes for chunk in chunks) / sizes[0]
    return times, ratios


def _note_size(folder: Path, sizes: list[int]) -> None:
    sizes.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def table(title: str, chunks: list[np.ndarray], times: Times, ratios: dict[str, float]) -> str:
    """Return lines of a table: MB/s there, back and both, and the ratio of sizes."""
    amount = sum(chunk.nbytes for chunk in chunks) / 1e6
    lines = [f"\n**{title}**, {amount:.0f} MB\n"]
    lines += ["| | there, MB/s | back, MB/s | both, MB/s | bytes to one |", "| --- " * 5 + "|"]
    for name, (there, back) in times.items():
        both = median(a + b for a, b in zip(there, back, strict=True))
        shown = [f"{amount / seconds:,.0f}" for seconds in (median(there), median(back), both)]
        lines.append(f"| {name} | {' | '.join(shown)} | {ratios[name]:.2f} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.benchmarks.serialization")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--size", type=int, default=64, help="MiB of each kind")
    parser.add_argument("--kind", action="append", help="by default all")
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="where files go")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.serialization", arguments))
    for kind in options.kind or KINDS:
        nbytes = (options.size << 20) // CHUNKS
        chunks = [field(kind, nbytes, seed) for seed in range(CHUNKS)]
        print(table(f"Message: {kind}", chunks, *exchange(chunks, options.repeat)), flush=True)
        title = f"Files in {options.disk}: {kind}"
        print(table(title, chunks, *spill(chunks, options.repeat, options.disk)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
