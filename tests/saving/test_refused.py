"""What a file cannot carry is named, with its place and the remedy, and leaves no file."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster

import gpusched
from gpusched.saving import UnsavableError

ONES = da.ones(10, chunks=5)
LOCK = threading.Lock()


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def with_file() -> Any:
    file = open(__file__, "rb")  # noqa: SIM115
    OPENED.append(file)
    return ONES.map_blocks(lambda block: block + len(file.name), dtype="f8")


def with_lock() -> Any:
    def guarded(block: Any) -> Any:
        with LOCK:
            return block

    return ONES.map_blocks(guarded, dtype="f8")


def with_inner_function() -> Any:
    lock = threading.RLock()

    def inner(block: Any) -> Any:
        with lock:
            return block

    return ONES.map_blocks(lambda block: inner(block), dtype="f8")


def with_generator() -> Any:
    numbers = (k for k in range(3))
    return ONES.map_blocks(lambda block: block + next(numbers), dtype="f8")


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


class OnGpu:
    """Stands for an array of a library that keeps it on a GPU."""

    __cuda_array_interface__ = {"shape": (3,)}  # noqa: RUF012

    def __array__(self) -> Any:
        raise TypeError("implicit conversion")


def strange_key() -> Any:
    first = Task(("x", (0, 1)), np.ones, 1)
    others = [Task(("x", k), operator.add, first.ref(), k) for k in (0, 1)]
    layer = {task.key: task for task in (first, *others)}
    return da.Array(HighLevelGraph.from_collections("x", layer), "x", ((1, 1),), dtype="f8")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "open file": (with_file, r"task .*<lambda>, by the name 'file'|by the name 'file'.*BufferedR"),
    "lock": (with_lock, r"guarded \(test_refused.py:\d+\).*_thread.lock.*SerializableLock"),
    "lock of a function in a function": (with_inner_function, r"_thread.RLock cannot be saved"),
    "generator": (with_generator, r"'numbers'.*generator cannot be saved: make a list of it"),
    "array on a GPU": (lambda: [OnGpu()], r"the saved value\[0\].*OnGpu.*to the host first"),
    "object": (lambda: {"a": Unpicklable()}, r"\['a'\].*Unpicklable cannot be pickled: not this"),
    "delayed": (lambda: [dask.delayed(abs)(1)], r"Delayed cannot be saved: turn it into"),
    "key": (strange_key, r"a key of this form cannot be saved"),
}


class Emulated:
    """Stands for `cupy.ndarray`."""

    dtype = np.dtype("f4")


Emulated.__module__ = "cupy"


def test_arrays_of_cupy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsavableError, match=r"cupy\.Emulated.*to_backend\('numpy'\)"):
        gpusched.save(tmp_path / "x", lambda block, there=Emulated(): block)  # noqa: B008


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries_on_the_cpu_are_carried(tmp_path: Path, library: str) -> None:
    module = pytest.importorskip(library)
    value = module.asarray([1.0, 2.0]) if library == "torch" else module.numpy.asarray([1.0, 2.0])
    gpusched.save(tmp_path / "x", [value])
    (loaded,) = gpusched.load(tmp_path / "x", trust=True)
    assert type(loaded) is type(value)
    assert loaded.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused_with_place_and_remedy(tmp_path: Path, name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UnsavableError, match=message):
        gpusched.save(tmp_path / "x", make())
    assert list(tmp_path.iterdir()) == []


def test_results_on_a_cluster_are_refused(tmp_path: Path) -> None:
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        x = (ONES + 1).persist()
        for saved in (x, x + 1):
            with pytest.raises(UnsavableError, match=r"task .*client\.Future.*compute\(\)"):
                gpusched.save(tmp_path / "x", saved)
        with pytest.raises(UnsavableError, match=r"distributed\.client\.Client"):
            gpusched.save(tmp_path / "x", lambda: client)
        gpusched.save(tmp_path / "x", da.from_array(x.compute(), chunks=5) + 1)
    np.testing.assert_array_equal(
        gpusched.load(tmp_path / "x").compute(scheduler="threads"), np.full(10, 3.0)
    )


def test_the_path_comes_first(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"takes a path first, .* argument is of type Array"):
        gpusched.save(ONES, str(tmp_path / "file"))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
