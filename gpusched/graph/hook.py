"""Switching fusion on and off: dask's ``array_optimize`` hook.

Array expressions have none. They are fused where dask makes one expression of all collections that
are computed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import Any

import dask
from dask.core import flatten

from gpusched import config, settings
from gpusched.chunking import size
from gpusched.config import chosen
from gpusched.graph import callsites, early
from gpusched.graph.frontends.adapter import entered_through, optimise_by, replace_entry
from gpusched.plan.overrides import Overrides, active


class Hook:
    """dask's hook: `optimize`, called on each graph of arrays.

    Parameters
    ----------
    overrides
        Users' versions of kernels that all graphs are computed with; None for those in effect where
        a graph is optimised.
    alone
        Whether each graph is all that is computed: graphs that are optimised by other functions may
        have the same chunks.

    Notes
    -----
    Immutable. dask optimises a graph on the scheduler, if there is one: what is in effect where the
    hook is pickled goes there with it, and nothing else is in effect there.
    """

    __name__ = "optimize"

    optimises_expressions = True
    """Distinguishes it from other hooks, which never see the graphs of array expressions."""

    def __init__(self, overrides: Overrides | None = None, alone: bool = True) -> None:
        self._overrides = overrides
        self._alone = alone

    def __call__(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        """Optimise an array graph as dask does, then turn its chunk tasks into programs.

        Parameters
        ----------
        dsk
            The graph.
        keys
            The wanted keys, nested as dask nests them.
        **kwargs
            Passed on to `dask.array.optimization.optimize`.

        Returns
        -------
        dict or HighLevelGraph
            The graph, with the same keys; of layers if dask's own fusion of tasks is off.
        """
        if _interceptors:
            return _interceptors[-1](dsk, keys, **kwargs)
        # Imported by the first graph, since a worker that sees none can do without dask.array.
        from gpusched.graph.optimisation import optimise

        overrides = active() if self._overrides is None else self._overrides
        found = optimise(dsk, keys, overrides, self._alone, **kwargs)
        if overrides and self._overrides is not None:
            from gpusched.graph.renaming import own_names

            return own_names(found, set(flatten([keys])), overrides)
        return found

    def beside_others(self) -> Hook:
        """Return the hook for graphs that are computed together with others' graphs."""
        return Hook(self._overrides, alone=False)

    def __reduce__(self) -> Any:
        if self is optimize and get_spawning_popen() is not None:
            # With the configuration of a new process, which has overrides of its own.
            return "optimize"
        return Hook, (active() if self._overrides is None else self._overrides,)


optimize = Hook()
"""What dask's configuration has while fusion is on."""


def is_enabled() -> bool:
    """Return whether fusion is on in this process.

    Examples
    --------
    >>> import gpusched
    >>> from gpusched.graph.hook import is_enabled
    >>> with gpusched.enable():
    ...     is_enabled()
    True
    """
    return isinstance(dask.config.get("array_optimize", None), Hook)


# Array expressions ----------------------------------------------------------------------


def install() -> None:
    """Have array expressions optimised by gpusched's hook, where dask's configuration has it."""
    plain = entered_through()
    if plain is None:
        warnings.warn(
            "array expressions are computed without fusion: this version of dask is not known to "
            "gpusched; arrays of dask.array are fused",
            stacklevel=2,
        )
        return
    if hasattr(plain, "__gpusched__"):
        return

    @functools.wraps(plain)
    def entry(collections: Any, optimize_graph: bool = True, **kwargs: Any) -> Any:
        expression = plain(collections, optimize_graph, **kwargs)
        hook = _hook() if optimize_graph else None
        if hook is None:
            return expression
        # Imported by the first graph: a process that sees none can do without dask.array.
        from gpusched.graph.frontends.fused_expressions import fused, note_unknown

        watch()
        note_unknown(collections)
        return fused(expression, hook)

    entry.__gpusched__ = True  # type: ignore[attr-defined]
    replace_entry(plain, entry)


def watch() -> None:
    """Have arrays of the front ends that are imported by now optimise their own graphs, too.

    They do so for `to_delayed`, which goes through nothing else.
    """
    optimise_by(_optimised)


def _optimised(graph: Any, keys: Any, expression: Any = None, **kwargs: Any) -> Any:
    hook = _hook()
    if hook is None:
        return graph
    if expression is not None:
        from gpusched.graph.frontends.layered import exchanged

        graph = exchanged(graph, expression)
    return hook(graph, keys, **kwargs)


def _hook() -> Any:
    """Return gpusched's hook if dask's configuration has it; other hooks never see expressions."""
    hook = dask.config.get("array_optimize", None)
    return hook if getattr(hook, "optimises_expressions", False) else None


# Here rather than in `enable`: a process may have the hook from its configuration alone.
install()

_interceptors: list[Callable[..., Any]] = []


@contextmanager
def intercepting(function: Callable[..., Any]) -> Iterator[None]:
    """Let `function` have every array graph of this process instead of `optimize`.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> from gpusched.adapters.tasks import DataNode
    >>> from dask.core import flatten
    >>> from gpusched.graph.hook import intercepting
    >>> def seven(graph, keys, **kwargs):
    ...     return {key: DataNode(key, 7) for key in flatten(keys)}
    >>> with gpusched.enable(), intercepting(seven):
    ...     da.ones(()).compute()
    7
    """
    _interceptors.append(function)
    try:
        yield
    finally:
        _interceptors.remove(function)


_MATHEMATICS = "fusion.mathematics"


def _configure(changed: dict[str, Any]) -> None:
    for key, value in changed.items():
        if value is None:
            # A key set to None would switch dask's own array optimisation off.
            dask.config.pop(key, None)
        else:
            dask.config.set({key: value})


_SHORTENED = "admin.traceback.shorten"
"""dask's setting: patterns of files whose frames it leaves out of tracebacks."""
_FRAMES = r"gpusched[\\\/](backends|graph|plan|record|store|workers)[\\\/]"
"""gpusched's own, between the user's call and the user's function."""


def _shortened(on: bool) -> list[str] | None:
    """Return that setting, with gpusched's frames where fusion is on; none if it has none."""
    known: list[str] | None = dask.config.get(_SHORTENED, None)
    if not known or (on and config.get("run.full-tracebacks")):
        return known
    others = [pattern for pattern in known if pattern != _FRAMES]
    return [*others, _FRAMES] if on else others


class _Switch:
    """Sets the hook at once; as a context manager or decorator, only for the length of it."""

    def __init__(self, hook: Callable[..., Any], mathematics: str | None = None) -> None:
        self._hook = hook
        self._mathematics = mathematics
        self._before: list[dict[str, Any]] = []
        self._set()

    def _set(self) -> None:
        on = self._hook is optimize
        watch()
        if on:
            early.prepare()
        changed = {
            "array_optimize": self._hook,
            "array_plugins": callsites.plugins(on),
            size.KEY: size.for_fusion(on),
            _SHORTENED: _shortened(on),
        }
        if self._mathematics is not None:
            changed[f"gpusched.{_MATHEMATICS}"] = chosen(_MATHEMATICS, self._mathematics)
        self._before.append({key: dask.config.get(key, None) for key in changed})
        _configure(changed)

    def _restore(self) -> None:
        _configure(self._before.pop())

    def __repr__(self) -> str:
        on = self._hook is optimize
        remedy = "gpusched.disable() switches it off" if on else "gpusched.enable() switches it on"
        return f"<fusion is {'on' if on else 'off'} in this process; {remedy}>"

    def __enter__(self) -> _Switch:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._restore()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._restore()

        @functools.wraps(function)
        def switched(*args: Any, **kwargs: Any) -> Any:
            with _Switch(self._hook, self._mathematics):
                return function(*args, **kwargs)

        return switched


def enable(*, mathematics: str | None = None) -> _Switch:
    """Switch fusion on for every `dask.array` computed from now on in this process.

    Works with any dask scheduler.

    Parameters
    ----------
    mathematics : {'exact', 'fast'}, optional
        As of the setting ``gpusched.fusion.mathematics``; None leaves that as it is.

    Returns
    -------
    context manager and decorator
        Switches fusion on only for its block, or for the function.

    Raises
    ------
    ValueError
        If ``mathematics`` is anything else, or a setting of gpusched's has a value that it cannot
        have.

    Warns
    -----
    UserWarning
        Of settings of gpusched's that do not exist.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> x = da.ones(100_000, chunks=50_000)
    >>> with gpusched.enable():
    ...     float(((x + 1) ** 2).sum().compute(scheduler="threads"))
    400000.0
    """
    settings.check_changes(stacklevel=2)
    return _Switch(optimize, mathematics)


def disable() -> _Switch:
    """Switch fusion off; as a context manager or decorator, only for the block or the function.

    Examples
    --------
    >>> import gpusched
    >>> with gpusched.enable(), gpusched.disable():
    ...     pass
    """
    return _Switch(_unfused())


@functools.cache
def _unfused() -> Callable[..., Any]:
    """Return dask's own optimisation as another object.

    A scheduler of gpusched takes dask's function itself for that of a client that has not chosen.
    """
    from dask.array.optimization import optimize as dask_optimize

    return functools.partial(dask_optimize)
