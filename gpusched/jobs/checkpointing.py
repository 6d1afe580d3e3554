"""Results kept in files, part by part, so that a job that is started again goes on from them."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from gpusched import config

logger = logging.getLogger(__name__)

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def checkpoint(key: str, x: Any, directory: str | os.PathLike[str] | None = None) -> Any:
    """Compute ``x``, keep it in files, and return it as it is read from there.

    Each chunk has a file of its own, which is written whole or not at all. What has a file already
    is not computed: neither when the program runs again, nor after it was killed half-way.

    Parameters
    ----------
    key : str
        A folder's name, of letters, digits, ``-``, ``_`` and ``.``.
    x : dask collection
        A dask array, or another dask collection: an xarray object, a bag, `dask.delayed`.
    directory : str or os.PathLike, optional
        A folder that the workers see too. None takes the setting ``gpusched.jobs.checkpoints``,
        which `gpusched submit` sets to a folder of the job's.

    Returns
    -------
    dask collection
        Of the same kind, chunks and dtype, that reads the files.

    Raises
    ------
    TypeError
        If ``x`` is not a dask collection.
    ValueError
        If the key cannot be a file's name, or there is no folder.
    OSError
        If the folder cannot be written to, or is not the workers' too.

    Notes
    -----
    What is kept counts for the same computation only, which dask identifies by its token: the same
    functions on the same arguments, and arrays of random numbers only with a seed. For functions
    from modules that are not installed, these modules must be the same, too, and what they import;
    for data that tasks read by a file's name, it is the name that counts. Nothing is ever
    removed: what other computations have left under the same key stays, since arrays may read it
    still. The files are pickles in part: whoever can write to the folder can run code in the
    program that reads it.

    Examples
    --------
    >>> import tempfile
    >>> import dask.array as da
    >>> import gpusched
    >>> x = da.arange(6, chunks=3) ** 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = gpusched.checkpoint("squares", x, folder)
    ...     print(kept.sum().compute(scheduler="threads"))
    55
    """
    from dask.base import is_dask_collection, tokenize
    from dask.core import flatten

    from gpusched.jobs import own_modules

    if not is_dask_collection(x):
        raise TypeError(
            f"checkpoint {key!r}: {type(x).__name__} is not a dask collection: call it before "
            f"compute()"
        )
    # By a token alone, a function in an imported module is the same whatever its code.
    own = own_modules.digest(dict(x.__dask_graph__()).values())
    token = tokenize(x, own) if own else tokenize(x)
    folder = _folder(key, directory)
    paths = _paths(folder / token, list(flatten(x.__dask_keys__())))
    present = _present(folder / token)
    missing = {each: path for each, path in paths.items() if path.name not in present}
    logger.info(
        "checkpoint %r: %d of %d parts are kept", key, len(paths) - len(missing), len(paths)
    )
    if missing:
        (folder / token).mkdir(mode=0o700, parents=True, exist_ok=True)
        _compute(x, f"checkpoint-{token}", missing)
        _check(folder / token, paths)
    return _rebuilt(x, token, paths)


def _folder(key: str, directory: str | os.PathLike[str] | None) -> Path:
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise ValueError(
            f"{key!r} cannot be a checkpoint's key: use at most 64 letters, digits, '-', '_' and "
            f"'.', and begin with a letter or a digit"
        )
    chosen = directory or config.get("jobs.checkpoints")
    if chosen is None:
        raise ValueError(
            f"checkpoint {key!r} has no folder: pass directory=, set gpusched.jobs.checkpoints, "
            f"or run the script by `gpusched submit`"
        )
    return Path(chosen).expanduser().absolute() / key


def _paths(folder: Path, keys: list[Any]) -> dict[Any, Path]:
    return {key: folder / f"{number}.part" for number, key in enumerate(keys)}


def _present(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _compute(x: Any, name: str, missing: dict[Any, Path]) -> None:
    """Write what is missing, by the scheduler and the optimisation of the collection."""
    from dask.base import get_scheduler
    from dask.highlevelgraph import HighLevelGraph

    from gpusched.adapters.tasks import Task, TaskRef

    layer: dict[Any, Task] = {
        (name, number): Task((name, number), write, str(path), TaskRef(key))
        for number, (key, path) in enumerate(missing.items())
    }
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[x])
    keys = list(layer)
    get_scheduler(collections=[x])(x.__dask_optimize__(graph, keys), keys)


def _check(folder: Path, paths: dict[Any, Path]) -> None:
    absent = {path.name for path in paths.values()} - _present(folder)
    if absent:
        raise FileNotFoundError(
            f"the workers wrote {len(absent)} files that {folder} does not have: choose a folder "
            f"that they and this process share"
        )


def _rebuilt(x: Any, token: str, paths: dict[Any, Path]) -> Any:
    """Return the collection with tasks that read files; their keys differ from those of x."""
    from dask.base import replace_name_in_key

    from gpusched.adapters.tasks import Task

    names = {key[0] if isinstance(key, tuple) else key for key in paths}
    rename = {name: f"kept-{token}-{number}" for number, name in enumerate(sorted(names))}
    layer = {}
    for key, path in paths.items():
        new = replace_name_in_key(key, rename)
        layer[new] = Task(new, read, str(path))
    rebuild, arguments = x.__dask_postpersist__()
    return rebuild(layer, *arguments, rename=rename)


def write(path: str, value: Any) -> None:
    """Write a value to a file, which is there when all of it is."""
    from gpusched.files import replacing
    from gpusched.serialization import frames
    from gpusched.workers.memory import packing

    header, parts = packing.pack(value, None)
    with replacing(Path(path), durable=True) as file:
        frames.write(file, header, parts)


def read(path: str) -> Any:
    """Return the value that was written.

    Raises `gpusched.serialization.frames.CorruptFrameError` if the file is damaged.
    """
    from gpusched.serialization import frames
    from gpusched.workers.memory import packing

    try:
        with open(path, "rb", buffering=0) as file:
            header, parts = frames.read(file, os.fstat(file.fileno()).st_size)
    except frames.CorruptFrameError as error:
        raise frames.CorruptFrameError(
            f"{path}: {error}: remove the file, and the checkpoint computes it again"
        ) from None
    return packing.unpack(header, parts)
