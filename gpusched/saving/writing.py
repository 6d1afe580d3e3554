"""Saving: what a computation consists of goes into one file."""

from __future__ import annotations

import base64
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from dask.array.optimization import optimize
from dask.base import is_dask_collection
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

import gpusched
from gpusched.adapters.tasks import convert_legacy_graph
from gpusched.files import replacing
from gpusched.saving import code, recording, required_kernels
from gpusched.saving.container import Writer
from gpusched.saving.errors import UnsavableError
from gpusched.saving.saved_programs import encode_tasks
from gpusched.saving.structure import Outputs, encode_array, summary
from gpusched.saving.values import Encoder
from gpusched.serialization import strided
from gpusched.serialization.codec.link import KEY, Link

FORMAT = "gpusched saved computation"
VERSION = 1
_TOLD = ("dask", "distributed", "numpy", "numba", "cloudpickle")
_DISK = {"recipient": {KEY: Link(5e8)}}
"""What arrays are compressed for, where that pays: a disk of 500 MB/s."""


def save(path: str | os.PathLike[str], value: Any, /, *examples: Any, **named: Any) -> None:
    """Write a computation to a file that runs later, with no access to the code that made it.

    The file holds the graph as dask optimises it, with the arrays in it and nothing computed. Where
    all of its tasks call functions of NumPy, Python's operators and dask's own array functions, it
    is data: `load` needs to trust nobody. Functions of your own are carried with their code, and
    `load` then asks for ``trust=True``.

    A function with example arguments is run once, on dask arrays that know nothing but the
    examples' shapes and dtypes, and the operations it calls are saved rather than the function.
    They hold for arrays of those shapes and dtypes; arguments that are not arrays keep the value
    that they have here. A function without examples is saved as code.

    Parameters
    ----------
    path : str or os.PathLike
        The file; what was there is replaced once the new file is complete.
    value : object
        A dask array; lists, tuples and dictionaries of them; an xarray ``DataArray`` or
        ``Dataset``; a function.
    *examples, **named
        Arguments for a function: NumPy or dask arrays for what will be its inputs.

    Raises
    ------
    TypeError
        If what should be the path is not one, or examples are given with something else than a
        function.
    UnsavableError
        If a file cannot carry it: results on a cluster, open files, locks, arrays on a GPU, or a
        function that looks at the values of its examples. The message says where it is, and what
        to do instead.
    OSError
        If the file cannot be written. Nothing is left of it then.

    See Also
    --------
    gpusched.load

    Notes
    -----
    The file is a zip archive: ``manifest.json`` says what it is and by which versions it was made,
    ``graph.json`` holds the programs and tasks, ``arrays/`` the numbers, compressed where that
    pays, ``code/`` the functions that are pickled. ``kernels/`` has the source of the kernels that
    gpusched makes of the programs, as far as they are known without running anything of yours;
    they are there to be read. `load` makes them again from the programs, in the version that is
    installed then, and takes their machine code from the kernel cache if it is there.

    A function is recorded at the level of dask's graph rather than of one chunk's kernels, so that
    chunks, reductions over them, and operations that no kernel can do are part of it.

    Examples
    --------
    >>> import dask.array as da, gpusched, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "mean.gpusched")
    >>> x = da.random.default_rng(0).random((200, 100), chunks=100)
    >>> gpusched.save(path, (x**2).mean(axis=0))
    >>> bool((gpusched.load(path) == (x**2).mean(axis=0)).all())
    True
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            "save takes a path first, then the value: the first argument is of type "
            f"{type(path).__name__}"
        )
    encoder = Encoder()
    about: dict[str, Any] = {"kind": "value"}
    content: dict[str, Any] = {"inputs": []}
    given: list[Any] = []
    place = "the saved value"
    if examples or named:
        if is_dask_collection(value) or not callable(value):
            raise TypeError(f"examples are for functions, and this is a {type(value).__name__}")
        recorded = recording.record(value, examples, named)
        about = {"kind": "function", "name": recorded.name, **recorded.told()}
        content["inputs"] = [
            {"parameter": name, **encode_array(array, encoder, f"input {name!r}")}
            for name, array in recorded.inputs.items()
        ]
        given = list(recorded.inputs.values())
        value, place = recorded.result, recorded.place
    outputs = Outputs(encoder)
    content["result"] = outputs.encode(value, place)
    content["outputs"] = [encode_array(a, encoder, f"array {a.name!r}") for a in outputs.arrays]
    built = HighLevelGraph.merge(*(array.__dask_graph__() for array in [*outputs.arrays, *given]))
    graph = _optimised(built, outputs.arrays, given)
    content |= encode_tasks(graph, encoder)
    found = required_kernels.find(built, graph)
    about["outputs"] = [summary(array) for array in outputs.arrays]
    about["kernels"] = list(found.sources)
    about["kernels not known behind"] = found.unknown
    _write(Path(path), about, content, encoder, found.sources)


def _optimised(built: HighLevelGraph, arrays: list[Any], given: list[Any]) -> dict[Any, Any]:
    """Return the tasks of all arrays as dask optimises them, but for those that are given."""
    if not arrays:
        return {}
    keys = list(flatten([array.__dask_keys__() for array in [*arrays, *given]]))
    graph = ensure_dict(optimize(built, keys))
    tasks: dict[Any, Any] = convert_legacy_graph(graph)
    placed = set(flatten([array.__dask_keys__() for array in given]))
    needed = set(keys).union(*(node.dependencies for node in tasks.values()))
    for key in sorted(needed - tasks.keys(), key=str):
        # dask leaves out what it takes to be on a cluster already.
        code.refuse(built.get(key), f"task {key!r}")
        raise UnsavableError(f"task {key!r} is needed, and dask's optimisation has left it out")
    return {key: node for key, node in tasks.items() if key not in placed}


def _write(
    path: Path,
    about: dict[str, Any],
    content: dict[str, Any],
    encoder: Encoder,
    sources: dict[str, str],
) -> None:
    pickled = [code.pickle(carried) for carried in encoder.code]
    modules = sorted({name for _, needed in pickled for name in needed})
    with replacing(path, durable=True) as file, Writer(file) as writer:
        content["arrays"] = []
        for number, array in enumerate(encoder.arrays):
            header, frames = strided.pack(array, _DISK)
            sealed = base64.b64encode(header["gpusched"]).decode()
            lengths = [memoryview(frame).nbytes for frame in frames]
            told = {"shape": array.shape, "dtype": str(array.dtype)}
            content["arrays"].append({**told, "sealed": sealed, "frames": lengths})
            writer.frames(f"arrays/{number}", frames)
        writer.text("graph.json", json.dumps(content))
        for number, (data, _) in enumerate(pickled):
            writer.data(f"code/{number}.pickle", data)
        for name, source in sources.items():
            writer.text(f"kernels/{name}.py", source)
        writer.close({
            "format": FORMAT,
            "version": VERSION,
            **about,
            "code": [{"name": c.name, "place": c.place} for c in encoder.code],
            "made with": versions(),
            "modules": {name: code.version_of(name) for name in modules},
        })  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions that a computation may depend on."""
    told = {name: metadata.version(name) for name in _TOLD}
    return {"gpusched": gpusched.__version__, "python": platform.python_version(), **told}
