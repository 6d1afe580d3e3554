"""Loading: what `gpusched.saving.writing` wrote, checked before anything is made of it."""

from __future__ import annotations

import base64
import itertools
import math
import os
import pickle
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from dask.tokenize import tokenize

from gpusched.saving import elements, structure
from gpusched.saving.computation import Computation, SavedFunction
from gpusched.saving.container import Reader
from gpusched.saving.errors import FormatError, UntrustedError
from gpusched.saving.rebuild import decode_tasks
from gpusched.saving.values import Decoder
from gpusched.saving.writing import FORMAT, VERSION, versions
from gpusched.serialization import strided
from gpusched.serialization.frames import CorruptFrameError

_CODE = re.compile(r"code/(\d+)\.pickle")


def load(path: str | os.PathLike[str], trust: bool = False) -> Any:
    """Return what was saved: the same kind of object, with nothing computed yet.

    Parameters
    ----------
    path : str or os.PathLike
        A file that `gpusched.save` wrote.
    trust : bool
        Whether to load functions that the file's author wrote. They can do whatever you can. A
        file without any is data, and is loaded without trust.

    Returns
    -------
    object
        A dask array of the same chunks and dtype, or what else was saved. A function saved with
        examples is a `SavedFunction`: given NumPy arrays it returns NumPy arrays, given dask
        arrays it returns dask arrays.

    Raises
    ------
    UntrustedError
        If it has functions that its author wrote, and it is not trusted; the message has their
        names. Nothing of the file has been run then.
    CorruptFrameError
        If it is damaged, or no such file.
    FormatError
        If it was written in a newer format, or its functions by another version of Python.

    See Also
    --------
    gpusched.save
    gpusched.saving.describe : What is in a file, with nothing loaded.

    Notes
    -----
    A file that needs no trust can call only the functions listed in
    `gpusched.saving.permitted_functions`, and only when what is loaded is computed. That may still
    take all memory and time there is.

    Examples
    --------
    >>> import gpusched, numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "distance.gpusched")
    >>> gpusched.save(path, lambda x, y: np.sqrt(x**2 + y**2), np.ones(3), np.ones(3))
    >>> distance = gpusched.load(path)
    >>> distance
    <SavedFunction <lambda>(x: float64 (3,), y: float64 (3,))>
    >>> distance(x=np.array([3.0, 5.0, 8.0]), y=np.array([4.0, 12.0, 15.0]))
    array([ 5., 13., 17.])
    """
    with _opened(path) as reader:
        manifest = _checked(reader.manifest())
        code = _code(reader, manifest, trust)
        content = reader.json("graph.json", manifest)
        if not isinstance(content, dict):
            raise CorruptFrameError(f"graph.json: expected a map, found {content!r:.100}")
        try:
            computation = _computation(reader, content, code, manifest)
        except CorruptFrameError as error:
            made = manifest.get("made with")
            if made != versions():
                # Functions come and go between versions.
                error.add_note(f"gpusched: made with {made!r:.300}, and here are {versions()}")
            raise
    if manifest["kind"] == "function":
        return SavedFunction(str(manifest.get("name")), computation)
    return computation.result([])


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file says of itself, with nothing loaded.

    Parameters
    ----------
    path : str or os.PathLike
        A file that :func:`gpusched.save` has written.

    Returns
    -------
    dict
        ``kind``, ``outputs`` (shape, dtype and chunks of each array), ``inputs`` of a function,
        ``code`` (what needs trust, and where it is used), ``made with`` (versions), ``modules``
        (packages that the code imports), and more.

    Raises
    ------
    CorruptFrameError
        If it is damaged, or no such file.
    FormatError
        If it was written in a newer format.

    Examples
    --------
    >>> import dask.array as da, gpusched, os, tempfile
    >>> from gpusched.saving import describe
    >>> path = os.path.join(tempfile.mkdtemp(), "ones.gpusched")
    >>> gpusched.save(path, da.ones(5, chunks=3).map_blocks(lambda block: block + 1))
    >>> about = describe(path)
    >>> about["outputs"], len(about["code"])
    ([{'shape': [5], 'dtype': 'float64', 'chunks': [[3, 2]]}], 1)
    """
    with _opened(path) as reader:
        return _checked(reader.manifest())


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Reader]:
    """Give what reads a file; errors of what is in it begin with its path."""
    with open(path, "rb") as file:
        try:
            yield Reader(file)
        except (CorruptFrameError, FormatError, UntrustedError) as error:
            error.args = (f"{os.fspath(path)}: {error}",)
            raise


def _checked(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest.get("format") != FORMAT or type(manifest.get("version")) is not int:
        raise CorruptFrameError("the manifest is not one of a saved computation")
    if manifest["version"] > VERSION:
        made = manifest.get("made with")
        by = made.get("gpusched") if isinstance(made, dict) else None
        raise FormatError(
            f"the file has format {manifest['version']}, written by gpusched {by}; this version "
            f"reads formats up to {VERSION}: it takes version {by} of gpusched, or a newer one"
        )
    if manifest.get("kind") not in ("value", "function"):
        raise CorruptFrameError(f"kind: found {manifest.get('kind')!r:.100}")
    return manifest


def _code(reader: Reader, manifest: dict[str, Any], trust: bool) -> list[Any]:
    """Return what was pickled, if it is trusted."""
    count = sum(_CODE.fullmatch(name) is not None for name in reader.names)
    if not count:
        return []
    told = manifest.get("code")
    told = [f"{c.get('name')!r:.200}" for c in told if isinstance(c, dict)] if told else []
    if not trust:
        raise UntrustedError(
            f"the file carries code of its author's: {', '.join(told)}. If you trust whoever "
            "wrote the file, and nobody else could change it, load it with trust=True"
        )
    made = manifest.get("made with")
    python = str(made.get("python") if isinstance(made, dict) else None)
    if python.split(".")[:2] != list(platform.python_version_tuple()[:2]):
        raise FormatError(
            f"the file carries functions compiled by Python {python}, and this is Python "
            f"{platform.python_version()}: load it there, or save it from here"
        )
    return [_unpickled(reader, manifest, number) for number in range(count)]


def _unpickled(reader: Reader, manifest: dict[str, Any], number: int) -> Any:
    data = reader.data(f"code/{number}.pickle", manifest)
    try:
        return pickle.loads(data)
    except Exception as error:  # whatever the author's code raises
        error.add_note(f"gpusched: while loading code; the file needs {manifest.get('modules')}")
        raise


def _arrays(reader: Reader, headers: Any) -> list[np.ndarray]:
    if not isinstance(headers, list):
        raise CorruptFrameError("graph.json: no arrays")
    arrays = []
    for number, header in enumerate(headers):
        match header:
            case {"sealed": str(sealed), "frames": list(lengths)}:
                frames = reader.frames(f"arrays/{number}", lengths)
                array, _ = strided.unpack({"gpusched": _decoded(sealed)}, frames, from_file=True)
                elements.check(array)
                arrays.append(array)
            case _:
                raise CorruptFrameError(f"{header!r:.200} is not an array")
    return arrays


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptFrameError(f"header of an array: {error}") from error


def _computation(
    reader: Reader, content: dict[str, Any], code: list[Any], manifest: dict[str, Any]
) -> Computation:
    arrays = _arrays(reader, content.get("arrays"))
    decoder = Decoder(arrays, code)
    inputs, outputs = content.get("inputs"), content.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise CorruptFrameError("graph.json: no inputs and outputs")
    given = {_parameter(item): structure.decode_array(_array(item), decoder) for item in inputs}
    described = [structure.decode_array(item, decoder) for item in outputs]
    tasks = decode_tasks(content, decoder, {array.name for array in given.values()})
    keys = {task.key for task in tasks}
    for array in described:
        _check_output(array, keys, list(given.values()))
    token = tokenize(manifest["checksums"])
    return Computation(given, described, tasks, content.get("result"), arrays, code, token)


def _parameter(encoded: Any) -> str:
    name = encoded.get("parameter") if isinstance(encoded, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise CorruptFrameError(f"{encoded!r:.200} is not an input")
    return name


def _array(encoded: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in encoded.items() if name != "parameter"}


def _check_output(array: structure.Described, keys: set[Any], given: list[Any]) -> None:
    """Refuse an array that not every block is there of."""
    if any(array.name == other.name and array.chunks == other.chunks for other in given):
        return
    blocks = itertools.product(*map(range, array.blocks))
    if math.prod(array.blocks) > len(keys) or any((array.name, *b) not in keys for b in blocks):
        raise CorruptFrameError(f"blocks of array {array.name!r:.200} are missing")
