"""Functions and objects that only a pickle can carry, by value, and those that nothing can."""

from __future__ import annotations

import inspect
import io
import os
import site
import sys
import sysconfig
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from typing import Any

import cloudpickle

from gpusched import forks
from gpusched.saving.errors import UnsavableError


@dataclass(frozen=True)
class Carried:
    """A value that has to be pickled."""

    value: Any
    place: str
    """Where it was met first."""

    @property
    def name(self) -> str:
        """What a person calls it: where a function was defined, or a value's type."""
        value = inspect.unwrap(self.value) if callable(self.value) else self.value
        named = value if hasattr(value, "__qualname__") else type(value)
        kind = "" if named is value else "a value of type "
        return f"{kind}{named.__module__}.{named.__qualname__}"


_lock = forks.lock()


def pickle(carried: Carried) -> tuple[bytes, list[str]]:
    """Return a value pickled by value, and the names of the packages it still needs.

    Functions and classes go with their code, unless they belong to an installed package or to
    Python itself, which are imported where the file is loaded. Raises `UnsavableError` if it cannot
    be pickled, or refers to what holds only in this process.
    """
    file = io.BytesIO()
    with _lock:
        pickler = _ByValue(file, carried)
        try:
            pickler.dump(carried.value)
        except UnsavableError:
            raise
        except Exception as error:  # whatever a user's __reduce__ raises
            told = f"{carried.place}: {carried.name} cannot be pickled: {error}"
            raise UnsavableError(told) from error
        finally:
            pickler.forget()
    return file.getvalue(), sorted(pickler.needed)


class _ByValue(cloudpickle.Pickler):
    """cloudpickle, for a reader that has the installed packages and nothing else."""

    def __init__(self, file: io.BytesIO, carried: Carried) -> None:
        super().__init__(file, protocol=5)
        self._carried = carried
        self._registered: list[types.ModuleType] = []
        self.needed: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        refuse(value, self._carried.place, self._carried.value)
        if isinstance(value, types.FunctionType | type | types.BuiltinFunctionType):
            self._note(sys.modules.get(getattr(value, "__module__", None) or ""))
        elif isinstance(value, types.ModuleType):
            self._note(value)
        return super().reducer_override(value)

    def _note(self, module: types.ModuleType | None) -> None:
        if module is None or module.__name__ == "__main__":
            return
        if is_installed(module):
            self.needed |= {module.__name__.partition(".")[0]} - sys.stdlib_module_names
        elif module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._registered.append(module)

    def forget(self) -> None:
        """Let cloudpickle treat modules as before."""
        for module in self._registered:
            cloudpickle.unregister_pickle_by_value(module)


def is_installed(module: types.ModuleType) -> bool:
    """Return whether a module is Python's own, or part of an installed package.

    Examples
    --------
    >>> import json, numpy
    >>> from gpusched.saving.code import is_installed
    >>> is_installed(json), is_installed(numpy.linalg)
    (True, True)
    """
    top = module.__name__.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    file = getattr(module, "__file__", None)
    if file is not None and os.path.realpath(file).startswith(_folders()):
        return True
    return top in _distributions()


@cache
def _folders() -> tuple[str, ...]:
    named = {"stdlib", "platstdlib", "purelib", "platlib"}
    folders = {path for name, path in sysconfig.get_paths().items() if name in named}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)


@cache
def _distributions() -> Mapping[str, list[str]]:
    # Packages that are installed for development lie outside of the folders above.
    return metadata.packages_distributions()


def version_of(module: str) -> str:
    """Return the version of the package that a module was installed with.

    Examples
    --------
    >>> import dask
    >>> from gpusched.saving.code import version_of
    >>> version_of("dask") == dask.__version__
    True
    """
    names = _distributions().get(module)
    return metadata.version(names[0]) if names else "unknown"


_LOCAL = {
    ("distributed.client", "Future"): "compute() it first, or take what it was made from",
    ("distributed.client", "Client"): "make one where the file is loaded",
    ("distributed.worker", "Worker"): "ask for it with get_worker() inside the function",
    ("_thread", "lock"): "use dask.utils.SerializableLock",
    ("_thread", "RLock"): "use dask.utils.SerializableLock",
    ("_io", "TextIOWrapper"): "open the file inside the function, by its name",
    ("_io", "BufferedReader"): "open the file inside the function, by its name",
    ("_io", "BufferedWriter"): "open the file inside the function, by its name",
    ("_io", "BufferedRandom"): "open the file inside the function, by its name",
    ("_io", "FileIO"): "open the file inside the function, by its name",
    ("socket", "socket"): "connect inside the function",
    ("builtins", "generator"): "make a list of it",
    ("builtins", "coroutine"): "await it first",
    ("h5py._hl.dataset", "Dataset"): "save the computation on its values, or use zarr",
    ("h5py._hl.files", "File"): "open the file inside the function, by its name",
}
"""What holds only in this process, by the module and name of its type, and what to do instead."""


def refuse(value: Any, place: str, inside: Any = None) -> None:
    """Raise if a value is of no use in another process.

    Raises `UnsavableError` if it is.

    Parameters
    ----------
    value
        Anything.
    place
        Where it was met, for the message.
    inside
        The function or object that refers to it.

    Examples
    --------
    >>> from gpusched.saving.code import refuse
    >>> with open("/dev/null") as file:
    ...     refuse(file, "task 'read'")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    gpusched.saving.errors.UnsavableError: task 'read': a value of type _io.TextIOWrapper cannot ...
    """
    kind: type = type(value)
    remedy = _remedy(kind)
    if remedy is None and _on_gpu(value):
        remedy = "bring it to the host first: x.to_backend('numpy') for a dask array of CuPy's"
    if remedy is None:
        return
    where = place + _reference(value, inside)
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise UnsavableError(f"{where}: a value of type {name} cannot be saved: {remedy}")


@lru_cache(maxsize=1024)
def _remedy(kind: type) -> str | None:
    names = [(base.__module__, base.__qualname__) for base in kind.__mro__]
    return next((_LOCAL[name] for name in names if name in _LOCAL), None)


def _on_gpu(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, type):
        return False
    match kind.__module__.partition(".")[0]:
        case "numpy" | "builtins":
            return False
        case "cupy" | "cupyx":
            return hasattr(kind, "dtype")
        case "torch":
            return bool(getattr(value, "is_cuda", False))
        case "jax" | "jaxlib" if hasattr(kind, "devices"):
            return any(device.platform != "cpu" for device in value.devices())
    return hasattr(kind, "__cuda_array_interface__")


def _reference(value: Any, inside: Any) -> str:
    """Return by which name a function refers to a value, as text."""
    function = inspect.unwrap(inside) if callable(inside) else inside
    if not isinstance(function, types.FunctionType):
        return ""
    code = function.__code__
    where = f", in {code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    found |= {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
    names = [name for name, other in found.items() if other is value]
    return where + (f", by the name {names[0]!r}" if names else "")


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
