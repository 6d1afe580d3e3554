"""A model on its way to workers: one key of the graph, loaded once in each process that uses it.

The key is a value like any other of dask's: it goes to each worker that needs it once, is fetched
from whoever has it, is sent again where a worker was lost, counts as memory, and is forgotten with
the last task that needs it. What was loaded from it goes with the last of its copies here. All of
dask's schedulers do this, so a model needs no message of its own.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import pickle
import threading
import weakref
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpusched import forks
from gpusched.models.base import Model, Packed
from gpusched.models.errors import ModelError, here
from gpusched.record.catalogue import own
from gpusched.threadsafe.policies import parse
from gpusched.threadsafe.unsafe_libraries import OFF, cases
from gpusched.threadsafe.wrapping import wrap


class Weights:
    """What tasks are given of a model.

    Parameters
    ----------
    packed
        The model as it travels.
    device
        Where it is to be, as its library names devices; None for the worker's GPU, or else its CPU.
    library
        The library whose arrays a plain function takes.
    token
        A digest of all that; made here if empty.

    Notes
    -----
    Thread-safe. All copies in a process share what was loaded.
    """

    def __init__(
        self,
        packed: Packed,
        device: str | None = None,
        library: str | None = None,
        token: str = "",
    ) -> None:
        self.packed = packed
        self.device = device
        self.library = library
        self.token = token or _digest(packed, device, library)
        self._loaded: Loaded | None = None

    def __repr__(self) -> str:
        return f"<model {self.packed.name}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        content = self.packed.content
        # Out of band: distributed sends the bytes as they lie here.
        lent = pickle.PickleBuffer(content) if protocol >= 5 else bytes(content)
        about = {**vars(self.packed), "content": b""}
        return _restore, (about, lent, self.device, self.library, self.token)

    def __copy__(self) -> Weights:
        return Weights(self.packed, self.device, self.library, self.token)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.packed.content)

    def __dask_tokenize__(self) -> Any:
        return "gpusched.Weights", self.token

    def loaded(self) -> Loaded:
        """Return the model, loading it if this process has not yet.

        Raises `ModuleNotFoundError` if its library is not installed here; `FileNotFoundError` if
        its file is not here; `ModelError` if it cannot be read here.
        """
        if self._loaded is None:
            self._loaded = _shared(self)
        return self._loaded

    def let_go(self) -> None:
        """Give up what was loaded; it is loaded again on the next use."""
        self._loaded = None


def _restore(about: dict[str, Any], content: Any, *others: Any) -> Weights:
    return Weights(Packed(**{**about, "content": memoryview(content)}), *others)


def _digest(packed: Packed, *others: Any) -> str:
    about = {**vars(packed), "content": b""}
    digest = hashlib.blake2b(repr((sorted(about.items()), others)).encode(), digest_size=16)
    digest.update(packed.content)
    return digest.hexdigest()


@own("quick")
def received(weights: Weights) -> Weights:
    """Return what the tasks of a process share of a model, and what goes with the last of them.

    A worker keeps the task that returns it, and what that is given, for as long as the results.
    """
    return copy.copy(weights)


class Loaded:
    """A model that all `Weights` of a process with the same token refer to.

    Notes
    -----
    Thread-safe: `run` lets threads in as the policy of the model's library has it.
    """

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self._held: list[Any] = [model, under_policy(model.policy, model.run)]
        # At the end of the process everything goes anyway, libraries first.
        weakref.finalize(self, _release, self._held).atexit = False

    @property
    def model(self) -> Model:
        """The model."""
        return self._held[0]

    @property
    def run(self) -> Callable[..., Any]:
        """Its `Model.run`, under its policy."""
        return self._held[1]


def _release(held: list[Any]) -> None:
    # The model first, so that what its library has cached for it is free by then.
    give_back = held[0].afterwards()
    held.clear()
    give_back()


_all: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()
_loading: dict[str, threading.Lock] = {}


def _shared(weights: Weights) -> Loaded:
    token = weights.token
    with _loading.setdefault(token, forks.lock()):
        try:
            found = _all.get(token)
            if found is None:
                found = _all[token] = Loaded(weights.packed.name, _load(weights))
        finally:
            # Whoever waits has the lock already; whoever comes now finds the model, or loads it.
            _loading.pop(token, None)
    return found


def loaded() -> list[str]:
    """Return the names of the models that are loaded in this process.

    Examples
    --------
    >>> from gpusched import models
    >>> models.loaded()
    []
    """
    return [found.name for found in list(_all.values())]


def _load(weights: Weights) -> Model:
    packed = weights.packed
    _check_versions(packed)
    if packed.path:
        _check_file(packed)
    reader = importlib.import_module(f"gpusched.models.{packed.kind}")
    try:
        model: Model = reader.load(packed, weights.device, weights.library)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the model {packed.name} needs {error.name}, which is not installed for {here()}: "
            "install it there",
            name=error.name,
        ) from error
    except Exception as error:
        error.add_note(f"gpusched: raised as {here()} loaded the model {packed.name}")
        raise
    return model


def _check_versions(packed: Packed) -> None:
    for name, wanted in packed.versions:
        try:
            found = version(name)
        except PackageNotFoundError:
            raise ModuleNotFoundError(
                f"the model {packed.name} needs {name} {wanted}, which is not installed for "
                f"{here()}: pip install {name}=={wanted} there",
                name=name,
            ) from None
        # What follows a plus is the build, such as that for CPUs.
        if found.partition("+")[0] != wanted.partition("+")[0]:
            raise ModelError(
                f"the model {packed.name} was packed with {name} {wanted}, and {here()} has "
                f"{found}: install the same version there, or pass a function that loads the "
                "model, as in gpusched.apply(lambda: load(), x)"
            )


def _check_file(packed: Packed) -> None:
    path = Path(packed.path)
    if not path.exists():
        raise FileNotFoundError(
            f"the model {packed.path} is not there for {here()}: put it where all workers see it, "
            "or pass the model itself, or its bytes, which travel to them"
        )
    if packed.size >= 0 and path.is_file() and path.stat().st_size != packed.size:
        raise ModelError(
            f"the model {packed.path} has {path.stat().st_size} bytes for {here()}, and had "
            f"{packed.size} where gpusched.apply was called: give all machines the same file"
        )


def under_policy(library: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as the registry, or the settings, have a library called.

    Parameters
    ----------
    library
        Its name in the registry; empty for none.
    function
        Calls it.

    Examples
    --------
    >>> from gpusched.models.weights import under_policy
    >>> under_policy("onnxruntime", abs) is abs
    True
    """
    policy = next((case.policy for case in cases() if case.library == library), OFF)
    if policy == OFF:
        return function
    guarded: Callable[..., Any] = wrap(function, parse(policy).named(library), results=False)
    return guarded
